//! The estimated memory of a run on the device that computes, from sizes and from the memory in use after opening the model.
//!
//! `check --fit` compares it with the free memory; no run is rejected for it.

use tunebox_compute::device;
use tunebox_compute::precision::Purpose;
use tunebox_compute::{DType, Device, Weight};
use tunebox_model::decoder::Recompute;
use tunebox_model::{Policy, Weights};

use super::tokens::Tokens;
use crate::configuration::RunSettings;
use crate::error::Error;

/// Estimated bytes of memory, by use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Estimate {
    /// The model's weights in their number format.
    pub weights: u64,
    /// Trained numbers, their gradient, and the optimizer's two moments; also a copy of the trained numbers if activations
    /// have another number format.
    pub training: u64,
    /// Activations kept for the backward pass, or the keys and values of generated rows, whichever is more.
    pub activations: u64,
    /// Temporary tensors of one block in the backward pass.
    pub scratch: u64,
    /// Logits and temporary tensors of the output head.
    pub head: u64,
    /// On the CPU the program and the tokenizer. On an accelerator the largest matrix that is dequantized for a product; the
    /// memory of its driver is not counted, since it is not free once the device is open.
    pub runtime: u64,
}

impl Estimate {
    /// The sum of all fields, in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.weights + self.training + self.activations + self.scratch + self.head + self.runtime
    }

    /// Estimates the memory of a run from its policy and the tokens of a step. `runtime` is the number of bytes in use
    /// beside the weights, from [`bytes_beside_weights`].
    #[must_use]
    pub(crate) fn of(policy: &Policy, tokens: Tokens, recompute: Recompute, runtime: u64) -> Self {
        let trainable = policy.adapter().trainable() as u64;
        let caches = tokens.generated.map_or(0, |rows| policy.cache_memory(rows.rows, rows.length));
        let (pass, precision) = (policy.pass_memory(tokens.slice, tokens.together, recompute), policy.precision());
        // Products use the trained numbers in the format of activations, of which a copy is kept.
        let other = precision.plain().is_some_and(|plain| plain != DType::F32);
        let copied = if other { precision.bytes(Purpose::Activation, trainable) } else { 0 };
        Self {
            weights: policy.model().weights.bytes(),
            training: 2 * precision.bytes(Purpose::Trained, trainable)
                + 2 * precision.bytes(Purpose::Moment, trainable)
                + copied,
            activations: pass.kept.max(caches),
            scratch: pass.scratch,
            head: pass.head,
            runtime,
        }
    }
}

/// Bytes in use beside a model's weights, measured just after the model was opened. On the CPU: the resident memory of
/// this process without the weights, or 160 MiB if the system does not report it. On an accelerator: the size of the
/// largest matrix after dequantization.
pub(super) fn bytes_beside_weights(weights: &Weights) -> u64 {
    const USUAL: u64 = 160 << 20;
    if !weights.device().is_cpu() {
        return largest_dequantized(weights);
    }
    let held = read_bytes("/proc/self/status", "VmRSS:");
    held.map_or(USUAL, |held| held.saturating_sub(weights.bytes_in_memory()))
}

/// Bytes of the largest quantized matrix of the model's blocks after it is dequantized to the number format of
/// activations; 0 if none is quantized.
fn largest_dequantized(weights: &Weights) -> u64 {
    let matrices = weights.names().filter(|name| name.starts_with("model.layers."));
    let packed = matrices.filter(|name| matches!(weights.weight(name), Ok(Weight::Packed(_))));
    let numbers = packed.filter_map(|name| weights.shape(name)).map(|shape| shape.iter().product::<usize>() as u64);
    weights.precision().bytes(Purpose::Activation, numbers.max().unwrap_or(0))
}

/// Free memory in bytes of the device that the settings name; `None` if it is unknown or there is no such device.
#[must_use]
pub fn free(settings: &RunSettings) -> Option<u64> {
    free_on(&device::parse(&settings.file.train.device).ok()?)
}

/// Free memory of an open device in bytes, for the CPU that of the machine; `None` if it is unknown.
pub(super) fn free_on(device: &Device) -> Option<u64> {
    device::info(device).ok()?.map_or_else(available, |about| Some(about.free))
}

/// Peak memory in bytes: for the CPU of this process, for an accelerator of the tensors on it; `None` if it is unknown.
pub(crate) fn peak_on(device: &Device) -> Option<u64> {
    device::info(device).ok()?.map_or_else(peak, |about| Some(about.peak))
}

/// Resets the peak memory of the process and of the device to the memory in use now. On a system that cannot reset it, a
/// later peak is that since the start of the process. Also resets the peak that other processes see.
///
/// # Errors
/// An error of the device.
pub(crate) fn reset_peak(device: &Device) -> Result<(), Error> {
    // See proc_pid_clear_refs(5). A failure means that the system cannot reset it.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    Ok(device::reset_peak(device)?)
}

/// Available memory of this machine in bytes, from `/proc/meminfo`; `None` where that does not exist.
#[must_use]
pub fn available() -> Option<u64> {
    read_bytes("/proc/meminfo", "MemAvailable:")
}

/// Peak resident memory of this process in bytes, from `/proc/self/status`; `None` where that does not exist.
pub(crate) fn peak() -> Option<u64> {
    read_bytes("/proc/self/status", "VmHWM:")
}

/// Reads the line of a file that begins with `name`, such as `VmHWM:  123 kB`, and converts its kibibytes to bytes;
/// `None` if the file, the line or its number is missing.
fn read_bytes(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_counts_what_was_held_since_it_was_reset() {
        const BYTES: usize = 512 << 20;
        let block = vec![1_u8; BYTES];
        let before = peak().unwrap();
        assert!(before >= block.iter().map(|byte| u64::from(*byte)).sum());
        drop(block);
        reset_peak(&Device::Cpu).unwrap();
        // Other tests of this process hold something as well.
        assert!(peak().unwrap() < before - (BYTES as u64) / 2);
    }
}
