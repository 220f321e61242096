//! Activations as integers of 16 bits: 32 numbers share a scale.

use super::lanes::Lanes;
use crate::fused::simd::vectorize;

/// Numbers that share a scale: a block of the quantized formats, or a part of one.
pub(super) const PART: usize = 32;
/// Tokens whose sums are computed together.
pub(super) const TOKENS: usize = 32;
/// The integer for the largest magnitude of a part: its high byte, after rounding, still fits in a signed byte.
const LARGEST: f32 = 32512.0;
/// Below this a part counts as zero: a scale for it would have no inverse.
const NOTHING: f32 = 1e-30;

/// The integers of a part as [`Lanes::planes`] lays them out: word i of both planes together holds the four from 4·i on.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Planes(pub(super) [[i32; PART / 4]; 2]);

/// The scale of a part, and sums of its integers.
#[derive(Clone, Copy, Default)]
pub(super) struct Measure {
    /// The value of the integer 1. NaN if a number of the part is not finite, so that the results show it.
    pub(super) scale: f32,
    /// The sum of all integers.
    pub(super) sum: i32,
    /// The sum of the first half of the integers.
    pub(super) first: i32,
}

/// The integers of a few tokens, with index part · `tokens` + token: the first part of each token, then the second, and
/// so on.
pub(super) struct Numbers {
    pub(super) tokens: usize,
    pub(super) planes: Vec<Planes>,
    pub(super) measures: Vec<Measure>,
}

impl Numbers {
    /// Rounds tokens of `depth` numbers each to integers, part by part of [`PART`] numbers. `x` holds whole tokens, one
    /// after another; `depth` is a multiple of [`PART`].
    pub(super) fn of<L: Lanes>(x: &[f32], depth: usize) -> Self {
        let tokens = x.len() / depth.max(1);
        let mut planes = vec![Planes::default(); x.len() / PART];
        let mut measures = vec![Measure::default(); x.len() / PART];
        vectorize!({
            for (token, x) in x.chunks_exact(depth.max(1)).enumerate() {
                for (part, x) in x.as_chunks::<PART>().0.iter().enumerate() {
                    let at = part * tokens + token;
                    let (integers, measure) = round_part(x);
                    (planes[at], measures[at]) = (L::planes(&integers), measure);
                }
            }
        });
        Self { tokens, planes, measures }
    }
}

/// Rounds the numbers of a part to multiples of 1/32512 of the largest magnitude and returns the integers with their
/// scale and sums. All are 0 if that magnitude is at most 1e-30. If a number is not finite, the scale is NaN and the
/// integers are 0.
#[inline(always)]
pub(super) fn round_part(x: &[f32; PART]) -> ([i32; PART], Measure) {
    /// 1.5 · 2²³: adding it leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // Without their signs, numbers are in the order of their bits, those that are not finite last.
    let largest = f32::from_bits(x.iter().map(|number| number.to_bits() & 0x7fff_ffff).fold(0, u32::max));
    if !largest.is_finite() {
        return ([0; PART], Measure { scale: f32::NAN, ..Measure::default() });
    }
    let (scale, inverse) = if largest > NOTHING { (largest / LARGEST, LARGEST / largest) } else { (0.0, 0.0) };
    let mut whole = [0i32; PART];
    for at in 0..PART {
        whole[at] = x[at].mul_add(inverse, ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
    }
    let (first, second) = whole.split_at(PART / 2);
    let (first, second): (i32, i32) = (first.iter().sum(), second.iter().sum());
    (whole, Measure { scale, sum: first + second, first })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_off_by_half_a_step_of_its_part_at_most() {
        let x = crate::random::Stream::new(3, "x").normals(PART * 50);
        for x in x.as_chunks::<PART>().0 {
            let (integers, measure) = round_part(x);
            let largest = x.iter().fold(0f32, |largest, x| largest.max(x.abs()));
            for (integer, wanted) in integers.iter().zip(x) {
                let found = *integer as f32 * measure.scale;
                assert!((found - wanted).abs() <= largest / LARGEST * 0.501, "{found} for {wanted}");
            }
            assert_eq!(integers.iter().sum::<i32>(), measure.sum);
            assert_eq!(integers[..PART / 2].iter().sum::<i32>(), measure.first);
        }
    }

    #[test]
    fn zeros_stay_and_what_is_not_finite_is_not_hidden() {
        let of = |x: f32| round_part(&[x; PART]).1.scale;
        assert_eq!(round_part(&[0.0; PART]).0, [0; PART]);
        assert_eq!(of(0.0), 0.0);
        assert!(of(f32::NAN).is_nan() && of(f32::INFINITY).is_nan());
        assert!(of(f32::MAX).is_finite() && of(1e-38) == 0.0);
    }
}
