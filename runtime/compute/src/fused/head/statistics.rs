//! The running sums over the vocabulary from which every tap of a row follows.

use crate::fused::simd::{exp, exp_in_place, fold2, largest};
use crate::fused::taps::{Tap, TapSet};

/// Sums over some words, with e = exp(z − largest). Only those that the taps need are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statistics {
    /// The largest logit z.
    pub(super) largest: f32,
    /// The target's logit, if the target is among the words.
    pub(super) target: Option<f32>,
    /// Σ e.
    pub(super) sum: f64,
    /// Σ e².
    pub(super) square: f64,
    /// Σ e·(z − largest).
    pub(super) weighted: f64,
    /// Σ z.
    pub(super) plain: f64,
}

impl Default for Statistics {
    /// The sums over no words.
    fn default() -> Self {
        Self { largest: f32::NEG_INFINITY, target: None, sum: 0.0, square: 0.0, weighted: 0.0, plain: 0.0 }
    }
}

impl Statistics {
    /// Computes the sums that `taps` need of one row of logits, `largest` and `sum` always. `target` is `None`; sums
    /// that no tap needs are 0. Overwrites the logits by e = exp(z − largest).
    #[inline(always)]
    pub(super) fn of(logits: &mut [f32], taps: TapSet) -> Self {
        let largest = largest(logits);
        let mut sums = Self { largest, ..Self::default() };
        if taps.contains(Tap::MeanLogit) || taps.contains(Tap::MeanLogprob) {
            sums.plain = f64::from(fold2(logits, logits, |sum, z, _| sum + z));
        }
        if taps.contains(Tap::Entropy) {
            let step = |sum: f32, z: f32, _: f32| exp(z - largest).mul_add(z - largest, sum);
            sums.weighted = f64::from(fold2(logits, logits, step));
        }
        sums.sum = f64::from(exp_in_place(logits, largest));
        if taps.contains(Tap::LogSumSquare) {
            sums.square = f64::from(fold2(logits, logits, |sum, e, same| e.mul_add(same, sum)));
        }
        sums
    }

    /// Returns ln Σ exp of the logits.
    pub(super) fn logsumexp(&self) -> f64 {
        f64::from(self.largest) + self.sum.ln()
    }

    /// Returns the value of a tap, given that the sums are over a whole vocabulary of `vocabulary` words. NaN if the
    /// tap needs a target and there is none, but 0 for [`Tap::TopOne`]; NaN for the divergence, which needs other sums.
    pub(super) fn tap(&self, tap: Tap, vocabulary: usize) -> f64 {
        let target = self.target.unwrap_or(f32::NAN);
        match tap {
            Tap::Logprob => f64::from(target) - self.logsumexp(),
            Tap::Entropy => self.sum.ln() - self.weighted / self.sum,
            Tap::LogSumSquare => self.square.ln() - 2.0 * self.sum.ln(),
            Tap::MeanLogit => self.plain / vocabulary as f64,
            Tap::MeanLogprob => self.plain / vocabulary as f64 - self.logsumexp(),
            Tap::TopOne => f64::from(u8::from(target >= self.largest)),
            Tap::Divergence => f64::NAN,
        }
    }

    /// Combines the sums over two disjoint sets of words into those over both: rescales the sums of the set whose
    /// largest logit is smaller to the largest logit of the other set, except Σ z, and adds. The target is that of the
    /// set that has one.
    pub(super) fn merge(self, other: Self) -> Self {
        let (high, low) = if self.largest >= other.largest { (self, other) } else { (other, self) };
        let gap = f64::from(low.largest) - f64::from(high.largest);
        let shrink = gap.exp();
        // Sums over no words have a largest logit of −∞, for which 0 · ∞ would be NaN.
        let moved = if low.sum == 0.0 { 0.0 } else { shrink * (low.weighted + gap * low.sum) };
        Self {
            largest: high.largest,
            target: self.target.or(other.target),
            sum: shrink.mul_add(low.sum, high.sum),
            square: (shrink * shrink).mul_add(low.square, high.square),
            weighted: high.weighted + moved,
            plain: self.plain + other.plain,
        }
    }
}
