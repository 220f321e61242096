//! Memory for tensors: a pool that keeps buffers by their size and reuses them.
//!
//! The pool of candle rounds sizes up to powers of two, so a large activation may take twice its size; here rounding
//! adds an eighth at most. A buffer is free as soon as no tensor uses it, even if queued work still does: the encoder's
//! barriers order later work that writes the buffer after it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::MetalDevice;
use candle_metal_kernels::metal::{Buffer, MTLResourceOptions};

/// How buffers are created: CPU and GPU share them, and the encoder orders the kernels that use them.
pub(super) const SHARED: MTLResourceOptions = candle_metal_kernels::RESOURCE_OPTIONS;
/// The size of the smallest buffer, in bytes.
const LEAST: usize = 1 << 8;
/// The number of buffer sizes from one power of two (exclusive) to the next (inclusive).
const STEPS: usize = 8;

/// The reusable buffers of a device.
#[derive(Debug, Default)]
pub(super) struct Pool {
    state: Mutex<PoolState>,
}

/// The buffers of a pool and the peak of allocated memory.
#[derive(Debug, Default)]
struct PoolState {
    /// All buffers of the pool, by their size in bytes. A buffer to which only the pool refers is free.
    buffers: BTreeMap<usize, Vec<Arc<Buffer>>>,
    /// The most bytes that were allocated on the device at one time, measured when the pool creates a buffer.
    peak: usize,
}

impl PoolState {
    /// Bytes of all buffers that no tensor uses.
    fn unused(&self) -> usize {
        let unused = |of: &Vec<Arc<Buffer>>| of.iter().filter(|buffer| Arc::strong_count(buffer) == 1).count();
        self.buffers.iter().map(|(size, of)| size * unused(of)).sum()
    }

    /// Whether the device can allocate `bytes` more bytes. If it cannot and the pool has unused buffers, first waits
    /// for all work and returns those buffers to the system.
    fn has_room(&mut self, device: &MetalDevice, bytes: usize) -> candle_core::Result<bool> {
        let metal = device.metal_device();
        let fits = || metal.current_allocated_size() + bytes <= metal.recommended_max_working_set_size();
        if !fits() && self.unused() > 0 {
            device.wait_until_completed()?;
            self.trim(device);
        }
        Ok(fits())
    }

    /// Returns all buffers that no tensor uses to the system. No work may be under way.
    fn trim(&mut self, device: &MetalDevice) {
        for buffers in self.buffers.values_mut() {
            let (used, unused): (Vec<_>, Vec<_>) = buffers.drain(..).partition(|buffer| Arc::strong_count(buffer) > 1);
            device.unregister_buffers(unused.iter().map(|buffer| &**buffer));
            *buffers = used;
        }
        self.buffers.retain(|_, buffers| !buffers.is_empty());
    }
}

impl Pool {
    /// Returns a buffer of at least `bytes` bytes with unspecified content: an unused one of the same rounded size, or
    /// a new one. `None` if the device has no memory left.
    ///
    /// # Errors
    /// candle's error if waiting for work fails. Work is awaited only before unused buffers are returned to the system.
    pub(super) fn take(&self, device: &MetalDevice, bytes: usize) -> candle_core::Result<Option<Arc<Buffer>>> {
        let size = round_up_size(bytes);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let free = state.buffers.get(&size).and_then(|of| of.iter().find(|buffer| Arc::strong_count(buffer) == 1));
        if let Some(found) = free {
            return Ok(Some(Arc::clone(found)));
        }
        if !state.has_room(device, size)? {
            return Ok(None);
        }
        let metal = device.metal_device();
        let Ok(buffer) = metal.new_buffer(size, SHARED) else { return Ok(None) };
        let buffer = Arc::new(buffer);
        device.register_buffers([&*buffer]);
        state.peak = state.peak.max(metal.current_allocated_size());
        state.buffers.entry(size).or_default().push(Arc::clone(&buffer));
        Ok(Some(buffer))
    }

    /// Whether the device can allocate `bytes` bytes for a buffer outside this pool. If it cannot, first waits for all
    /// work and returns unused buffers to the system.
    ///
    /// # Errors
    /// candle's error if waiting for work fails.
    pub(super) fn has_room(&self, device: &MetalDevice, bytes: usize) -> candle_core::Result<bool> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).has_room(device, bytes)
    }

    /// Resets the peak to the bytes that the device has allocated now.
    pub(super) fn reset_peak(&self, device: &MetalDevice) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.peak = device.metal_device().current_allocated_size();
    }

    /// Returns (unused, peak) in bytes: the size of all buffers that no tensor uses, and the most that was allocated on
    /// the device at one time. The peak is measured only when this pool creates a buffer.
    pub(super) fn unused_and_peak(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.unused(), state.peak)
    }
}

/// Rounds a requested number of bytes up to the size of a buffer: at least 256 bytes, above that to a multiple of 1/8
/// of the largest power of two below the number.
fn round_up_size(bytes: usize) -> usize {
    let bytes = bytes.max(LEAST);
    bytes.next_multiple_of((bytes.next_power_of_two() / 2 / STEPS).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_by_an_eighth_at_most() {
        for bytes in [0, 1, 256, 257, 1000, 4097, (1 << 30) + 1, (5 << 28) + 3] {
            let size = round_up_size(bytes);
            assert!(size >= bytes.max(LEAST) && size <= bytes.max(LEAST) / 8 * 9 + 8, "{size} for {bytes}");
            assert_eq!(round_up_size(size), size);
        }
    }
}
