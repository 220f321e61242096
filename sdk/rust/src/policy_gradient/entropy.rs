//! Entropy: which tokens to learn from by it, and a reward for keeping it.

use super::Kept;
use crate::run::metric;
use crate::tensor::{All, Dtype, where_};
use crate::{Error, Result, Settings, Tensor};

/// Settings of the entropy bonus.
#[derive(Settings, Clone)]
pub struct EntropyBonus {
    /// What a nat of mean entropy earns; with `entropy-target` above 0 the value at the start.
    #[setting(default = 0.0, low = -10.0, high = 10.0)]
    pub entropy_coefficient: f32,

    /// The mean entropy that the coefficient is steered to: it rises by `entropy-step` below it, falls above it, and
    /// acts only below it; 0 for a fixed coefficient.
    #[setting(default = 0.0, low = 0.0, high = 100.0)]
    pub entropy_target: f32,

    /// By how much the coefficient moves in an update, within 0 to 1.
    #[setting(default = 0.005, above = 0.0, high = 1.0)]
    pub entropy_step: f32,
}

/// The bonus at work: its coefficient as it is now, and the mean entropy that it saw last.
pub struct Steering {
    bonus: EntropyBonus,
    last: Option<f32>,
}

impl Steering {
    /// Creates the state of a bonus before the first update.
    pub fn new(bonus: EntropyBonus) -> Self {
        Self { bonus, last: None }
    }

    /// A bonus that is always 0.
    pub fn none() -> Self {
        Self::new(EntropyBonus { entropy_coefficient: 0.0, entropy_target: 0.0, entropy_step: 0.0 })
    }

    /// Subtracts coefficient · masked mean entropy from the loss, then moves the coefficient towards a target, if one
    /// is set. Reports `policy-loss` and `entropy-coefficient`. Without a bonus returns the loss and reports nothing.
    #[track_caller]
    pub fn with_bonus(&mut self, loss: Tensor, entropy: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let EntropyBonus { entropy_coefficient: coefficient, entropy_target: target, entropy_step: step } = self.bonus;
        if coefficient == 0.0 && target == 0.0 {
            return Ok(loss);
        }
        metric("policy-loss", loss.detach());
        let mean = entropy.masked_mean(mask, All);
        let acts = target == 0.0 || self.last.is_some_and(|last| last <= target);
        let bonus = &mean * if acts { coefficient } else { 0.0 };
        let seen = mean.detach().item()?;
        if target > 0.0 {
            let moved = coefficient + if seen <= target { step } else { -step };
            self.bonus.entropy_coefficient = moved.clamp(0.0, 1.0);
        }
        self.last = Some(seen);
        metric("entropy-coefficient", self.bonus.entropy_coefficient);
        Ok(loss - bonus)
    }

    /// The coefficient and the last mean entropy (NaN for none) as 8 bytes, for a checkpoint.
    pub fn save(&self) -> Vec<u8> {
        let numbers = [self.bonus.entropy_coefficient, self.last.unwrap_or(f32::NAN)];
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Restores what [`save`](Self::save) returned. Errors: not 8 bytes.
    pub fn load(&mut self, state: &[u8]) -> Result<()> {
        let number = |at: usize| state.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(f32::from_le_bytes);
        let (Some(coefficient), Some(last), 8) = (number(0), number(4), state.len()) else {
            return Err(Error::new(format!("the state has {} bytes, 8 are expected", state.len())));
        };
        self.bonus.entropy_coefficient = coefficient;
        self.last = (!last.is_nan()).then_some(last);
        Ok(())
    }
}

/// The mask of the fraction `share` of the counted tokens with the highest entropy: 1 or 0, `[rows, width]`.
#[track_caller]
pub fn high_entropy(entropy: &Tensor, kept: &Kept, share: f32) -> Tensor {
    let (entropy, mask) = (entropy.detach(), &kept.mask);
    if share >= 1.0 || kept.tokens == 0 {
        return mask.detach();
    }
    let elements = entropy.shape().iter().product();
    let counted = where_(&mask.greater(0.0), &entropy, -1.0); // entropies are never negative
    let sorted = counted.reshape(&[elements]).sort(0, true).slice(0, 0, kept.tokens);
    let least = sorted.quantile(1.0 - f64::from(share));
    let least = least.reshape(&[]);
    counted.greater_equal(least).cast(Dtype::F32) * mask
}
