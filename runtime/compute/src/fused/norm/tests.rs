//! The normalisation against plain operations in f64.

use candle_core::{D, DType, Var};

use super::super::twin::{close, gradients, leaf, normal, same_on_two_threads};
use super::*;

const EPSILON: f64 = 1e-6;

fn twin(x: &Var, weight: &Var, unit_offset: bool) -> Tensor {
    let mean = x.sqr().unwrap().mean_keepdim(D::Minus1).unwrap();
    let rate = (mean + EPSILON).unwrap().sqrt().unwrap();
    let weight = if unit_offset { (weight.as_tensor() + 1.0).unwrap() } else { weight.as_tensor().clone() };
    x.broadcast_div(&rate).unwrap().broadcast_mul(&weight).unwrap()
}

#[test]
fn output_and_gradients_agree_with_autograd() {
    for (shape, unit_offset) in [(&[67, 301][..], false), (&[9, 7, 65][..], true), (&[1, 3][..], false)] {
        let (x, dy) = (normal("x", shape), normal("dy", shape));
        let weight = normal("weight", &shape[shape.len() - 1..]);
        let (x64, w64) = (leaf(&x), leaf(&weight));
        let expected = twin(&x64, &w64, unit_offset);
        let twins = gradients(&expected, &dy, &[&x64, &w64]);
        let (y, rates) = rms_norm(&x, &weight, EPSILON, unit_offset).unwrap();
        close("y", &y, &expected, 1e-6);
        close("dx", &rms_norm_backward(&dy, &x, &weight, &rates, unit_offset).unwrap(), &twins[0], 1e-6);
        close("dw", &rms_norm_weight_gradient(&dy, &x, &rates).unwrap(), &twins[1], 2e-6);
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let (x, dy, weight) = (normal("x", &[700, 96]), normal("dy", &[700, 96]), normal("weight", &[96]));
    same_on_two_threads(|| {
        let (y, rates) = rms_norm(&x, &weight, EPSILON, false).unwrap();
        let dx = rms_norm_backward(&dy, &x, &weight, &rates, false).unwrap();
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
