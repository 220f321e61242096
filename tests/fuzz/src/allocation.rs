//! An allocator that counts the bytes that the whole process holds, now and at most.
//!
//! `main.rs` installs it, so that a target can compare an account with the bytes that were allocated. A test process does
//! not: its threads run several targets at once.
#![expect(unsafe_code, reason = "an allocator is unsafe to write; this one counts and hands everything on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with counters.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

/// Adds allocated bytes to the counters.
fn add(bytes: usize) {
    PEAK.fetch_max(HELD.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: every call goes to the system's allocator with the arguments that came; the counters are no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the rules of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the rules of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the rules of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Returns the bytes that are held now, and restarts the peak from them. 0 if [`Counting`] is not installed.
pub(crate) fn restart() -> usize {
    let held = HELD.load(Relaxed);
    PEAK.store(held, Relaxed);
    held
}

/// Returns the most bytes held at once since [`restart`]. 0 if [`Counting`] is not installed.
pub(crate) fn peak() -> usize {
    PEAK.load(Relaxed)
}

/// Runs `work` without counting what it holds in between towards the peak. Nothing else may allocate meanwhile.
pub(crate) fn leave_out<T>(work: impl FnOnce() -> T) -> T {
    let peak = PEAK.load(Relaxed);
    let result = work();
    PEAK.store(peak.max(HELD.load(Relaxed)), Relaxed);
    result
}
