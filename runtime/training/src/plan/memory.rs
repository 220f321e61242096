//! How much memory a run will need, from sizes alone.
//!
//! An estimate for people who choose a batch; nothing is refused by it.

use tunebox_model::Configuration;

/// Bytes of memory by what takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Estimate {
    /// The model's weights as they are kept.
    pub weights: u64,
    /// What is trained, its gradient, and the optimiser's two moments.
    pub training: u64,
    /// What a micro-batch keeps for its backward pass.
    pub activations: u64,
}

impl Estimate {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.weights + self.training + self.activations
    }

    /// The estimate for micro-batches of `tokens` tokens.
    #[must_use]
    pub(crate) fn of(sizes: &Configuration, weights: u64, trainable: u64, tokens: u64, recompute: bool) -> Self {
        let layers = sizes.layers as u64;
        let stream = sizes.hidden as u64;
        let block = block_numbers(sizes);
        let kept = if recompute { layers * stream + block } else { layers * block };
        // Beside the blocks: the last hidden rows, their gradient, and the rows on their way.
        let activations = 4 * tokens * (kept + 4 * stream);
        Self { weights, training: 16 * trainable, activations }
    }
}

/// Numbers that one block keeps for one token: its inputs, the heads, and the gated part.
fn block_numbers(sizes: &Configuration) -> u64 {
    let heads = (sizes.heads * sizes.head_dim) as u64;
    let shared = (sizes.kv_heads * sizes.head_dim) as u64;
    let twice = if sizes.query_key_norm { 2 } else { 1 };
    let sandwich = if sizes.sandwich_norms { 2 } else { 0 };
    (4 + sandwich) * sizes.hidden as u64 + (1 + twice) * heads + (1 + twice) * shared + 3 * sizes.intermediate as u64
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
