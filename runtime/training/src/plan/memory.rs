//! How much memory a run will need: from sizes, and from what opening the model has taken.
//!
//! An estimate for people who choose a batch: `check --fit` judges by it, and no run is refused for it.

use tunebox_compute::precision::{Base, Precision, Purpose};
use tunebox_model::decoder::Recompute;
use tunebox_model::{Policy, Weights};

use super::tokens::Tokens;
use super::{Plan, base};

/// Bytes of memory by what takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Estimate {
    /// The model's weights as they are kept.
    pub weights: u64,
    /// What is trained, its gradient, and the optimiser's two moments.
    pub training: u64,
    /// What rows keep for their backward pass, or the keys and values of rows that are written, whichever is more.
    pub activations: u64,
    /// What one block makes on its way back.
    pub scratch: u64,
    /// What the head makes of rows and vocabulary.
    pub head: u64,
    /// The program itself, the tokenizer, and what reading them left behind.
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
        let pass = policy.pass_memory(tokens.slice, tokens.together, recompute);
        Self {
            weights: policy.model().weights.bytes(),
            training: 2 * Precision::bytes(Purpose::Trained, trainable)
                + 2 * Precision::bytes(Purpose::Moment, trainable),
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

/// What this process holds beside a model's weights, just after it was opened; where that cannot be told, what a small
/// tokenizer leaves.
pub(crate) fn held_beside(weights: &Weights) -> u64 {
    const USUAL: u64 = 160 << 20;
    let held = kibibytes("/proc/self/status", "VmRSS:");
    held.map_or(USUAL, |held| held.saturating_sub(weights.bytes_in_memory()))
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
