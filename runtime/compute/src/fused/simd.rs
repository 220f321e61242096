//! Arithmetic that the compiler turns into vector instructions.
//!
//! The binary is built for any processor of its kind; [`dispatch`] runs a closure compiled for what this one has
//! (AVX2, AVX-512, NEON). Sums use a fixed number of lanes, so a result depends on the kind of processor at most.
//! Everything called inside a closure must be `inline(always)`, or it stays scalar.

/// The number of partial sums of a sum or dot product, on any processor, so that results do not depend on vector
/// widths.
const LANES: usize = 32;

/// Evaluates an expression with the widest vectors of this processor: [`dispatch`] around a closure that is always
/// inlined, without which its body would stay scalar.
macro_rules! vectorize {
    ($work:expr) => {{
        let once = $crate::fused::simd::Once;
        $crate::fused::simd::dispatch(
            #[inline(always)]
            || {
                let _consumed = once;
                $work
            },
        )
    }};
}
pub(super) use vectorize;

/// What a closure consumes so that it can be called only once. The compiler calls any other closure through a function
/// that it need not inline.
pub(super) struct Once;

/// Runs a closure, or an operation written in vectors ([`pulp::WithSimd`]), with the widest vectors of this processor,
/// and returns its result.
#[inline]
pub(super) fn dispatch<W: pulp::WithSimd>(work: W) -> W::Output {
    pulp::Arch::new().dispatch(work)
}

/// Folds the pairs of `a` and `b`, which have equal length, with `step(sum, a, b)`, from 0. Pairs in whole groups of
/// [`LANES`] go to [`LANES`] sums side by side; these are added up, and the remaining pairs are folded into the total
/// one by one.
#[inline(always)]
pub(super) fn fold2<A: Copy, B: Copy>(a: &[A], b: &[B], step: impl Fn(f32, A, B) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let ((left, left_rest), (right, right_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in left.iter().zip(right) {
        for lane in 0..LANES {
            lanes[lane] = step(lanes[lane], a[lane], b[lane]);
        }
    }
    left_rest.iter().zip(right_rest).fold(sum_lanes(lanes), |sum, (a, b)| step(sum, *a, *b))
}

/// Adds up the lanes, halves onto halves. Not inlined: together with a loop, it makes the compiler use vectors of only
/// two lanes.
#[inline(never)]
fn sum_lanes(mut sums: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}

/// Computes the dot product Σ aᵢ·bᵢ of slices of equal length, in the order of [`fold2`].
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    fold2(a, b, |sum, a, b| a.mul_add(b, sum))
}

/// Returns the largest number and skips NaN; −∞ for a slice without numbers.
#[inline(always)]
pub(super) fn largest(numbers: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = if chunk[lane] > lanes[lane] { chunk[lane] } else { lanes[lane] };
        }
    }
    rest.iter().chain(&lanes).fold(f32::NEG_INFINITY, |best, number| if *number > best { *number } else { best })
}

/// Replaces each x by e^(x − shift), as [`exp`] computes it, and returns the sum of the results in f32, by [`LANES`]
/// partial sums.
#[inline(always)]
pub(super) fn exp_in_place(numbers: &mut [f32], shift: f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let (chunks, rest) = numbers.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            chunk[lane] = exp(chunk[lane] - shift);
            lanes[lane] += chunk[lane];
        }
    }
    let mut sum = sum_lanes(lanes);
    for number in rest {
        *number = exp(*number - shift);
        sum += *number;
    }
    sum
}

/// Computes eˣ within two units in the last place; 0 below −87.3, constant above 88.3, NaN stays NaN.
///
/// x = n·ln 2 + r with |r| ≤ ½ ln 2; eʳ by its series to r⁷, 2ⁿ by the exponent bits.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const LOW: f32 = -87.3;
    const HIGH: f32 = 88.3;
    /// 1.5 · 2²³: adding it leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts, so that n·ln 2 is subtracted without a rounding error that matters.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let bounded = if x < LOW { LOW } else { x };
    let bounded = if bounded > HIGH { HIGH } else { bounded };
    let shifted = bounded.mul_add(std::f32::consts::LOG2_E, ROUND);
    let power = shifted - ROUND;
    let rest = power.mul_add(-LN2_HIGH, bounded);
    let rest = power.mul_add(-LN2_LOW, rest);
    let mut series = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        series = rest.mul_add(series, coefficient);
    }
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < LOW { 0.0 } else { series * scale }
}

/// Computes the logistic function 1 / (1 + e⁻ˣ).
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Computes the hyperbolic tangent: as 2·sigmoid(2x) − 1, but by its series to x⁹ for |x| below 0.25, where that
/// difference would lose digits.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let square = x * x;
    let mut series = 62.0 / 2835.0;
    for coefficient in [-17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0, 1.0] {
        series = square.mul_add(series, coefficient);
    }
    let far = 2.0f32.mul_add(sigmoid(2.0 * x), -1.0);
    if x.abs() < 0.25 { x * series } else { far }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relative(value: f32, exact: f64) -> f64 {
        (f64::from(value) - exact).abs() / exact.abs().max(1e-30)
    }

    #[test]
    fn exp_and_tanh_agree_with_double_precision() {
        let points: Vec<f32> = (-8700..8800).map(|i| i as f32 * 0.01).collect();
        let (mut powers, mut tangents) = (points.clone(), points.clone());
        vectorize!(powers.iter_mut().for_each(|x| *x = exp(*x)));
        vectorize!(tangents.iter_mut().for_each(|x| *x = tanh(*x)));
        for ((x, power), tangent) in points.iter().zip(powers).zip(tangents) {
            assert!(relative(power, f64::from(*x).exp()) < 2.5e-7, "exp({x}) = {power}");
            assert!(relative(tangent, f64::from(*x).tanh()) < 4e-7 || *x == 0.0, "tanh({x}) = {tangent}");
        }
    }

    #[test]
    fn exp_keeps_what_is_not_a_number_and_vanishes_at_minus_infinity() {
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    }

    #[test]
    fn a_dot_product_of_odd_length_counts_every_number_once() {
        let ones = vec![1f32; 75];
        let numbers: Vec<f32> = (0..75).map(|i| i as f32).collect();
        assert_eq!(vectorize!(dot(&ones, &numbers)), 2775.0);
        assert_eq!(vectorize!(largest(&numbers)), 74.0);
    }
}
