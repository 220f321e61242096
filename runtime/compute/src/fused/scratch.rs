//! Buffers that a thread uses again and again, so that tiles cost no allocation.
//!
//! What a buffer holds at first is left over from an earlier use: write before you read. A buffer begins where a vector
//! of the widest kind does; one that straddles two lines of the cache is read at half the speed.

use std::cell::RefCell;

/// Bytes of a line of the cache.
const LINE: usize = 64;
/// Numbers in a line of the cache: how many a buffer has in excess, so that the used part can begin at a line.
const SLACK: usize = LINE / size_of::<f32>();

thread_local! {
    /// The buffers of this thread that are not in use. One in use is not in the list, so uses may nest.
    static BUFFERS: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with one buffer of each length, of unknown content, and returns the result of `work`. The buffers are
/// adjacent pieces of one buffer of [`with`], in order.
pub(super) fn with_parts<R, const N: usize>(lengths: [usize; N], work: impl FnOnce([&mut [f32]; N]) -> R) -> R {
    with(lengths.iter().sum(), |mut rest| work(lengths.map(|length| rest.split_off_mut(..length).unwrap_or_default())))
}

/// Calls `work` with a buffer of `length` numbers of unknown content and returns the result of `work`. Takes the buffer
/// that the thread used last and does not use now, or a new one, and enlarges it if needed; keeps it afterwards for
/// later calls of the thread. The numbers begin at a multiple of 64 bytes where possible. Calls may nest.
pub(super) fn with<R>(length: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut buffer = BUFFERS.with_borrow_mut(|buffers| buffers.pop()).unwrap_or_default();
    if buffer.len() < length + SLACK {
        buffer.resize(length + SLACK, 0.0);
    }
    // `align_offset` may return `usize::MAX`. An unaligned buffer is slower but correct.
    let start = Some(buffer.as_ptr().align_offset(LINE)).filter(|start| *start <= SLACK).unwrap_or(0);
    let result = work(&mut buffer[start..start + length]);
    BUFFERS.with_borrow_mut(|buffers| buffers.push(buffer));
    result
}
