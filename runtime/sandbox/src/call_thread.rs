//! A thread for each call of a method, whose stack does not depend on who makes the call.
//!
//! A panic of the host under a method is reported once, as the end of the method, and not printed to stderr. A thread
//! that works for a method has a name that begins with [`THREAD_PREFIX`], or none (in the thread pool of the tensor
//! library).

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::{panic, thread};

use crate::cause::Cause;
use crate::printable::printable;

/// The stack of a call: that of the method, and ample room for the host's functions, which do not recurse.
const STACK_BYTES: usize = 8 << 20;

/// The longest message of a panic that is shown, in bytes.
const MESSAGE_BYTES: usize = 1_000;

/// Runs a closure on a new thread, named `tunebox-method`, with a stack of 8 MiB, and waits for its result. Errors:
/// [`Cause::Host`] with message and place of a panic, which is not printed; [`Cause::Device`] if the system does not
/// start the thread.
pub(crate) fn run_on_call_thread<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R, Cause> {
    let _call = MethodCall::begin();
    thread::scope(|scope| {
        let builder = thread::Builder::new().name(format!("{THREAD_PREFIX}method")).stack_size(STACK_BYTES);
        match builder.spawn_scoped(scope, work) {
            Ok(thread) => thread.join().map_err(|payload| Cause::Host(panic_message(&*payload))),
            Err(error) => Err(Cause::no_thread(&error)),
        }
    })
}

/// Returns the message of a panic, escaped and cut at 1,000 bytes, followed by the source location that the hook
/// stored, as `MESSAGE (FILE:LINE)`. A payload that is no text becomes `it gave no message`. Clears that location.
fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = printable(text.unwrap_or("it gave no message"), MESSAGE_BYTES);
    match take_location() {
        Some(place) => format!("{text} ({place})"),
        None => text,
    }
}

/// The prefix of the names of threads that work for a method.
const THREAD_PREFIX: &str = "tunebox-";

/// Guards the panic hook, which is installed once a process.
static HOOK: Once = Once::new();
/// How many calls of methods run in this process.
static RUNNING_CALLS: AtomicUsize = AtomicUsize::new(0);
/// The source location of the last panic that the hook kept from being printed.
static LAST_PANIC_LOCATION: Mutex<Option<String>> = Mutex::new(None);

/// Counts a running call of a method until it is dropped.
struct MethodCall(());

impl MethodCall {
    /// Installs the panic hook on first use, and increments the number of running calls until the value is dropped.
    fn begin() -> Self {
        install_hook();
        RUNNING_CALLS.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for MethodCall {
    /// Decrements the number of running calls.
    fn drop(&mut self) {
        RUNNING_CALLS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns and clears the source location, `FILE:LINE`, of the last panic that the hook kept from being printed. The
/// location is one for the whole process: it may be of a panic in another thread or call. `None` if there was no such
/// panic since the last call of this function.
fn take_location() -> Option<String> {
    LAST_PANIC_LOCATION.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Installs, once a process, a panic hook that stores the location of a method's panic instead of printing it. Passes
/// every other panic on to the hook that was installed before.
fn install_hook() {
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !is_panic_of_method() {
                return previous(panic);
            }
            let location = panic.location().map(|place| format!("{}:{}", place.file(), place.line()));
            *LAST_PANIC_LOCATION.lock().unwrap_or_else(PoisonError::into_inner) = location;
        }));
    });
}

/// Whether the current thread works for a method: a call is running, and the thread has no name or one that begins with
/// `THREAD_PREFIX`.
fn is_panic_of_method() -> bool {
    RUNNING_CALLS.load(Ordering::Acquire) > 0
        && thread::current().name().is_none_or(|name| name.starts_with(THREAD_PREFIX))
}
