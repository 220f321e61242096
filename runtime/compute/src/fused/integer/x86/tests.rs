//! Every format against the same arithmetic number by number, and against the numbers themselves.

use candle_core::Tensor;
use half::f16;

use super::avx2::Avx2;
use super::avx512::Vnni;
use super::lanes::Lanes;
use super::numbers::{PART, round_part};
use super::{IntegerProduct, IntegerTokens};
use crate::fused::product::Tile;
use crate::fused::stored::Stored;
use crate::fused::unpack::tests::blocks;
use crate::random::Stream;
use crate::weight::{Format, Packed, Weight};

const FORMATS: [Format; 8] =
    [Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q8_0, Format::Q4_K, Format::Q5_K, Format::Q6_K];

/// Runs checks with the vectors of each kind of processor; they panic with "absent" if this one has none of that kind.
macro_rules! on_each_kind_of_processor {
    ($($check:ident),+) => {
        mod avx2 {
            $(#[test]
            #[ignore = "needs avx2"]
            fn $check() {
                super::$check(super::Avx2::try_new().expect("absent `avx2`: this processor has none"));
            })+
        }
        mod vnni {
            $(#[test]
            #[ignore = "needs avx512-vnni"]
            fn $check() {
                super::$check(super::Vnni::try_new().expect("absent `avx512-vnni`: this processor has none"));
            })+
        }
    };
}

on_each_kind_of_processor!(
    every_format_gives_the_dot_products_of_its_numbers,
    a_token_has_the_same_bits_alone_and_in_every_chunk,
    a_scale_that_is_not_finite_spoils_its_row_and_no_other,
    a_number_that_is_not_finite_reaches_every_result_of_its_token_and_no_other,
    the_largest_codes_and_numbers_have_room
);

/// Returns a quantized weight of random bytes whose scales are ordinary numbers.
fn weight(format: Format, rows: usize, columns: usize) -> Weight {
    let bytes = blocks(format, rows * columns / format.block());
    Weight::Packed(Packed::new(bytes.into(), format, rows, columns).unwrap().into())
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// Returns for each number of the tokens the value to which the product rounds it, and the largest error of that.
fn seen(x: &[f32]) -> Vec<(f64, f64)> {
    let of_part = |x| {
        let (integers, measure) = round_part(x);
        let step = f64::from(measure.scale);
        integers.map(|integer| (f64::from(integer) * step, 0.501 * step))
    };
    x.as_chunks::<PART>().0.iter().flat_map(of_part).collect()
}

/// Multiplies tokens of `columns` numbers with a weight. The products of a token are adjacent.
fn product<L: Lanes>(lanes: L, x: &[f32], weight: &Weight, columns: usize) -> Vec<f32> {
    let (stored, whole) = (Stored::of(weight, "weight").unwrap(), IntegerTokens::default());
    let (view, tokens) = (stored.view(), x.len() / columns);
    let mut found = vec![f32::NAN; tokens * view.rows];
    let product = IntegerProduct::with(lanes, &view, x, &whole).unwrap();
    product.write(0..view.rows, &mut Tile::from_slice(&mut found, tokens, view.rows));
    found
}

/// Asserts that each dot product equals that of the rounded tokens, and differs from that of the given tokens by no
/// more than rounding allows. Returns the mean over all dot products of the squared error divided by the sum of squared
/// terms.
fn check<L: Lanes>(lanes: L, format: Format, (rows, columns): (usize, usize), x: &[f32]) -> f64 {
    let weight = weight(format, rows, columns);
    let (weights, seen) = (numbers(&weight.to_tensor().unwrap()), seen(x));
    let found = product(lanes, x, &weight, columns);
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

fn every_format_gives_the_dot_products_of_its_numbers<L: Lanes>(lanes: L) {
    for (format, rows) in FORMATS.into_iter().zip([11, 16, 37, 1, 64, 33, 17, 48]) {
        // The last is cut into tasks and its tokens into chunks.
        for (shape, tokens) in [((rows, 512), 1), ((rows, 256), 5), ((3, 768), 40), ((200, 1024), 33)] {
            let mut x = Stream::new(3, "x").normals(tokens * shape.1);
            let root = check(lanes, format, shape, &x).sqrt();
            let many = tokens * shape.0 > 1000;
            assert!(!many || root < 3e-5, "{format:?} {shape:?}: off by {root} of normal terms");
            x.iter_mut().step_by(100).for_each(|x| *x *= 1000.0);
            check(lanes, format, shape, &x);
        }
    }
}

fn a_token_has_the_same_bits_alone_and_in_every_chunk<L: Lanes>(lanes: L) {
    for format in FORMATS {
        let (weight, x) = (weight(format, 100, 512), Stream::new(4, "x").normals(67 * 512));
        let whole = product(lanes, &x, &weight, 512);
        for token in [0, 1, 30, 31, 32, 63, 64, 65, 66] {
            let alone = product(lanes, &x[token * 512..(token + 1) * 512], &weight, 512);
            let same = alone.iter().zip(&whole[token * 100..]).all(|(alone, whole)| alone.to_bits() == whole.to_bits());
            assert!(same, "{format:?}, token {token}");
        }
        assert!(product(lanes, &[], &weight, 512).is_empty());
    }
}

fn a_scale_that_is_not_finite_spoils_its_row_and_no_other<L: Lanes>(lanes: L) {
    for (format, scale) in FORMATS.into_iter().zip([0, 0, 0, 0, 0, 0, 0, 208]) {
        for broken in [f16::NAN, f16::INFINITY] {
            let mut bytes = blocks(format, 20 * 256 / format.block());
            bytes[7 * format.bytes(1, 256).unwrap() + scale..][..2].copy_from_slice(&broken.to_le_bytes());
            let weight = Weight::Packed(Packed::new(bytes.into(), format, 20, 256).unwrap().into());
            let found = product(lanes, &Stream::new(3, "x").normals(256), &weight, 256);
            let spoilt: Vec<usize> = (0..20).filter(|row| !found[*row].is_finite()).collect();
            assert_eq!(spoilt, [7], "{format:?} {broken}");
        }
    }
}

fn a_number_that_is_not_finite_reaches_every_result_of_its_token_and_no_other<L: Lanes>(lanes: L) {
    for format in FORMATS {
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = Stream::new(3, "x").normals(3 * 256);
            x[256 + 77] = broken;
            let found = product(lanes, &x, &weight(format, 20, 256), 256);
            for (token, found) in found.chunks(20).enumerate() {
                assert_eq!(found.iter().all(|found| found.is_nan()), token == 1, "{format:?} {broken}");
                assert_eq!(found.iter().any(|found| found.is_nan()), token == 1, "{format:?} {broken}");
            }
        }
    }
}

#[test]
#[ignore = "needs avx512-vnni"]
fn both_kinds_of_processor_give_the_same_bits() {
    let vnni = Vnni::try_new().expect("absent `avx512-vnni`: this processor has none");
    let avx2 = Avx2::try_new().expect("a processor with AVX-512 has AVX2");
    for format in FORMATS {
        let (weight, x) = (weight(format, 50, 768), Stream::new(5, "x").normals(5 * 768));
        let [wide, narrow] = [product(vnni, &x, &weight, 768), product(avx2, &x, &weight, 768)];
        assert!(wide.iter().zip(&narrow).all(|(wide, narrow)| wide.to_bits() == narrow.to_bits()), "{format:?}");
    }
}

fn the_largest_codes_and_numbers_have_room<L: Lanes>(lanes: L) {
    // A scale of 1, and every code 127 or −128.
    for code in [i8::MAX, i8::MIN] {
        let block: Vec<u8> = f16::ONE.to_le_bytes().into_iter().chain([code as u8; PART]).collect();
        let weight = Weight::Packed(Packed::new(block.into(), Format::Q8_0, 1, PART).unwrap().into());
        for x in [1.0, -1.0] {
            let wanted = f32::from(code) * x * PART as f32;
            let found = product(lanes, &[x; PART], &weight, PART)[0];
            assert!((found - wanted).abs() <= 1e-6 * wanted.abs(), "{found} for {wanted}");
        }
    }
}
