//! A panic of the host under a method is reported once, as the end of the method, and not printed to stderr.
//!
//! Threads that work for a method bear a name that begins with [`PREFIX`], or none (the pool of the tensor library).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::{panic, thread};

/// How the names of threads begin that work for a method.
pub(crate) const PREFIX: &str = "tunebox-";

static HOOK: Once = Once::new();
static CALLS: AtomicUsize = AtomicUsize::new(0);
static LOCATION: Mutex<Option<String>> = Mutex::new(None);

/// Counts a running call of a method for as long as it lives.
pub(crate) struct MethodCall(());

impl MethodCall {
    /// Counts a call; also installs the panic hook.
    pub(crate) fn begin() -> Self {
        install_hook();
        CALLS.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for MethodCall {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The source location of the last panic that was not printed. Clears it.
pub(crate) fn take_location() -> Option<String> {
    LOCATION.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Installs a panic hook before the present one, once a process. The present one still gets every other panic.
fn install_hook() {
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !is_panic_of_method() {
                return previous(panic);
            }
            let location = panic.location().map(|place| format!("{}:{}", place.file(), place.line()));
            *LOCATION.lock().unwrap_or_else(PoisonError::into_inner) = location;
        }));
    });
}

/// Whether the panicking thread works for a method: by its name, or none while a call runs.
fn is_panic_of_method() -> bool {
    CALLS.load(Ordering::Acquire) > 0 && thread::current().name().is_none_or(|name| name.starts_with(PREFIX))
}
