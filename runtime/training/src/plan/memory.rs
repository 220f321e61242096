//! The estimated memory of a run on the device that computes, from sizes and from the memory in use after opening the
//! model.
//!
//! `check --fit` compares it with the free memory; no run is rejected for it.

pub use tunebox_compute::memory::available;
use tunebox_compute::memory::{peak, resident};
use tunebox_compute::optimizer::OptimizerSettings;
use tunebox_compute::precision::Purpose;
use tunebox_compute::{DType, Device, Weight, device};
use tunebox_model::decoder::Recompute;
use tunebox_model::policy::View;
use tunebox_model::{Model, Policy, Weights};
use tunebox_sandbox::NEW_TOKENS;

use super::method::PlannedMethod;
use crate::configuration::RunSettings;
use crate::data::{Dataset, Shape};
use crate::error::Error;

/// Estimated bytes of memory, by use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Estimate {
    /// The weights of the model and of teachers in their number format.
    pub weights: u64,
    /// Trained numbers, their gradient, and the optimizer's state; also a copy of the trained numbers if activations
    /// have another number format, and the first values of an adapter that begins with a part of the weights.
    pub training: u64,
    /// Activations kept for the backward pass, or the keys and values of generated rows, whichever is more.
    pub activations: u64,
    /// Temporary tensors of one block in the backward pass.
    pub scratch: u64,
    /// Logits and temporary tensors of the output head, and of the pass of a teacher.
    pub head: u64,
    /// On the CPU the program and the tokenizer. On an accelerator the largest matrix that is dequantized for a
    /// product; the memory of its driver is not counted, since it is not free once the device is open.
    pub runtime: u64,
    /// Weights and temporary tensors of the reward models on this device; 0 without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reward_models: u64,
}

/// Whether a part of an estimate is 0, so that it is left out.
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl Estimate {
    /// The sum of all fields, in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        let own = self.weights + self.training + self.activations + self.scratch + self.head;
        own + self.runtime + self.reward_models
    }

    /// Estimates the memory of a run from its policy, the host's optimizer if it has one, and `tokens`, the most tokens
    /// that a step holds at once.
    /// `recompute` says which activations the backward pass recomputes. `runtime` is the number of bytes in use beside
    /// the weights, from [`bytes_beside_weights`]. Counts no reward models.
    #[must_use]
    pub(crate) fn of(
        policy: &Policy,
        tokens: Tokens,
        recompute: Recompute,
        optimizer: Option<&OptimizerSettings>,
        runtime: u64,
    ) -> Self {
        let trainable = policy.adapter().trainable() as u64;
        let ranks = policy.ranks().position().1 as u64;
        let cache = |rows: Generated| policy.cache_memory(&View::Policy, rows.rows.div_ceil(ranks), rows.length);
        let caches = tokens.generated.map_or(0, cache);
        let (pass, precision) = (policy.pass_memory(tokens.slice, tokens.together, recompute), policy.precision());
        // Products use the trained numbers in the format of activations, of which a copy is kept.
        let teachers: Vec<(&str, &Model)> = policy.teachers().collect();
        let of_teacher = |name: &str| {
            policy.divergence_bytes(&View::Teacher(name.to_owned()), tokens.slice.div_ceil(ranks), tokens.slice)
        };
        let teacher_pass = teachers.iter().map(|(name, _)| of_teacher(name)).max().unwrap_or(0);
        let other = precision.plain().is_some_and(|plain| plain != DType::F32);
        let copied = if other { precision.bytes(Purpose::Activation, trainable) } else { 0 };
        Self {
            weights: policy.model().weights.bytes()
                + teachers.iter().map(|(_, model)| model.weights.bytes()).sum::<u64>(),
            training: 2 * precision.bytes(Purpose::Trained, trainable)
                + optimizer.map_or(0, |settings| settings.state_bytes(policy.parameters().slots()))
                + copied
                + policy.exchange_bytes()
                + policy.adapter().initial_bytes(),
            activations: pass.kept.max(caches),
            scratch: pass.scratch,
            head: pass.head.saturating_add(teacher_pass),
            runtime,
            reward_models: 0,
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
    resident().map_or(USUAL, |held| held.saturating_sub(weights.bytes_in_memory()))
}

/// Bytes of the largest quantized matrix of the model's blocks after it is dequantized to the number format of
/// activations; 0 if none is quantized.
fn largest_dequantized(weights: &Weights) -> u64 {
    let matrices = weights.names().filter(|name| name.starts_with("model.layers."));
    let packed = matrices.filter(|name| matches!(weights.weight(name), Ok(Weight::Packed(_))));
    let numbers = packed.filter_map(|name| weights.shape(name)).map(|shape| shape.iter().product::<usize>() as u64);
    weights.precision().bytes(Purpose::Activation, numbers.max().unwrap_or(0))
}

/// Returns the free memory in bytes of the device that `train.device` names, for the CPU that of the machine; `None` if
/// it is unknown or there is no such device.
#[must_use]
pub fn free(settings: &RunSettings) -> Option<u64> {
    free_bytes(&device::parse(&settings.file.train.device).ok()?)
}

/// Free memory of an open device in bytes, for the CPU that of the machine; `None` if it is unknown.
pub(super) fn free_bytes(device: &Device) -> Option<u64> {
    device::info(device).ok()?.map_or_else(available, |about| Some(about.free))
}

/// Returns the peak memory in bytes since the last [`reset_peak`]: on the CPU that of this process, on an accelerator
/// that of the tensors there; `None` if it is unknown.
pub(crate) fn peak_bytes(device: &Device) -> Option<u64> {
    device::info(device).ok()?.map_or_else(peak, |about| Some(about.peak))
}

/// Resets the peak memory of the process and of the device to the memory in use now. On a system that cannot reset it,
/// a later peak is that since the start of the process. Also resets the peak that other processes see.
///
/// # Errors
/// An error of the device.
pub(crate) fn reset_peak(device: &Device) -> Result<(), Error> {
    // See proc_pid_clear_refs(5). A failure means that the system cannot reset it.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    Ok(device::reset_peak(device)?)
}

/// The most tokens that a step holds at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Tokens of one pass through the model.
    pub(crate) slice: u64,
    /// Tokens that the method scores before it runs backward; `u64::MAX` if unknown.
    pub(crate) together: u64,
    /// Generated rows; `None` for methods that learn from the records.
    pub(crate) generated: Option<Generated>,
}

/// The generated rows of an update, including their prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generated {
    /// Number of rows; `u64::MAX` if unknown.
    pub(crate) rows: u64,
    /// Tokens of the longest row.
    pub(crate) length: u64,
}

/// The sizes that the tokens of a step depend on.
#[derive(Clone, Copy)]
struct Sizes {
    /// Records in a micro-batch.
    batch: u64,
    /// Micro-batches in one call of the method.
    micro_batches: u64,
    /// Records in the data.
    records: u64,
    /// Tokens of the longest record, all sides together.
    record: u64,
}

impl Tokens {
    /// Computes the most tokens of a step with micro-batches of `batch` records. For prompts, counts completions by the
    /// method's settings `completions` and `max-tokens`; the latter counts at most as what the longest prompt leaves of
    /// the maximum length, and as that if it is not set. For other records counts packed micro-batches with
    /// `data.packing`, else every record as long as the longest.
    pub(super) fn of(settings: &RunSettings, data: &Dataset, method: &PlannedMethod, batch: u32) -> Self {
        let micro = method.package.manifest.batch.is_micro();
        let sizes = Sizes {
            batch: batch.into(),
            micro_batches: if micro { 1 } else { settings.file.train.accumulation.into() },
            records: data.examples.len() as u64,
            record: data.report.longest.saturating_mul(data.sides_per_example()) as u64,
        };
        let length = data.report.length as u64;
        if data.shape == Shape::Prompts {
            let rest = length.saturating_sub(sizes.record);
            let new = method.new_tokens().unwrap_or(u64::from(NEW_TOKENS)).min(rest);
            // With dropout and noise each row has its own, so a prompt cannot be shared by its completions.
            let train = &settings.file.train;
            let differs = train.adapter.dropout > 0.0 || train.neftune_alpha.is_some();
            let shared = !differs && settings.file.model.adapter.is_none();
            return sizes.with_generation(new, method.completions(), shared);
        }
        if !settings.file.data.packing {
            return sizes.without_packing();
        }
        let longest = data.examples.iter().map(|example| example.tokens() as u64).max().unwrap_or(0);
        sizes.with_packing(length, longest, data.report.tokens as u64)
    }
}

impl Sizes {
    /// Returns the tokens of a step without packing. Counts every record as long as the longest, and no more records
    /// than the data has.
    fn without_packing(self) -> Tokens {
        let of = |records: u64| self.record.saturating_mul(records.min(self.records));
        Tokens { slice: of(self.batch), together: of(self.batch.saturating_mul(self.micro_batches)), generated: None }
    }

    /// Returns the tokens of a step with packing: micro-batches of `batch` × `length` tokens, at least `longest`, the
    /// tokens of the longest record, and at most `all`, those of all records together.
    fn with_packing(self, length: u64, longest: u64, all: u64) -> Tokens {
        let bin = self.batch.saturating_mul(length).max(longest).min(all);
        Tokens { slice: bin, together: bin.saturating_mul(self.micro_batches).min(all), generated: None }
    }

    /// Returns the tokens of a step that generates `completions` completions of at most `new` tokens each for every
    /// prompt. One pass has as many rows as a micro-batch has records. With `shared`, the completions of one prompt in
    /// a pass share the prompt's tokens; otherwise each row has its own copy. If `completions` is `None` (unknown),
    /// nothing is shared, and the rows and the tokens scored together are `u64::MAX`.
    fn with_generation(self, new: u64, completions: Option<u64>, shared: bool) -> Tokens {
        let prompts = self.batch.saturating_mul(self.micro_batches).min(self.records);
        let rows = completions.map_or(u64::MAX, |each| prompts.saturating_mul(each));
        let count = self.batch.min(rows);
        // The prompts in one pass; one more if the pass cuts through the completions of a prompt.
        let prompts = completions.filter(|_| shared).map_or(count, |each| {
            let cut = !each.is_multiple_of(count) && !count.is_multiple_of(each);
            (count.div_ceil(each) + u64::from(cut)).min(count)
        });
        let slice = new.saturating_mul(count).saturating_add(self.record.saturating_mul(prompts));
        let together = slice.saturating_mul(rows.div_ceil(count.max(1)));
        Tokens { slice, together, generated: Some(Generated { rows, length: self.record + new }) }
    }
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

    const SIZES: Sizes = Sizes { batch: 4, micro_batches: 3, records: 100, record: 20 };

    #[test]
    fn records_are_counted_as_long_as_the_longest_and_packed_ones_as_bins_of_tokens() {
        for (tokens, slice, together) in [
            (SIZES.without_packing(), 80, 240),
            (Sizes { records: 5, ..SIZES }.without_packing(), 80, 100),
            (SIZES.with_packing(64, 20, 1000), 256, 768),
            (SIZES.with_packing(64, 20, 300), 256, 300),
            (SIZES.with_packing(64, 300, 1000), 300, 900),
        ] {
            assert_eq!(tokens, Tokens { slice, together, generated: None });
        }
    }

    #[test]
    fn completions_are_counted_each_with_a_prompt_that_they_may_share() {
        for (completions, shared, slice, together) in [
            (Some(8), false, 200, 50 * 8 * 12),
            // Without a number, as many as can be.
            (None, true, 200, u64::MAX),
            (Some(8), true, 4 * 30 + 20, 24 * 140),
            (Some(2), true, 4 * 30 + 2 * 20, 6 * 160),
            // A group of three does not fill a slice of four: at most three prompts are in one.
            (Some(3), true, 4 * 30 + 3 * 20, 9 * 180),
        ] {
            let tokens = SIZES.with_generation(30, completions, shared);
            assert_eq!((tokens.slice, tokens.together), (slice, together), "{completions:?}");
            let rows = completions.map_or(u64::MAX, |each| 12 * each);
            assert_eq!(tokens.generated, Some(Generated { rows, length: 50 }));
        }
    }
}
