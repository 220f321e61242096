//! The adapted layer against plain products in f64, and against numbers that PEFT gives.

use candle_core::{DType, Device};

use super::super::linear_weight_gradient;
use super::super::reference::{close, gradients, normal, same_on_two_threads};
use super::*;
use crate::parity::{TestDevice, on_each_device};

const SIDES: (usize, usize, usize, usize) = (263, 301, 517, 5);

/// Returns x, a bf16 weight, bias, adapter and dy on the CPU, of the sides [`SIDES`].
fn layer() -> (Tensor, Tensor, Tensor, LowRank, Tensor) {
    let (tokens, inputs, outputs, rank) = SIDES;
    let low = LowRank { a: normal("a", &[rank, inputs]), b: normal("b", &[outputs, rank]), scale: 1.7 };
    let weight = normal("weight", &[outputs, inputs]).to_dtype(DType::BF16).unwrap();
    (normal("x", &[tokens, inputs]), weight, normal("bias", &[outputs]), low, normal("dy", &[tokens, outputs]))
}

/// Returns the tensors of [`layer`] on the device of a test; x and dy also in the test's type.
fn placed(on: &TestDevice) -> (Tensor, Tensor, Tensor, LowRank, Tensor) {
    let (x, weight, bias, low, dy) = layer();
    let [weight, bias, a, b] = [weight, bias, low.a, low.b].map(|tensor| on.put(&tensor));
    (on.place(&x), weight, bias, LowRank { a, b, scale: low.scale }, on.place(&dy))
}

/// Returns the gradients of a layer without dropout with respect to x, A and B.
fn backward(dy: &Tensor, x: &Tensor, xa: &Tensor, weight: &Tensor, low: &LowRank) -> [Tensor; 3] {
    let reduced = reduced_gradient(dy, low).unwrap();
    let dx = adapted_input_gradient(dy, &reduced, weight, low, None, None).unwrap();
    let da = linear_weight_gradient(1.0, &reduced, x).unwrap();
    [dx, da, linear_weight_gradient(low.scale, dy, xa).unwrap()]
}

// In bf16 A, B and what lies between them are rounded by 2⁻⁸ of themselves at most, and the result twice.
on_each_device! {
    fn output_and_gradients_agree_with_autograd(on) tolerance(2e-6, 1e-2) {
        let (x, weight, bias, low, dy) = placed(on);
        let (x64, a64, b64) = (on.leaf(&x), on.leaf(&low.a), on.leaf(&low.b));
        let (weight64, bias64) = (on.leaf(&weight), on.leaf(&bias));
        let thin = x64.matmul(&a64.t().unwrap()).unwrap();
        let plain = x64.matmul(&weight64.t().unwrap()).unwrap().broadcast_add(&bias64).unwrap();
        let reference = (plain + (thin.matmul(&b64.t().unwrap()).unwrap() * f64::from(low.scale)).unwrap()).unwrap();
        let (y, xa) = adapted_linear(&x, &weight, Some(&bias), &low, None).unwrap();
        on.close("y", &y, &reference);
        on.close("xa", &xa, &thin);
        let [dx, da, db] = backward(&dy, &x, &xa, &weight, &low);
        let references = gradients(&reference, &on.leaf(&dy), &[&x64, &a64, &b64]);
        on.close("dx", &dx, &references[0]);
        on.nearly("da", &da, &references[1], 2.0);
        on.nearly("db", &db, &references[2], 2.0);
        assert_eq!((da.dtype(), db.dtype()), (DType::F32, DType::F32));
        // A second layer with the same input adds its gradient.
        let reduced = reduced_gradient(&dy, &low).unwrap();
        let twice = adapted_input_gradient(&dy, &reduced, &weight, &low, None, Some(dx)).unwrap();
        on.nearly("dx of two layers", &twice, &(&references[0] * 2.0).unwrap(), 2.0);
    }
}

on_each_device! {
    fn adapters_that_are_rounded_already_give_the_same(on) tolerance(0.0, 0.0) {
        let (x, weight, bias, low, dy) = placed(on);
        let rounded = LowRank { a: on.place(&on.back(&low.a)), b: on.place(&on.back(&low.b)), scale: low.scale };
        let [(y, xa), (again, xa_again)] =
            [&low, &rounded].map(|low| adapted_linear(&x, &weight, Some(&bias), low, None).unwrap());
        on.close("y", &again, &on.back(&y));
        on.close("xa", &xa_again, &on.back(&xa));
        let [first, second] = [&low, &rounded].map(|low| backward(&dy, &x, &xa, &weight, low));
        on.close("dx", &second[0], &on.back(&first[0]));
        on.close("da", &second[1], &on.back(&first[1]));
    }
}

#[test]
fn a_worked_example_agrees_with_peft() {
    let tensor = |numbers: &[f32], shape: [usize; 2]| Tensor::from_slice(numbers, &shape, &Device::Cpu).unwrap();
    let weight = tensor(&[1.0, -2.0, 0.5, 0.25, 1.5, -1.0], [2, 3]);
    let x = tensor(&[1.0, 2.0, -1.0], [1, 3]);
    let low = LowRank {
        a: tensor(&[0.1, -0.2, 0.3, 0.4, 0.0, -0.1], [2, 3]),
        b: tensor(&[0.5, -1.0, 1.0, 0.25], [2, 2]),
        scale: 2.0,
    };
    let (y, xa) = adapted_linear(&x, &weight, None, &low, None).unwrap();
    close("y", &y, &tensor(&[-5.1, 3.3], [1, 2]), 1e-6);
    // The objective is ½‖y‖², so its gradient is y.
    let [_, da, db] = backward(&y, &x, &xa, &weight, &low);
    close("da", &da, &tensor(&[1.5, 3.0, -1.5, 11.85, 23.7, -11.85], [2, 3]), 1e-6);
    close("db", &db, &tensor(&[6.12, -5.1, -3.96, 3.3], [2, 2]), 1e-6);
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let (x, weight, bias, low, dy) = layer();
    same_on_two_threads(|| {
        let (y, xa) = adapted_linear(&x, &weight, Some(&bias), &low, None).unwrap();
        let [dx, da, db] = backward(&dy, &x, &xa, &weight, &low);
        vec![y, xa, dx, da, db]
    });
}

#[test]
fn adapters_of_another_rank_or_side_are_refused() {
    let (x, weight, _, low, _) = layer();
    let narrow = LowRank { a: normal("a", &[4, 301]), ..low.clone() };
    assert!(adapted_linear(&x, &weight, None, &narrow, None).is_err());
    let short = LowRank { b: normal("b", &[516, 5]), ..low };
    assert!(adapted_linear(&x, &weight, None, &short, None).is_err());
}
