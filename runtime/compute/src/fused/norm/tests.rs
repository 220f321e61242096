//! The normalization against plain operations in f64.

use candle_core::{D, DType, Device, Var};

use super::super::reference::{gradients, normal, numbers, same_on_two_threads};
use super::*;
use crate::parity::on_each_device;

const EPSILON: f64 = 1e-6;
/// A warp and a block a row, with vectors of eight and without, several parts of a weight's gradient.
const SHAPES: [(&[usize], bool); 5] =
    [(&[67, 301], false), (&[9, 7, 65], true), (&[1, 3], false), (&[3, 1304], true), (&[130, 515], false)];

/// Computes the normalization by plain operations, in the type of `x`.
fn reference(x: &Var, weight: &Var, unit_offset: bool) -> Tensor {
    let mean = x.sqr().unwrap().mean_keepdim(D::Minus1).unwrap();
    let rate = (mean + EPSILON).unwrap().sqrt().unwrap();
    let weight = if unit_offset { (weight.as_tensor() + 1.0).unwrap() } else { weight.as_tensor().clone() };
    x.broadcast_div(&rate).unwrap().broadcast_mul(&weight).unwrap()
}

// In bf16 a result is rounded once, by 2⁻⁸ of itself at most.
on_each_device! {
    fn output_and_gradients_agree_with_autograd(on) tolerance(1e-6, 4e-3) {
        for (shape, unit_offset) in SHAPES {
            let (x, dy) = (on.normal("x", shape), on.normal("dy", shape));
            let weight = on.single("weight", &shape[shape.len() - 1..]);
            let (x64, w64) = (on.leaf(&x), on.leaf(&weight));
            let expected = reference(&x64, &w64, unit_offset);
            let references = gradients(&expected, &on.leaf(&dy), &[&x64, &w64]);
            let (y, rates) = rms_norm(&x, &weight, EPSILON, unit_offset).unwrap();
            on.close("y", &y, &expected);
            on.close("dx", &rms_norm_backward(&dy, &x, &weight, &rates, unit_offset, None).unwrap(), &references[0]);
            let residual = on.normal("residual", shape);
            let with = rms_norm_backward(&dy, &x, &weight, &rates, unit_offset, Some(&residual)).unwrap();
            on.nearly("dx + residual", &with, &(&references[0] + on.leaf(&residual).as_tensor()).unwrap(), 2.0);
            on.within("dw", &rms_norm_weight_gradient(&dy, &x, &rates).unwrap(), &references[1], 2e-6);
        }
    }
}

on_each_device! {
    fn rows_that_begin_between_vectors_have_the_same_norm(on) tolerance(1e-6, 4e-3) {
        // A view from the third number on, as slots of a flat buffer are.
        let (all, weights) = (on.normal("x", &[67]), on.single("weight", &[11]));
        let (x, weight) = (all.narrow(0, 3, 64).unwrap().reshape((8, 8)).unwrap(), weights.narrow(0, 3, 8).unwrap());
        let expected = reference(&on.leaf(&x), &on.leaf(&weight), false);
        on.close("y", &rms_norm(&x, &weight, EPSILON, false).unwrap().0, &expected);
    }
}

on_each_device! {
    /// A grid has 65,535 blocks along its second axis: past 64 rows for each of them, a part has more.
    fn a_weight_gradient_counts_each_of_very_many_rows(on) tolerance(0.0, 0.0) {
        let rows = 64 * 65_535 + 65;
        let all = |number: fn(usize) -> f32| {
            let numbers: Vec<f32> = (0..rows).map(number).collect();
            Tensor::from_vec(numbers, (rows, 1), &Device::Cpu).unwrap()
        };
        // Whole numbers below 2²⁴ have one sum in any order.
        let (x, dy) = (on.place(&all(|_| 1.0)), on.place(&all(|row| (row % 3) as f32)));
        let rates = on.put(&all(|_| 1.0).flatten_all().unwrap());
        let found = rms_norm_weight_gradient(&dy, &x, &rates).unwrap();
        let wanted: usize = (0..rows).map(|row| row % 3).sum();
        assert_eq!(numbers(&on.back(&found)), [wanted as f64]);
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let (x, dy, weight) = (normal("x", &[700, 96]), normal("dy", &[700, 96]), normal("weight", &[96]));
    same_on_two_threads(|| {
        let (y, rates) = rms_norm(&x, &weight, EPSILON, false).unwrap();
        let dx = rms_norm_backward(&dy, &x, &weight, &rates, false, None).unwrap();
        let dw = rms_norm_weight_gradient(&dy, &x, &rates).unwrap();
        vec![y, rates, dx, dw]
    });
}

#[test]
fn a_weight_of_another_width_or_type_is_refused() {
    let x = normal("x", &[4, 8]);
    assert!(matches!(rms_norm(&x, &normal("w", &[7]), EPSILON, false), Err(Error::Shape(_))));
    let half = normal("w", &[8]).to_dtype(DType::BF16).unwrap();
    assert!(matches!(rms_norm(&x, &half, EPSILON, false), Err(Error::Dtype(_))));
}
