//! Activations as integers: 32 numbers share a scale, each is 16 bits in two planes of bytes.

use crate::fused::simd::vectorize;

/// Numbers that share a scale: a block of the quantized formats, or a part of one.
pub(super) const PART: usize = 32;
/// Tokens whose sums are computed together.
pub(super) const TOKENS: usize = 32;
/// The integer for the largest magnitude of a part: its high byte, after rounding, still fits in a signed byte.
const LARGEST: f32 = 32512.0;
/// Below this a part counts as zero: a scale for it would have no inverse.
const NOTHING: f32 = 1e-30;

/// The integers of a part, each `256 · high + low` of two signed bytes. A word of `high` or `low` has the bytes of four
/// consecutive integers.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Plane {
    pub(super) high: [i32; PART / 4],
    pub(super) low: [i32; PART / 4],
}

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
    pub(super) planes: Vec<Plane>,
    pub(super) measures: Vec<Measure>,
}

impl Numbers {
    /// Rounds tokens of `depth` numbers each to integers, part by part of [`PART`] numbers. `x` holds whole tokens, one
    /// after another; `depth` is a multiple of [`PART`].
    pub(super) fn of(x: &[f32], depth: usize) -> Self {
        let tokens = x.len() / depth.max(1);
        let mut planes = vec![Plane::default(); x.len() / PART];
        let mut measures = vec![Measure::default(); x.len() / PART];
        vectorize!({
            for (token, x) in x.chunks_exact(depth.max(1)).enumerate() {
                for (part, x) in x.as_chunks::<PART>().0.iter().enumerate() {
                    let at = part * tokens + token;
                    (planes[at], measures[at]) = round_part(x);
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
fn round_part(x: &[f32; PART]) -> (Plane, Measure) {
    /// 1.5 · 2²³: adding it leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // Without their signs, numbers are in the order of their bits, those that are not finite last.
    let largest = f32::from_bits(x.iter().map(|number| number.to_bits() & 0x7fff_ffff).fold(0, u32::max));
    if !largest.is_finite() {
        return (Plane::default(), Measure { scale: f32::NAN, ..Measure::default() });
    }
    let (scale, inverse) = if largest > NOTHING { (largest / LARGEST, LARGEST / largest) } else { (0.0, 0.0) };
    let (mut whole, mut high, mut low) = ([0i32; PART], [0u8; PART], [0u8; PART]);
    for at in 0..PART {
        whole[at] = x[at].mul_add(inverse, ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
        high[at] = ((whole[at] + 128) >> 8) as u8;
        low[at] = whole[at] as u8;
    }
    let (first, second) = whole.split_at(PART / 2);
    let (first, second): (i32, i32) = (first.iter().sum(), second.iter().sum());
    let plane = Plane { high: bytemuck::cast(high), low: bytemuck::cast(low) };
    (plane, Measure { scale, sum: first + second, first })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(plane: &Plane, measure: &Measure) -> Vec<f32> {
        let (high, low): ([i8; PART], [i8; PART]) = (bytemuck::cast(plane.high), bytemuck::cast(plane.low));
        (0..PART).map(|at| (256 * i32::from(high[at]) + i32::from(low[at])) as f32 * measure.scale).collect()
    }

    #[test]
    fn a_number_is_off_by_half_a_step_of_its_part_at_most() {
        let x = crate::random::Stream::new(3, "x").normals(PART * 50);
        let numbers = Numbers::of(&x, PART * 5);
        assert_eq!(numbers.tokens, 10);
        for token in 0..10 {
            for part in 0..5 {
                let (plane, measure) = (numbers.planes[part * 10 + token], numbers.measures[part * 10 + token]);
                let x = &x[token * PART * 5 + part * PART..][..PART];
                let largest = x.iter().fold(0f32, |largest, x| largest.max(x.abs()));
                for (found, wanted) in back(&plane, &measure).iter().zip(x) {
                    assert!((found - wanted).abs() <= largest / LARGEST * 0.501, "{found} for {wanted}");
                }
                let integers = back(&plane, &Measure { scale: 1.0, ..measure });
                assert_eq!(integers.iter().sum::<f32>(), measure.sum as f32);
                assert_eq!(integers[..PART / 2].iter().sum::<f32>(), measure.first as f32);
            }
        }
    }

    #[test]
    fn zeros_stay_and_what_is_not_finite_is_not_hidden() {
        let of = |x: f32| Numbers::of(&[x; PART], PART).measures[0].scale;
        assert_eq!(
            back(&Numbers::of(&[0.0; PART], PART).planes[0], &Measure { scale: 1.0, ..Default::default() }),
            [0.0; PART]
        );
        assert_eq!(of(0.0), 0.0);
        assert!(of(f32::NAN).is_nan() && of(f32::INFINITY).is_nan());
        assert!(of(f32::MAX).is_finite() && of(1e-38) == 0.0);
    }
}
