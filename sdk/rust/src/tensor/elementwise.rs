//! Element by element, same shape.

use super::{Dtype, Tensor};

/// Operations that pass their arguments on.
macro_rules! operations {
    ($($(#[$doc:meta])+ $name:ident($($argument:ident: $kind:ty),*);)+) => {
        impl Tensor {
            $(
                $(#[$doc])+
                #[track_caller]
                pub fn $name(&self $(, $argument: $kind)*) -> Tensor {
                    Tensor::from_answer(self.handle().$name($($argument),*))
                }
            )+
        }
    };
}
pub(super) use operations;

operations! {
    /// −x.
    negate();
    /// |x|; the gradient at 0 is 0.
    abs();
    /// x².
    square();
    /// √x; NaN below 0.
    sqrt();
    /// eˣ.
    exp();
    /// The natural logarithm; NaN below 0.
    log();
    /// log(1 + x), exact near 0.
    log_one_plus();
    /// eˣ − 1, exact near 0.
    exp_minus_one();
    /// 1 / x.
    reciprocal();
    /// 1 / (1 + e⁻ˣ).
    sigmoid();
    /// log σ(x), exact for large negative numbers.
    log_sigmoid();
    /// log(1 + eˣ), exact at both ends.
    softplus();
    /// max(x, 0); the gradient at 0 is 0.
    relu();
    /// The hyperbolic tangent.
    tanh();
    /// The sine, in radians.
    sin();
    /// The cosine, in radians.
    cos();
    /// x + `value`. The scalar is finite.
    add_scalar(value: f64);
    /// x · `value`. The scalar is finite.
    scale(value: f64);
    /// x to the power `exponent` (finite); NaN for a negative base with a fractional exponent.
    power(exponent: f64);
    /// Limits x to `low` … `high`; the gradient is 0 outside.
    clamp(low: Option<f64>, high: Option<f64>);
    /// Puts `value` in the place of NaN and of both infinities; the gradient there is 0.
    replace_non_finite(value: f64);
    /// 1 where x is neither NaN nor infinite, as `u8`.
    is_finite();
    /// 1 where a `u8` is 0, and 0 elsewhere.
    logical_not();
    /// The same numbers, cut off from the gradient.
    detach();
    /// The numbers as another element type.
    cast(dtype: Dtype);
}
