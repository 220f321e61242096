//! Malicious arguments, passed to the operations directly: each must return an error with a message, by the same check
//! on every device, and never abort.

use candle_core::{DType, Device, Tensor};

use super::ledger;
use crate::error::Error;
use crate::ops::{self, Output};

fn four() -> Tensor {
    Tensor::new(&[1_f32, 2., 3., 4.], &Device::Cpu).unwrap()
}

fn places(numbers: &[u32]) -> Tensor {
    Tensor::new(numbers, &Device::Cpu).unwrap()
}

fn refused(output: Result<Output, Error>, words: &str) {
    let error = output.map(|output| output.tensor.dims().to_vec()).unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
}

/// 4 · 2147418113 · 2147549185 is 2⁶⁴ + 4, which wraps around to four.
#[test]
fn a_shape_whose_product_wraps_around_is_refused() {
    let wrapped = [4, 2_147_418_113, 2_147_549_185];
    assert_eq!(wrapped.iter().fold(1_u64, |product, length| product.wrapping_mul(u64::from(*length))), 4);
    let mut budget = ledger();
    refused(ops::reshape(&mut budget, &four(), &wrapped), "more than");
    refused(ops::from_list(&mut budget, &Device::Cpu, vec![1.; 4], &wrapped), "more than");
    refused(ops::zeros(&mut budget, &Device::Cpu, &wrapped, DType::F32), "more than");
    refused(ops::expand(&four(), &wrapped), "more than");
    assert_eq!(budget.held(), 0);
}

#[test]
fn shapes_with_a_thousand_axes_or_none_long_are_refused() {
    let mut budget = ledger();
    refused(ops::zeros(&mut budget, &Device::Cpu, &[1; 1_000], DType::F32), "1000 axes");
    refused(ops::reshape(&mut budget, &four(), &[4, 0]), "0 long");
    refused(ops::expand(&four(), &[1; 1_000]), "1000 axes");
}

/// Adding such a step changes nothing: a loop that adds it never ends.
#[test]
fn a_sequence_with_a_step_below_one_unit_in_the_last_place_ends() {
    let (start, step) = (16_777_216_f32, 0.5);
    assert_eq!(start + step, start);
    let output = ops::arange(&mut ledger(), &Device::Cpu, start, step, 5).unwrap().tensor;
    assert_eq!(ops::list(&output).unwrap(), [16_777_216., 16_777_216., 16_777_216., 16_777_218., 16_777_218.]);
    for (start, step) in [(f32::NAN, 1.), (0., f32::INFINITY), (f32::NEG_INFINITY, 1.), (f32::MAX, f32::MAX)] {
        refused(ops::arange(&mut ledger(), &Device::Cpu, start, step, 3), "not finite");
    }
    refused(ops::arange(&mut ledger(), &Device::Cpu, 0., 1., 0), "0 long");
    refused(ops::arange(&mut ledger(), &Device::Cpu, 0., 1., u32::MAX), "more than");
}

/// −1 as a `u32`, the largest index of an `i32`, and one past the end.
#[test]
fn indices_that_are_negative_or_huge_are_refused_by_everything_that_takes_some() {
    let mut budget = ledger();
    for bad in [u32::MAX, 1 << 31, i32::MAX as u32, 4] {
        let (index, x) = (places(&[0, bad]), four());
        let two = Tensor::new(&[1_f32, 2.], &Device::Cpu).unwrap();
        refused(ops::gather(&mut budget, &x, 0, &index), "out of range");
        refused(ops::index_select(&mut budget, &x, 0, &index), "out of range");
        refused(ops::index_add(&mut budget, &x, 0, &index, &two), "out of range");
        refused(ops::segment_sum(&mut budget, &two, &index, 4), "out of range");
    }
    let signed = Tensor::new(&[-1_i64, 0], &Device::Cpu).unwrap();
    refused(ops::gather(&mut budget, &four(), 0, &signed), "not `u32`");
    assert_eq!(budget.held(), 0);
}

#[test]
fn counts_of_nothing_and_of_too_much_are_refused() {
    let mut budget = ledger();
    assert!(ops::chunk(&four(), 0, 0).is_err() && ops::chunk(&four(), 0, u32::MAX).is_err());
    refused(ops::topk(&mut budget, &four(), 0, 0), "largest of");
    refused(ops::topk(&mut budget, &four(), 0, u32::MAX), "largest of");
    refused(ops::slice(&four(), 0, u32::MAX, u32::MAX), "4 long");
    refused(ops::slice(&four(), 0, 0, 0), "4 long");
    refused(ops::segment_sum(&mut budget, &four(), &places(&[0; 4]), 0), "0 segments");
    for axis in [i32::MIN, -2, 1, i32::MAX] {
        refused(ops::flip(&mut budget, &four(), axis), "axis");
    }
}
