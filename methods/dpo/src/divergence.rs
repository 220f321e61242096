//! The divergence from the reference that regularizes the policy: a function of the log-ratio (f-DPO,
//! arXiv:2309.16240).

use tunebox::prelude::*;

/// The divergence from the reference.
#[derive(Choice, Clone, Copy, PartialEq)]
pub(crate) enum Divergence {
    ReverseKl,
    ForwardKl,
    Js,
    Alpha,
}

impl Divergence {
    /// f′(π / π_ref), up to a constant, of the log-ratios log(π / π_ref): `[rows]`. `alpha` is for
    /// [`Alpha`](Self::Alpha).
    pub(crate) fn derivative(self, ratio: &Tensor, alpha: f32) -> Tensor {
        let power = f64::from(alpha) - 1.0;
        match self {
            Self::ForwardKl => 1.0 - (-ratio).exp(),
            Self::Js => ratio.log_sigmoid() + std::f32::consts::LN_2,
            // The exponent stops at 80, as e⁸⁰ still fits into `f32`.
            Self::Alpha if power.abs() >= 1e-6 => {
                (ratio.scale(power).clamp(None, Some(80.0)).exp() - 1.0).scale(1.0 / power)
            }
            Self::ReverseKl | Self::Alpha => ratio * 1.0,
        }
    }
}
