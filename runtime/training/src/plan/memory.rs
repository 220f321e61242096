//! How much memory a run will need: from sizes, and from what opening the model has taken. It is that of the device that
//! computes: on an accelerator what the process itself holds is not part of it.
//!
//! An estimate for people who choose a batch: `check --fit` judges by it, and no run is refused for it.

use tunebox_compute::device;
use tunebox_compute::precision::{Base, Purpose};
use tunebox_compute::{DType, Device, Weight};
use tunebox_model::decoder::Recompute;
use tunebox_model::{Policy, Weights};

use super::tokens::Tokens;
use super::{Plan, base};
use crate::configuration::RunSettings;

/// Bytes of memory by what takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Estimate {
    /// The model's weights as they are kept.
    pub weights: u64,
    /// What is trained, its gradient, and the optimiser's two moments; a copy for products where they take another type.
    pub training: u64,
    /// What rows keep for their backward pass, or the keys and values of rows that are written, whichever is more.
    pub activations: u64,
    /// What one block makes on its way back.
    pub scratch: u64,
    /// What the head makes of rows and vocabulary.
    pub head: u64,
    /// The program itself, the tokenizer, and what reading them left behind. On an accelerator the largest matrix that is
    /// widened for a product: what its driver and libraries take is gone from what is free once it is opened.
    pub runtime: u64,
}

impl Estimate {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.weights + self.training + self.activations + self.scratch + self.head + self.runtime
    }

    /// The estimate for a policy that learns from some tokens in a process that holds `runtime` beside the weights.
    #[must_use]
    pub(crate) fn of(policy: &Policy, tokens: Tokens, recompute: Recompute, runtime: u64) -> Self {
        let trainable = policy.adapter().trainable() as u64;
        let caches = tokens.written.map_or(0, |written| policy.cache_memory(written.rows, written.length));
        let (pass, precision) = (policy.pass_memory(tokens.slice, tokens.together, recompute), policy.precision());
        // Products take what trains in the type of activations, of which a copy is kept.
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

impl Plan {
    /// Settings that would make the run smaller, each with the bytes that it would need then.
    #[must_use]
    pub fn smaller(&self) -> Vec<(&'static str, u64)> {
        let (run, whole) = (&self.run, self.run.summary.memory);
        let train = &run.settings.file.train;
        let of_batch = |batch| Tokens::of(&run.settings, &run.data, &run.method, batch);
        let (now, one) = (of_batch(train.batch), of_batch(1));
        let need = |tokens, recompute| Estimate::of(&self.policy, tokens, recompute, whole.runtime).total();
        let kept = if train.recompute { Recompute::Blocks } else { Recompute::None };
        let quantised = self.weights_in_nf4().map(|weights| {
            ("model.precision=nf4", whole.total().saturating_sub(whole.weights).saturating_add(weights))
        });
        let all = [
            ("train.batch=1", need(one, kept)),
            ("train.recompute=true", need(now, Recompute::Blocks)),
            ("train.batch=1 --set train.recompute=true", need(one, Recompute::Blocks)),
        ];
        all.into_iter().chain(quantised).filter(|(_, bytes)| *bytes < whole.total()).collect()
    }

    /// Bytes of the weights if the base were kept in NF4; none where this run cannot have it so.
    fn weights_in_nf4(&self) -> Option<u64> {
        if base::problem(&self.run.settings, &self.run.method).is_some() {
            return None;
        }
        self.policy.model().weights.bytes_in(Base::Nf4).ok()
    }
}

/// What is held beside a model's weights, just after it was opened: by this process, or where that cannot be told, what a
/// small tokenizer leaves; on an accelerator by the products of quantized weights.
pub(crate) fn held_beside(weights: &Weights) -> u64 {
    const USUAL: u64 = 160 << 20;
    if !weights.device().is_cpu() {
        return widest(weights);
    }
    let held = kibibytes("/proc/self/status", "VmRSS:");
    held.map_or(USUAL, |held| held.saturating_sub(weights.bytes_in_memory()))
}

/// Bytes of the largest matrix of a block that is widened for each of its products, in the type of activations.
fn widest(weights: &Weights) -> u64 {
    let matrices = weights.names().filter(|name| name.starts_with("model.layers."));
    let packed = matrices.filter(|name| matches!(weights.weight(name), Ok(Weight::Packed(_))));
    let numbers = packed.filter_map(|name| weights.shape(name)).map(|shape| shape.iter().product::<usize>() as u64);
    weights.precision().bytes(Purpose::Activation, numbers.max().unwrap_or(0))
}

/// Bytes of memory that the device of a run can still give; `None` where that cannot be told, or there is no such device.
#[must_use]
pub fn free(settings: &RunSettings) -> Option<u64> {
    free_on(&device::parse(&settings.file.train.device).ok()?)
}

/// The same of a device that is there.
pub(super) fn free_on(device: &Device) -> Option<u64> {
    match device::info(device).ok()? {
        Some(about) => Some(about.free),
        None => available(),
    }
}

/// The most memory that was held for what a device computes, in bytes: by this process, on an accelerator by its tensors;
/// `None` where that cannot be told.
#[must_use]
pub fn peak_on(device: &Device) -> Option<u64> {
    match device::info(device).ok()? {
        Some(about) => Some(about.peak),
        None => peak(),
    }
}

/// Bytes of memory that this machine can still give; `None` where that cannot be told.
#[must_use]
pub fn available() -> Option<u64> {
    kibibytes("/proc/meminfo", "MemAvailable:")
}

/// The most memory that this process has held, in bytes; `None` where that cannot be told.
#[must_use]
pub fn peak() -> Option<u64> {
    kibibytes("/proc/self/status", "VmHWM:")
}

fn kibibytes(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_is_at_least_what_was_just_held() {
        let block = vec![1_u8; 64 << 20];
        assert!(peak().unwrap() >= block.iter().map(|byte| u64::from(*byte)).sum());
    }
}
