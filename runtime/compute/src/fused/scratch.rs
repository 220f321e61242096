//! Buffers that a thread uses again and again, so that tiles cost no allocation.
//!
//! What a buffer holds at first is left over from an earlier use: write before you read.

use std::cell::RefCell;

thread_local! {
    /// Buffers at rest. One that is in use is out of the list, so uses may nest.
    static BUFFERS: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with a buffer of `length` numbers of unknown content.
pub(super) fn with<R>(length: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut buffer = BUFFERS.with_borrow_mut(|buffers| buffers.pop()).unwrap_or_default();
    if buffer.len() < length {
        buffer.resize(length, 0.0);
    }
    let result = work(&mut buffer[..length]);
    BUFFERS.with_borrow_mut(|buffers| buffers.push(buffer));
    result
}
