//! Panics of a method: caught at the call that the host made, with what they say and where.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::OnceLock;

/// What a panic said.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) message: String,
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// What told panics before, and still does.
static PREVIOUS: OnceLock<Hook> = OnceLock::new();

thread_local! {
    /// Whether this thread is in a call of the host.
    static CALLED: Cell<bool> = const { Cell::new(false) };

    /// The first panic of the call: what panics while it unwinds is not the reason.
    static HEARD: RefCell<Option<Heard>> = const { RefCell::new(None) };
}

/// Hears the panics of the process from now on.
pub(crate) fn listen() {
    PREVIOUS.get_or_init(|| {
        let previous = take_hook();
        set_hook(Box::new(forward_panic));
        previous
    });
}

/// The panic hook: notes the panic of a call, and lets the hook before it tell it as usual.
pub(crate) fn forward_panic(panic: &PanicHookInfo<'_>) {
    if CALLED.get() {
        HEARD.with_borrow_mut(|heard| {
            heard.get_or_insert_with(|| of(panic));
        });
    }
    if let Some(previous) = PREVIOUS.get() {
        previous(panic);
    }
}

fn of(panic: &PanicHookInfo<'_>) -> Heard {
    let message = panic.payload_as_str().unwrap_or("the method panicked").to_owned();
    match panic.location() {
        Some(place) => Heard { message, file: place.file().to_owned(), line: place.line(), column: place.column() },
        None => Heard { message, ..Heard::default() },
    }
}

/// Does a call of the host. Errors: it panicked.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Heard> {
    HEARD.set(None);
    CALLED.set(true);
    // After a panic the host calls no more, so nobody sees what was left half-done.
    let done = catch_unwind(AssertUnwindSafe(work));
    CALLED.set(false);
    done.map_err(|_| HEARD.take().unwrap_or_default())
}
