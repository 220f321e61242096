//! NF4 against the golden table, against values that torch gives, and against a reference that looks at every level.

use candle_core::{Device, Tensor};

use super::*;
use crate::fused::LowRank;
use crate::fused::{adapted_input_gradient, linear, linear_few_tokens, linear_input_gradient, reduced_gradient};
use crate::random::Stream;
use crate::weight::{Format, Weight};

fn matrix(name: &str, rows: usize, columns: usize) -> Tensor {
    Tensor::from_vec(Stream::new(3, name).normals(rows * columns), (rows, columns), &Device::Cpu).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// The tensor of [`Weight::to_nf4`], by the definition and number by number.
fn reference(weight: &[f32]) -> Vec<f32> {
    let nearest = |number: f64, values: &[f32]| {
        let gap = |value: &f32| (f64::from(*value) - number).abs();
        *values.iter().min_by(|one, other| gap(one).total_cmp(&gap(other))).unwrap()
    };
    let largest = |numbers: &[f32]| numbers.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
    let magnitudes: Vec<f32> = weight.chunks(64).map(largest).collect();
    let mean = (magnitudes.iter().map(|one| f64::from(*one)).sum::<f64>() / magnitudes.len() as f64) as f32;
    let mut restored = Vec::new();
    for group in magnitudes.chunks(256) {
        let scale = largest(&group.iter().map(|one| one - mean).collect::<Vec<_>>());
        for one in group {
            let value = if scale == 0.0 { 0.0 } else { nearest(f64::from((one - mean) / scale), &SIGNED) };
            restored.push(value * scale + mean);
        }
    }
    let number = |(at, number): (usize, &f32)| {
        let (found, exact) = (restored[at / 64], magnitudes[at / 64]);
        if exact == 0.0 { 0.0 } else { nearest(f64::from(number / exact), &LEVELS) * found }
    };
    weight.iter().enumerate().map(number).collect()
}

#[test]
fn the_golden_block_comes_back_as_the_table_has_it() {
    let golden = [0.5_f32, -0.25, 0.03, 1.2, -0.9, 0.0, 0.7, -0.05];
    let mut block = golden.to_vec();
    block.resize(64, 0.0);
    let weight = Weight::from(Tensor::from_vec(block, (1, 64), &Device::Cpu).unwrap());
    let (bytes, scales) = quantize((&weight).into(), 1, 64).unwrap();
    let codes: Vec<u8> = bytes[1..9].iter().map(|pair| pair & 15).collect();
    assert_eq!(codes, [12, 5, 7, 15, 1, 7, 13, 7]);
    assert_eq!(scales.magnitude(0, bytes[0]), 1.2);
    let found = numbers(&weight.to_nf4().unwrap().to_tensor().unwrap());
    let table: [f64; 8] = [0.528_851_795, -0.221_728_116, 0.0, 1.2, -0.835_431_361, 0.0, 0.675_140_405, 0.0];
    for (found, wanted) in found.iter().zip(table) {
        assert!((f64::from(*found) - wanted).abs() < 5e-8, "{found} is not {wanted}");
    }
    assert!(found[8..].iter().all(|number| *number == 0.0));
}

#[test]
fn magnitudes_have_the_256_values_of_the_dynamic_type() {
    assert!(SIGNED.is_sorted());
    assert_eq!((SIGNED[0], SIGNED[127], SIGNED[255]), (-0.992_968_74, 0.0, 1.0));
    // As torch makes them in f32.
    let torch = [
        (128, 5.500_000_384_017_767e-7),
        (129, 3.250_000_190_746_505e-6),
        (130, 7.749_999_895_168_003e-6),
        (131, 2.124_999_809_893_779_5e-5),
        (250, 0.936_718_761_920_929),
        (254, 0.992_968_738_079_071),
    ];
    for (at, wanted) in torch {
        let found = f64::from(SIGNED[at]);
        assert!((found / wanted - 1.0).abs() < 1.2e-7, "{at}: {found} is not {wanted}");
    }
}

#[test]
fn every_number_is_the_one_of_the_slow_twin() {
    // More than one group of magnitudes, in rows that groups cross, and a block of zeros.
    let (rows, columns) = (130, 192);
    let mut weight = numbers(&matrix("w", rows, columns));
    weight.iter_mut().enumerate().for_each(|(at, number)| *number *= 0.02 + 1e-4 * (at / 64) as f32);
    weight[64..128].fill(0.0);
    let tensor = Tensor::from_slice(&weight, (rows, columns), &Device::Cpu).unwrap();
    let packed = Weight::from(tensor).to_nf4().unwrap();
    assert_eq!(numbers(&packed.to_tensor().unwrap()), reference(&weight));
    assert_eq!(packed.bytes(), rows * columns / 64 * 33 + 4 * (2 + 1));
    assert_eq!(Weight::bytes_in(Format::NF4, rows, columns), Some(packed.bytes()));
    assert_eq!(numbers(&packed.rows(7, 5).unwrap()), reference(&weight)[7 * columns..12 * columns]);
}

#[test]
fn products_are_those_of_the_widened_matrix() {
    let weight = Weight::from(matrix("w", 300, 640)).to_nf4().unwrap();
    let plain = weight.to_tensor().unwrap();
    let (x, dy) = (matrix("x", 9, 640), matrix("dy", 9, 300));
    let same = |found: Tensor, wanted: Tensor| assert_eq!(numbers(&found), numbers(&wanted));
    same(linear_few_tokens(&x, &weight, None).unwrap(), linear_few_tokens(&x, &plain, None).unwrap());
    let close = |found: Tensor, wanted: Tensor| {
        let (found, wanted) = (numbers(&found), numbers(&wanted));
        let largest = wanted.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
        let worst = found.iter().zip(&wanted).fold(0.0_f32, |most, (one, other)| most.max((one - other).abs()));
        assert!(worst <= 1e-6 * largest, "{worst} of {largest}");
    };
    close(linear(&x, &weight, None).unwrap(), linear(&x, &plain, None).unwrap());
    close(linear_input_gradient(&dy, &weight).unwrap(), linear_input_gradient(&dy, &plain).unwrap());
    let low = LowRank { a: matrix("a", 4, 640), b: matrix("b", 300, 4), scale: 0.5 };
    let reduced = reduced_gradient(&dy, &low).unwrap();
    let found = adapted_input_gradient(&dy, &reduced, &weight, &low, None, None).unwrap();
    close(found, adapted_input_gradient(&dy, &reduced, &plain, &low, None, None).unwrap());
}

#[test]
fn what_cannot_be_quantized_is_refused() {
    let refused = |numbers: Vec<f32>, sides: (usize, usize)| {
        Weight::from(Tensor::from_vec(numbers, sides, &Device::Cpu).unwrap()).to_nf4().unwrap_err().to_string()
    };
    assert!(refused(vec![0.0; 100], (1, 100)).contains("64"));
    assert!(refused(vec![f32::NAN; 64], (1, 64)).contains("finite"));
    let vector = Tensor::from_vec(vec![0.0_f32; 64], 64, &Device::Cpu).unwrap();
    assert!(Weight::from(vector).to_nf4().is_err());
}
