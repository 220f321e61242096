//! The linear layer against plain matrix products in f64.

use candle_core::DType;

use super::super::twin::{close, gradients, leaf, normal, same_on_two_threads};
use super::*;

/// Sides that no tile divides; the second set is the path of few tokens.
const SIDES: [(usize, usize, usize); 3] = [(531, 613, 277), (3, 613, 70), (1, 5, 1)];

fn double(tensor: &Tensor) -> Tensor {
    tensor.to_dtype(DType::F64).unwrap()
}

#[test]
fn the_product_agrees_with_its_twin_in_every_precision_of_the_weight() {
    for (tokens, inputs, outputs) in SIDES {
        let (x, bias) = (normal("x", &[tokens, inputs]), normal("bias", &[outputs]));
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let weight = normal("weight", &[outputs, inputs]).to_dtype(dtype).unwrap();
            let twin = double(&x).matmul(&double(&weight).t().unwrap()).unwrap();
            let with_bias = twin.broadcast_add(&double(&bias)).unwrap();
            close("y", &linear(&x, &weight, None).unwrap(), &twin, 2e-6);
            close("y + b", &linear(&x, &weight, Some(&bias)).unwrap(), &with_bias, 2e-6);
        }
    }
}

#[test]
fn the_gradients_agree_with_autograd() {
    for (tokens, inputs, outputs) in SIDES {
        let (x, dy) = (normal("x", &[tokens, inputs]), normal("dy", &[tokens, outputs]));
        for dtype in [DType::F32, DType::BF16] {
            let weight = normal("weight", &[outputs, inputs]).to_dtype(dtype).unwrap();
            let (x64, w64, b64) = (leaf(&x), leaf(&weight), leaf(&normal("bias", &[outputs])));
            let y = x64.matmul(&w64.t().unwrap()).unwrap().broadcast_add(&b64).unwrap();
            let twins = gradients(&y, &dy, &[&x64, &w64, &b64]);
            close("dx", &linear_input_gradient(&dy, &weight).unwrap(), &twins[0], 2e-6);
            close("dw", &linear_weight_gradient(&dy, &x).unwrap(), &twins[1], 2e-6);
            close("db", &bias_gradient(&dy).unwrap(), &twins[2], 2e-6);
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let (x, dy) = (normal("x", &[700, 300]), normal("dy", &[700, 520]));
    let weight = normal("weight", &[520, 300]).to_dtype(DType::BF16).unwrap();
    same_on_two_threads(|| {
        let y = linear(&x, &weight, None).unwrap();
        vec![y, linear_input_gradient(&dy, &weight).unwrap(), linear_weight_gradient(&dy, &x).unwrap()]
    });
}

#[test]
fn sides_that_do_not_meet_and_foreign_types_are_refused() {
    let (x, weight) = (normal("x", &[3, 4]), normal("weight", &[2, 5]));
    assert!(matches!(linear(&x, &weight, None), Err(Error::Shape(_))));
    assert!(matches!(linear(&x.t().unwrap(), &normal("w", &[2, 3]), None), Err(Error::Shape(_))), "gaps");
    let whole = Tensor::zeros((2, 4), DType::U32, &candle_core::Device::Cpu).unwrap();
    assert!(matches!(linear(&x, &whole, None), Err(Error::Dtype(_))));
    assert!(matches!(linear(&double(&x), &normal("w", &[2, 4]), None), Err(Error::Dtype(_))));
}

#[test]
fn no_tokens_give_an_empty_result_and_gradients_of_zero() {
    let (x, dy, weight) = (normal("x", &[0, 4]), normal("dy", &[0, 2]), normal("weight", &[2, 4]));
    assert_eq!(linear(&x, &weight, None).unwrap().dims(), [0, 2]);
    assert_eq!(linear_input_gradient(&dy, &weight).unwrap().dims(), [0, 4]);
    assert_eq!(linear_weight_gradient(&dy, &x).unwrap().to_vec2::<f32>().unwrap(), [[0.0; 4]; 2]);
}
