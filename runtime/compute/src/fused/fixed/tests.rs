//! Every format against the same arithmetic number by number, and against the numbers themselves.

use candle_core::Tensor;

use super::numbers::{Numbers, PART};
use super::vnni::Vnni;
use crate::fused::skinny::skinny_linear;
use crate::fused::unpack::tests::blocks;
use crate::random::Stream;
use crate::weight::{Format, Packed, Weight};

const FORMATS: [Format; 8] =
    [Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q8_0, Format::Q4_K, Format::Q5_K, Format::Q6_K];

#[expect(clippy::print_stderr, reason = "a check that is skipped says so")]
fn missing() -> bool {
    let missing = Vnni::try_new().is_none();
    if missing {
        eprintln!("SKIPPED products in whole numbers: this processor has no AVX-512 VNNI");
    }
    missing
}

fn weight(format: Format, rows: usize, columns: usize) -> Weight {
    let bytes = blocks(format, rows * columns / format.block());
    Weight::Packed(Packed::new(bytes.into(), format, rows, columns).unwrap().into())
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// The tokens as the product sees them.
fn seen(x: &[f32], depth: usize) -> Vec<f64> {
    let found = Numbers::of(x, depth);
    let mut seen = Vec::new();
    for token in 0..found.tokens {
        for part in 0..depth / PART {
            let at = part * found.tokens + token;
            let (plane, scale) = (found.planes[at], f64::from(found.measures[at].scale));
            let (high, low): ([i8; PART], [i8; PART]) = (bytemuck::cast(plane.high), bytemuck::cast(plane.low));
            seen.extend((0..PART).map(|at| f64::from(256 * i32::from(high[at]) + i32::from(low[at])) * scale));
        }
    }
    seen
}

#[test]
fn every_format_gives_the_dot_products_of_its_numbers() {
    if missing() {
        return;
    }
    for (format, rows, tokens, columns) in FORMATS
        .into_iter()
        .zip([11, 16, 37, 1, 64, 33, 17, 48])
        .flat_map(|(format, rows)| [(format, rows, 1, 512), (format, rows, 5, 256), (format, 3, 40, 768)])
    {
        let (weight, x) = (weight(format, rows, columns), Stream::new(3, "x").normals(tokens * columns));
        let found = numbers(
            &skinny_linear(
                &Tensor::from_slice(&x, (tokens, columns), &candle_core::Device::Cpu).unwrap(),
                &weight,
                None,
            )
            .unwrap(),
        );
        let (weights, seen) = (numbers(&weight.to_tensor().unwrap()), seen(&x, columns));
        for (token, found) in found.chunks(rows).enumerate() {
            for (row, found) in found.iter().enumerate() {
                let terms = |x: &dyn Fn(usize) -> f64| {
                    (0..columns)
                        .map(|at| f64::from(weights[row * columns + at]) * x(token * columns + at))
                        .collect::<Vec<f64>>()
                };
                let (exact, given) = (terms(&|at| seen[at]), terms(&|at| f64::from(x[at])));
                let size: f64 = exact.iter().map(|term| term.abs()).sum();
                let off = (f64::from(*found) - exact.iter().sum::<f64>()).abs();
                assert!(
                    off <= 1e-6 * size,
                    "{format:?} {rows} × {columns}, token {token}, row {row}: off by {off} of {size}"
                );
                let off = (f64::from(*found) - given.iter().sum::<f64>()).abs();
                let root = given.iter().map(|term| term * term).sum::<f64>().sqrt();
                assert!(
                    off <= 2e-4 * root,
                    "{format:?} {rows} × {columns}, token {token}, row {row}: off by {off}, root {root}"
                );
            }
        }
    }
}

#[test]
fn a_number_that_is_not_finite_reaches_every_result_of_its_token_and_no_other() {
    if missing() {
        return;
    }
    for format in FORMATS {
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = Stream::new(3, "x").normals(3 * 256);
            x[256 + 77] = broken;
            let x = Tensor::from_vec(x, (3, 256), &candle_core::Device::Cpu).unwrap();
            let found = numbers(&skinny_linear(&x, &weight(format, 20, 256), None).unwrap());
            for (token, found) in found.chunks(20).enumerate() {
                assert_eq!(found.iter().all(|found| found.is_nan()), token == 1, "{format:?} {broken}");
                assert_eq!(found.iter().any(|found| found.is_nan()), token == 1, "{format:?} {broken}");
            }
        }
    }
}
