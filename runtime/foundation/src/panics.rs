//! Catches panics of libraries that read untrusted files, and keeps their text off the terminal.
//!
//! The libraries that read tokenizers and chat templates panic on some broken files instead of returning an error.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether this thread is inside [`catch_panic`].
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Wraps the panic hook once in the process.
static HOOK: Once = Once::new();

/// Runs `work` on this thread and catches a panic, which is not printed. The first call in the process wraps the panic
/// hook: panics outside of `catch_panic` go to the hook that was set before. Calls may be nested. `work` must leave no
/// state behind that a panic makes inconsistent.
///
/// # Errors
/// The panic's message.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !CATCHING.get() {
                loud(panic);
            }
        }));
    });
    let before = CATCHING.replace(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(before);
    outcome.map_err(|panic| panic_message(&*panic))
}

/// Returns the text of a panic's payload, if that is a `&str` or a `String`, else `the library that reads it gave up`.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("the library that reads it gave up").to_owned()
}

#[cfg(test)]
mod tests {
    use super::catch_panic;

    #[test]
    fn a_panic_becomes_its_words_and_the_next_call_is_as_any_other() {
        assert_eq!(catch_panic(|| panic!("a number")), Err::<(), _>("a number".into()));
        assert_eq!(catch_panic(|| catch_panic(|| panic!("{}", 1 + 1))), Ok(Err::<(), _>("2".into())));
        assert_eq!(catch_panic(|| 3), Ok(3));
    }
}
