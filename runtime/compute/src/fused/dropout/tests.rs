//! Dropout by its mask, and the layer around it against plain operations in f64.

use candle_core::{DType, Device};

use super::super::linear_weight_gradient;
use super::super::low_rank::{LowRank, adapted_input_gradient, adapted_linear, reduced_gradient};
use super::super::reference::gradients;
use super::super::rows::to_host_f32;
use super::*;
use crate::parity::on_each_device;

const SIDES: (usize, usize, usize, usize) = (23, 301, 67, 5);

/// The dropout of all tests here, with a rate of 0.3.
fn dropout() -> Dropout {
    Dropout { rate: 0.3, seed: 7, name: "a place".into(), first_row: 0 }
}

/// Draws the mask of a dropout one number after another: 0 or 1/(1 − rate), f64.
fn mask(dropout: &Dropout, shape: &[usize]) -> Tensor {
    let mut stream = Stream::new(dropout.seed, &dropout.name);
    let draw = |_| if stream.uniform() < dropout.rate { 0.0 } else { 1.0 / (1.0 - dropout.rate) };
    let mask: Vec<f32> = (0..shape.iter().product::<usize>()).map(draw).collect();
    Tensor::from_vec(mask, shape, &Device::Cpu).unwrap().to_dtype(DType::F64).unwrap()
}

// The mask is the same everywhere. In bf16 a value is rounded once, by 2⁻⁸ of itself at most.
on_each_device! {
    fn the_mask_is_that_of_the_stream_in_every_place(on) tolerance(1e-7, 4e-3) {
        // One block of threads and several, with a part of a block of the stream at the end.
        for shape in [[3, 5], [30, 301]] {
            let values = on.normal("values", &shape);
            let expected = (on.leaf(&values).as_tensor() * mask(&dropout(), &shape)).unwrap();
            let found = dropout().apply(&values).unwrap();
            on.close("values", &found, &expected);
            let [found, expected] = [found, expected.to_dtype(DType::F32).unwrap()].map(|all| to_host_f32(&all).unwrap());
            let dropped = |all: &[f32]| all.iter().map(|number| *number == 0.0).collect::<Vec<bool>>();
            assert_eq!(dropped(&found), dropped(&expected), "which values are dropped");
        }
    }

    // In bf16 A, B and what lies between them are rounded by 2⁻⁸ of themselves at most, and the result twice.
    fn only_the_way_through_the_adapter_loses_inputs(on) tolerance(3e-6, 1e-2) {
        let (tokens, inputs, outputs, rank) = SIDES;
        let (x, dy) = (on.normal("x", &[tokens, inputs]), on.normal("dy", &[tokens, outputs]));
        let (weight, bias) = (on.normal("weight", &[outputs, inputs]), on.single("bias", &[outputs]));
        let low = LowRank { a: on.single("a", &[rank, inputs]), b: on.single("b", &[outputs, rank]), scale: 1.7 };
        let (x64, a64, b64) = (on.leaf(&x), on.leaf(&low.a), on.leaf(&low.b));
        let dropped = (x64.as_tensor() * mask(&dropout(), &[tokens, inputs])).unwrap();
        let thin = dropped.matmul(&a64.t().unwrap()).unwrap();
        let added = (thin.matmul(&b64.t().unwrap()).unwrap() * f64::from(low.scale)).unwrap();
        let plain = x64.matmul(&on.leaf(&weight).t().unwrap()).unwrap();
        let reference = (plain.broadcast_add(&on.leaf(&bias)).unwrap() + added).unwrap();
        let (y, reduced) = adapted_linear(&x, &weight, Some(&bias), &low, Some(&dropout())).unwrap();
        on.close("y", &y, &reference);
        on.close("reduced", &reduced, &thin);
        let upper = reduced_gradient(&dy, &low).unwrap();
        let dx = adapted_input_gradient(&dy, &upper, &weight, &low, Some(&dropout()), None).unwrap();
        let da = linear_weight_gradient(1.0, &upper, &dropout().apply(&x).unwrap()).unwrap();
        let db = linear_weight_gradient(low.scale, &dy, &reduced).unwrap();
        let references = gradients(&reference, &on.leaf(&dy), &[&x64, &a64, &b64]);
        on.close("dx", &dx, &references[0]);
        on.nearly("da", &da, &references[1], 2.0);
        on.nearly("db", &db, &references[2], 2.0);
    }
}
