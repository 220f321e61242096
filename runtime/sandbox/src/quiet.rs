//! A panic of the host under a method is told once, as the method's end, and not on the error stream as well.
//!
//! Threads that work for a method bear a name that begins with [`PREFIX`], or none (the pool of the tensor library).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::{panic, thread};

/// How the names of threads begin that work for a method.
pub(crate) const PREFIX: &str = "tunebox-";

static HOOK: Once = Once::new();
static CALLS: AtomicUsize = AtomicUsize::new(0);
static PLACE: Mutex<Option<String>> = Mutex::new(None);

/// A call of a method that is under way.
pub(crate) struct UnderWay(());

impl UnderWay {
    /// Begins a call.
    pub(crate) fn begin() -> Self {
        install();
        CALLS.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where the last silent panic happened; forgets it.
pub(crate) fn take_place() -> Option<String> {
    PLACE.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Puts a hook before the one that is there: that one still hears of every panic which is no method's.
fn install() {
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !is_of_a_method() {
                return loud(panic);
            }
            let place = panic.location().map(|place| format!("{}:{}", place.file(), place.line()));
            *PLACE.lock().unwrap_or_else(PoisonError::into_inner) = place;
        }));
    });
}

fn is_of_a_method() -> bool {
    CALLS.load(Ordering::Acquire) > 0 && thread::current().name().is_none_or(|name| name.starts_with(PREFIX))
}
