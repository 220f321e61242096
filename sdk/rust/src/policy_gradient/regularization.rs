//! Staying near the reference policy: the k3 estimate of the divergence, token by token.

use crate::model::{Taps, reference, score};
use crate::{Result, Rows, Settings, Tensor};

/// Settings of the penalty on the divergence from the reference policy.
#[derive(Settings, Clone)]
pub struct Divergence {
    /// What a nat of divergence from the reference policy costs; 0 leaves the reference out altogether.
    #[setting(default = 0.0, low = 0.0, high = 1000.0)]
    pub beta: f32,

    /// Weigh the divergence with the ratio, so that its gradient is that of the divergence itself (the default of the
    /// reference since 1.16).
    #[setting(default = true)]
    pub kl_bias_correction: bool,
}

impl Divergence {
    /// Log-probabilities of rows under the reference, `[rows, width]`; `None`, without a pass, if `beta` is 0.
    #[track_caller]
    pub fn reference(&self, rows: &Rows, temperature: f32) -> Result<Option<Tensor>> {
        if self.beta == 0.0 {
            return Ok(None);
        }
        Ok(Some(score(&reference()?, rows, Taps::empty(), temperature)?.logprob()))
    }

    /// k3 = e^{ℓ_ref − ℓ} − (ℓ_ref − ℓ) − 1 per token, times the ratio with `kl-bias-correction`: `[rows, width]`.
    #[track_caller]
    pub fn of(&self, logprob: &Tensor, reference: &Tensor, ratio: &Tensor) -> Tensor {
        let behind = reference - logprob;
        let divergence = behind.exp() - behind - 1.0;
        if self.kl_bias_correction { divergence * ratio } else { divergence }
    }
}
