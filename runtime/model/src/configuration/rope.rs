//! Rotary position embeddings (RoPE): the frequencies by which positions rotate queries and keys, and how they are
//! scaled for long contexts.
//! Frequencies are computed in `f64`. Tables of cosines and sines, and the rotation, are left to
//! `tunebox_compute::fused`.

use std::f64::consts::TAU;

/// One set of rotation frequencies; a model has one or, with local and global layers, two.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeSetting {
    /// The base θ of the frequencies θ^(−2i/d), with d rotated features.
    pub theta: f64,
    /// How the frequencies are scaled for long contexts.
    pub scaling: RopeScaling,
}

/// How rotation frequencies are scaled for contexts longer than the original context, the one that was first trained
/// on. Serializes as the `rope_scaling` of a `config.json`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// No scaling.
    #[serde(rename = "default")]
    None,
    /// Divides all frequencies by the same factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1: divides low frequencies by a factor, keeps high ones, and blends linearly in between.
    Llama3 {
        /// The divisor of low frequencies.
        factor: f64,
        /// Frequencies with a wavelength above `original / low_freq_factor` tokens are divided by the whole factor.
        low_freq_factor: f64,
        /// Frequencies with a wavelength below `original / high_freq_factor` tokens are kept.
        high_freq_factor: f64,
        /// The context that was first trained on, in tokens.
        #[serde(rename = "original_max_position_embeddings")]
        original: usize,
    },
    /// YaRN (Peng et al. 2023): a linear ramp from kept high frequencies to divided low ones, and a factor on cosines
    /// and sines.
    Yarn {
        /// The divisor of low frequencies.
        factor: f64,
        /// The context that was first trained on, in tokens.
        #[serde(rename = "original_max_position_embeddings")]
        original: usize,
        /// Frequencies with more rotations than this within the original context are kept.
        beta_fast: f64,
        /// Frequencies with fewer rotations than this within the original context are divided by the whole factor.
        beta_slow: f64,
        /// The factor on cosines and sines.
        attention_factor: f64,
        /// Whether the ends of the ramp, indices of frequencies, are rounded outwards to integers.
        truncate: bool,
    },
    /// LongRoPE (Ding et al. 2024): each frequency has its own divisor, from one list for sequences up to the original
    /// context and from another for longer ones. One factor on cosines and sines applies to both.
    #[serde(rename = "longrope")]
    Long {
        /// One divisor for each frequency, for sequences up to the original context.
        short_factor: Vec<f64>,
        /// One divisor for each frequency, for sequences longer than the original context.
        long_factor: Vec<f64>,
        /// The context that was first trained on, in tokens.
        #[serde(rename = "original_max_position_embeddings")]
        original: usize,
        /// The factor on cosines and sines.
        attention_factor: f64,
    },
    /// Each frequency is divided by its own number, as GGUF stores Llama 3.1's scaling.
    Divided {
        /// One divisor for each frequency.
        divisors: Vec<f64>,
    },
}

impl RopeSetting {
    /// A rotation with base `theta` and no scaling.
    #[must_use]
    pub fn plain(theta: f64) -> Self {
        Self { theta, scaling: RopeScaling::None }
    }

    /// The `width / 2` rotation frequencies of `width` rotated features, scaled as `scaling` says, in radians per
    /// position; for LongRoPE those of sequences up to the original context.
    #[must_use]
    pub fn frequencies(&self, width: usize) -> Vec<f64> {
        let plain = self.plain_frequencies(width);
        match &self.scaling {
            RopeScaling::None => plain.collect(),
            RopeScaling::Linear { factor } => plain.map(|frequency| frequency / factor).collect(),
            RopeScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original } => {
                plain.map(|frequency| llama3(frequency, *factor, *low, *high, *original as f64)).collect()
            }
            RopeScaling::Yarn { factor, original, beta_fast, beta_slow, truncate, .. } => {
                let ramp = self.yarn_ramp(width, *original, [*beta_fast, *beta_slow], *truncate);
                let stretch = |(frequency, at)| frequency / factor * ramp(at) + frequency * (1.0 - ramp(at));
                plain.zip(0..).map(stretch).collect()
            }
            RopeScaling::Divided { divisors } | RopeScaling::Long { short_factor: divisors, .. } => {
                divide(plain, divisors)
            }
        }
    }

    /// The frequencies, in radians per position, of `width` rotated features in sequences longer than LongRoPE's
    /// original context; `None` for all other kinds.
    #[must_use]
    pub fn long_frequencies(&self, width: usize) -> Option<Vec<f64>> {
        match &self.scaling {
            RopeScaling::Long { long_factor, .. } => Some(divide(self.plain_frequencies(width), long_factor)),
            _ => None,
        }
    }

    /// The longest sequence, in tokens, that uses LongRoPE's short factors; `None` for other kinds.
    pub(super) fn short_context(&self) -> Option<usize> {
        match self.scaling {
            RopeScaling::Long { original, .. } => Some(original),
            _ => None,
        }
    }

    /// The frequencies without scaling: θ^(−2i/width) for i from 0 to width/2 − 1.
    fn plain_frequencies(&self, width: usize) -> impl Iterator<Item = f64> {
        let theta = self.theta;
        (0..width / 2).map(move |at| theta.powf(-((2 * at) as f64) / width as f64))
    }

    /// The lengths of the factor lists: one for [`RopeScaling::Divided`], two for LongRoPE (short, then long), none for
    /// other kinds.
    pub(super) fn listed(&self) -> Vec<usize> {
        match &self.scaling {
            RopeScaling::Divided { divisors } => vec![divisors.len()],
            RopeScaling::Long { short_factor, long_factor, .. } => vec![short_factor.len(), long_factor.len()],
            _ => Vec::new(),
        }
    }

    /// The factor on cosines and sines; 1 for all kinds but YaRN and LongRoPE.
    #[must_use]
    pub fn attention_factor(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn { attention_factor, .. } | RopeScaling::Long { attention_factor, .. } => attention_factor,
            _ => 1.0,
        }
    }

    /// Returns YaRN's ramp: a function from the index of a frequency to the share in which it is divided by the factor:
    /// 0 for high frequencies, 1 for low ones, linear over the index between them. `ends` are the numbers of rotations
    /// within the original context, `original` tokens, at which the ramp begins and ends. `truncate` rounds the indices
    /// of both ends outwards. The ramp begins at index 0 at the earliest, and ends at `width − 1` at the latest, with
    /// `width` rotated features.
    fn yarn_ramp(&self, width: usize, original: usize, ends: [f64; 2], truncate: bool) -> impl Fn(usize) -> f64 {
        let index_of = |turns: f64| width as f64 * (original as f64 / (turns * TAU)).ln() / (2.0 * self.theta.ln());
        let [mut first, mut last] = ends.map(index_of);
        if truncate {
            (first, last) = (first.floor(), last.ceil());
        }
        (first, last) = (first.max(0.0), last.min(width as f64 - 1.0));
        // A ramp needs a width.
        let span = if first == last { 0.001 } else { last - first };
        move |at| ((at as f64 - first) / span).clamp(0.0, 1.0)
    }
}

/// YaRN's default factor on cosines and sines: 0.1·`weight`·ln(`factor`) + 1; 1 for factors up to 1.
#[must_use]
pub fn yarn_attention_factor(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}

/// LongRoPE's default factor on cosines and sines: √(1 + ln(`factor`) / ln(`original`)), with the original context in
/// tokens; 1 for factors up to 1.
#[must_use]
pub fn longrope_attention_factor(factor: f64, original: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original.ln()).sqrt() }
}

/// Divides each frequency by the divisor of the same index. The result is as long as the shorter of the two.
fn divide(plain: impl Iterator<Item = f64>, divisors: &[f64]) -> Vec<f64> {
    plain.zip(divisors).map(|(frequency, divisor)| frequency / divisor).collect()
}

/// Llama 3.1's scaling of one frequency: kept if its wavelength in tokens is below `original / high`, divided by
/// `factor` above `original / low`, between them blended linearly over `original / wavelength`. `low` and `high` are
/// `low_freq_factor` and `high_freq_factor`; `original` is the original context in tokens.
fn llama3(frequency: f64, factor: f64, low: f64, high: f64, original: f64) -> f64 {
    let wave = TAU / frequency;
    if wave < original / high {
        return frequency;
    }
    if wave > original / low {
        return frequency / factor;
    }
    let share = (original / wave - low) / (high - low);
    (1.0 - share) * frequency / factor + share * frequency
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yarn() -> RopeSetting {
        let attention_factor = yarn_attention_factor(4.0, 1.0);
        let (original, beta_fast, beta_slow) = (32_768, 32.0, 1.0);
        let scaling =
            RopeScaling::Yarn { factor: 4.0, original, beta_fast, beta_slow, attention_factor, truncate: true };
        RopeSetting { theta: 1e6, scaling }
    }

    #[test]
    fn llama3_scaling_leaves_the_fast_and_divides_the_slow_frequencies() {
        let scaling = RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original: 8192 };
        let plain = RopeSetting::plain(500_000.0).frequencies(128);
        let scaled = RopeSetting { theta: 500_000.0, scaling }.frequencies(128);
        assert_eq!(scaled[0], plain[0]);
        assert_eq!(scaled[63], plain[63] / 8.0);
        assert!(scaled.iter().zip(&plain).any(|(scaled, plain)| *scaled < *plain && *scaled > plain / 8.0));
    }

    #[test]
    fn yarn_keeps_the_first_frequency_and_divides_the_last() {
        let setting = yarn();
        let frequencies = setting.frequencies(128);
        assert_eq!(frequencies[0], 1.0);
        let last = 1e6f64.powf(-126.0 / 128.0) / 4.0;
        assert!((frequencies[63] / last - 1.0).abs() < 1e-12);
        assert!((setting.attention_factor() - 1.138_629_436_111_989).abs() < 1e-12);
    }

    #[test]
    fn yarn_gives_the_frequencies_of_transformers_for_qwen_2_5() {
        let found = yarn().frequencies(128);
        // transformers 5.23 in f32.
        let wanted = [
            (22, 0.008_659_643_121_063_71),
            (24, 0.005_375_321_488_827_467),
            (30, 0.001_064_360_956_661_403_2),
            (36, 0.000_179_841_154_022_142_3),
            (40, 4.445_698_505_151_085_6e-5),
        ];
        for (at, wanted) in wanted {
            assert!((found[at] / wanted - 1.0).abs() < 1e-6, "{at}: {} and {wanted}", found[at]);
        }
    }

    #[test]
    fn longrope_has_factors_for_short_and_for_long_sequences_and_one_for_both() {
        let attention_factor = longrope_attention_factor(32.0, 4096.0);
        let scaling = RopeScaling::Long {
            short_factor: vec![1.0, 2.0],
            long_factor: vec![1.5, 8.0],
            original: 4096,
            attention_factor,
        };
        let setting = RopeSetting { theta: 100.0, scaling };
        assert_eq!(setting.frequencies(4), [1.0, 0.05]);
        assert_eq!(setting.long_frequencies(4).unwrap(), [1.0 / 1.5, 0.0125]);
        assert!((setting.attention_factor() - (17f64 / 12.0).sqrt()).abs() < 1e-12);
        assert_eq!(longrope_attention_factor(1.0, 4096.0), 1.0);
    }

    #[test]
    fn divisors_apply_one_by_one() {
        let setting = RopeSetting { theta: 100.0, scaling: RopeScaling::Divided { divisors: vec![1.0, 2.0] } };
        let found = setting.frequencies(4);
        assert_eq!(found[0], 1.0);
        assert!((found[1] - 0.05).abs() < 1e-12);
    }
}
