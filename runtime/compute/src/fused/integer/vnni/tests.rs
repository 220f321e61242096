//! Every format against the same arithmetic number by number, and against the numbers themselves.

use candle_core::{Device, Tensor};
use half::f16;

use super::instruction::Vnni;
use super::numbers::{Numbers, PART};
use crate::fused::few_tokens::linear_few_tokens;
use crate::fused::unpack::tests::blocks;
use crate::random::Stream;
use crate::weight::{Format, Packed, Weight};

const FORMATS: [Format; 8] =
    [Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q8_0, Format::Q4_K, Format::Q5_K, Format::Q6_K];

/// Panics with "absent" if this processor lacks the instructions.
fn require_instructions() {
    assert!(Vnni::try_new().is_some(), "absent `avx512-vnni`: this processor has none");
}

/// Returns a quantized weight of random bytes whose scales are ordinary numbers.
fn weight(format: Format, rows: usize, columns: usize) -> Weight {
    let bytes = blocks(format, rows * columns / format.block());
    Weight::Packed(Packed::new(bytes.into(), format, rows, columns).unwrap().into())
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// Returns for each number of the tokens the value to which the product rounds it, and the largest error of that.
fn seen(x: &[f32], depth: usize) -> Vec<(f64, f64)> {
    let found = Numbers::of(x, depth);
    let mut seen = Vec::new();
    for token in 0..found.tokens {
        for part in 0..depth / PART {
            let at = part * found.tokens + token;
            let (plane, step) = (found.planes[at], f64::from(found.measures[at].scale));
            let (high, low): ([i8; PART], [i8; PART]) = (bytemuck::cast(plane.high), bytemuck::cast(plane.low));
            let integer = |at: usize| f64::from(256 * i32::from(high[at]) + i32::from(low[at]));
            seen.extend((0..PART).map(|at| (integer(at) * step, 0.501 * step)));
        }
    }
    seen
}

/// Multiplies tokens of `columns` numbers with a weight. The products of a token are adjacent.
fn product(x: &[f32], weight: &Weight, columns: usize) -> Vec<f32> {
    let x = Tensor::from_slice(x, (x.len() / columns, columns), &Device::Cpu).unwrap();
    numbers(&linear_few_tokens(&x, weight, None).unwrap())
}

/// Asserts that each dot product equals that of the rounded tokens, and differs from that of the given tokens by no
/// more than rounding allows. Returns the mean over all dot products of the squared error divided by the sum of squared
/// terms.
fn check(format: Format, (rows, columns): (usize, usize), x: &[f32]) -> f64 {
    let weight = weight(format, rows, columns);
    let (weights, seen) = (numbers(&weight.to_tensor().unwrap()), seen(x, columns));
    let found = product(x, &weight, columns);
    let mut squares = 0.0;
    for (at, found) in found.iter().enumerate() {
        let (token, row) = (at / rows, at % rows);
        let (mut exact, mut size, mut given, mut square, mut most) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for column in 0..columns {
            let (weight, at) = (f64::from(weights[row * columns + column]), token * columns + column);
            let term = weight * f64::from(x[at]);
            (exact, size) = (exact + weight * seen[at].0, size + (weight * seen[at].0).abs());
            (given, square, most) = (given + term, square + term * term, most + weight.abs() * seen[at].1);
        }
        let place = format!("{format:?} {rows} × {columns}, token {token}, row {row}");
        let off = (f64::from(*found) - exact).abs();
        assert!(off <= 1e-6 * size, "{place}: off by {off} of {size}");
        let off = (f64::from(*found) - given).abs();
        assert!(off <= most + 1e-6 * size, "{place}: off by {off}, {most} at most");
        squares += off * off / square;
    }
    squares / found.len() as f64
}

#[test]
#[ignore = "needs avx512-vnni"]
fn every_format_gives_the_dot_products_of_its_numbers() {
    require_instructions();
    for (format, rows) in FORMATS.into_iter().zip([11, 16, 37, 1, 64, 33, 17, 48]) {
        // The last is cut into tasks and its tokens into chunks.
        for (shape, tokens) in [((rows, 512), 1), ((rows, 256), 5), ((3, 768), 40), ((200, 1024), 33)] {
            let mut x = Stream::new(3, "x").normals(tokens * shape.1);
            let root = check(format, shape, &x).sqrt();
            let many = tokens * shape.0 > 1000;
            assert!(!many || root < 3e-5, "{format:?} {shape:?}: off by {root} of normal terms");
            x.iter_mut().step_by(100).for_each(|x| *x *= 1000.0);
            check(format, shape, &x);
        }
    }
}

#[test]
#[ignore = "needs avx512-vnni"]
fn a_token_has_the_same_bits_alone_and_in_every_chunk() {
    require_instructions();
    for format in FORMATS {
        let (weight, x) = (weight(format, 100, 512), Stream::new(4, "x").normals(67 * 512));
        let whole = product(&x, &weight, 512);
        for token in [0, 1, 30, 31, 32, 63, 64, 65, 66] {
            let alone = product(&x[token * 512..(token + 1) * 512], &weight, 512);
            let same = alone.iter().zip(&whole[token * 100..]).all(|(alone, whole)| alone.to_bits() == whole.to_bits());
            assert!(same, "{format:?}, token {token}");
        }
        assert!(product(&[], &weight, 512).is_empty());
    }
}

#[test]
#[ignore = "needs avx512-vnni"]
fn a_scale_that_is_not_finite_spoils_its_row_and_no_other() {
    require_instructions();
    for (format, scale) in FORMATS.into_iter().zip([0, 0, 0, 0, 0, 0, 0, 208]) {
        for broken in [f16::NAN, f16::INFINITY] {
            let mut bytes = blocks(format, 20 * 256 / format.block());
            bytes[7 * format.bytes(1, 256).unwrap() + scale..][..2].copy_from_slice(&broken.to_le_bytes());
            let weight = Weight::Packed(Packed::new(bytes.into(), format, 20, 256).unwrap().into());
            let found = product(&Stream::new(3, "x").normals(256), &weight, 256);
            let spoilt: Vec<usize> = (0..20).filter(|row| !found[*row].is_finite()).collect();
            assert_eq!(spoilt, [7], "{format:?} {broken}");
        }
    }
}

#[test]
#[ignore = "needs avx512-vnni"]
fn a_number_that_is_not_finite_reaches_every_result_of_its_token_and_no_other() {
    require_instructions();
    for format in FORMATS {
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = Stream::new(3, "x").normals(3 * 256);
            x[256 + 77] = broken;
            let found = product(&x, &weight(format, 20, 256), 256);
            for (token, found) in found.chunks(20).enumerate() {
                assert_eq!(found.iter().all(|found| found.is_nan()), token == 1, "{format:?} {broken}");
                assert_eq!(found.iter().any(|found| found.is_nan()), token == 1, "{format:?} {broken}");
            }
        }
    }
}
