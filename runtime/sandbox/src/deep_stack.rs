//! A thread with a deep stack for calls of a method: gradients, and the graphs that they walk, recurse.

use std::any::Any;

use crate::panics::{MethodCall, PREFIX, take_location};
use crate::printable::printable;

/// The stack of a call. Only used pages are ever taken from the machine.
const STACK: usize = 256 << 20;

/// The longest message of a panic that is shown, in bytes.
const MESSAGE_BYTES: usize = 1_000;

/// Runs a closure on a new thread with a deep stack. A panic is returned as its message, with its location.
pub(crate) fn run_on_deep_stack<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R, String> {
    let _call = MethodCall::begin();
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name(format!("{PREFIX}method")).stack_size(STACK);
        match builder.spawn_scoped(scope, work) {
            Ok(thread) => thread.join().map_err(|panic| message(&*panic)),
            Err(error) => Err(format!("no thread for the method: {error}")),
        }
    })
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = printable(text.unwrap_or("it gave no message"), MESSAGE_BYTES);
    match take_location() {
        Some(place) => format!("{text} ({place})"),
        None => text,
    }
}
