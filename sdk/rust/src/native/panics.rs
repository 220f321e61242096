//! Panics of a method: caught at the call that the host made, with message and location.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::OnceLock;

/// A panic of a method: its message, and where it happened as file, line and column.
pub(crate) type CaughtPanic = (String, String, u32, u32);

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// The panic hook of the process before ours, which still runs after it.
static PREVIOUS: OnceLock<Hook> = OnceLock::new();

thread_local! {
    /// Whether this thread is in a call of the host.
    static IN_CALL: Cell<bool> = const { Cell::new(false) };

    /// The first panic of the call: what panics while it unwinds is not the reason.
    static FIRST_PANIC: RefCell<Option<CaughtPanic>> = const { RefCell::new(None) };
}

/// Installs [`forward_panic`] as the panic hook, once in a process, and keeps the previous hook.
pub(crate) fn install_hook() {
    PREVIOUS.get_or_init(|| {
        let previous = take_hook();
        set_hook(Box::new(forward_panic));
        previous
    });
}

/// The panic hook: records the first panic of this thread's call of the host, then runs the previous hook.
pub(crate) fn forward_panic(panic: &PanicHookInfo<'_>) {
    if IN_CALL.get() {
        FIRST_PANIC.with_borrow_mut(|first| {
            first.get_or_insert_with(|| describe(panic));
        });
    }
    if let Some(previous) = PREVIOUS.get() {
        previous(panic);
    }
}

/// Collects message and location of a panic; an empty file name, line 0 and column 0 if the location is unknown.
fn describe(panic: &PanicHookInfo<'_>) -> CaughtPanic {
    let message = panic.payload_as_str().unwrap_or("the method panicked").to_owned();
    let (file, line, column) = panic.location().map_or(("", 0, 0), |at| (at.file(), at.line(), at.column()));
    (message, file.to_owned(), line, column)
}

/// Runs a call of the host and catches its panic. Errors: the first panic of `work`, with message and location.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, CaughtPanic> {
    FIRST_PANIC.set(None);
    IN_CALL.set(true);
    // After a panic the host calls no more, so nobody sees what was left half-done.
    let done = catch_unwind(AssertUnwindSafe(work));
    IN_CALL.set(false);
    done.map_err(|_| FIRST_PANIC.take().unwrap_or_default())
}
