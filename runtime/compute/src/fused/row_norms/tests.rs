//! Lengths of rows against those of the sum itself in f64.

use candle_core::Device;

use super::super::reference::normal;
use super::*;
use crate::error::Error;
use crate::parity::{TestDevice, on_each_device};

const SIDES: (usize, usize, usize) = (37, 48, 5);

/// Returns a weight, the squared norms of its rows, and an adapter, on the device of a test.
fn layer(on: &TestDevice) -> (Tensor, Tensor, LowRank) {
    let (outputs, inputs, rank) = SIDES;
    let weight = on.normal("weight", &[outputs, inputs]);
    let squares = on.leaf(&weight).sqr().unwrap().sum(1).unwrap().to_dtype(DType::F32).unwrap();
    let low = LowRank { a: on.single("a", &[rank, inputs]), b: on.single("b", &[outputs, rank]), scale: 0.3 };
    (weight, on.put(&squares), low)
}

// In bf16 A is rounded by 2⁻⁸ of itself at most where W meets it.
on_each_device! {
    fn the_length_of_every_row_is_that_of_the_sum(on) tolerance(2e-6, 4e-3) {
        let (weight, squares, low) = layer(on);
        let added = on.leaf(&low.b).matmul(&on.leaf(&low.a)).unwrap();
        let sum = (on.leaf(&weight).as_tensor() + (added * f64::from(low.scale)).unwrap()).unwrap();
        let expected = sum.sqr().unwrap().sum(1).unwrap().sqrt().unwrap();
        let found = adapted_row_norms(&squares, &weight, &low, on.dtype).unwrap();
        assert_eq!(found.dtype(), DType::F32);
        on.close("lengths", &found, &expected);
    }

    fn a_row_of_nothing_has_no_length(on) tolerance(0.0, 0.0) {
        let zeros = |shape: &[usize], dtype| on.put(&Tensor::zeros(shape, dtype, &Device::Cpu).unwrap());
        // Rounding left its square below zero.
        let below = on.put(&(normal("squares", &[3]).abs().unwrap() * -1e-9).unwrap());
        let low = LowRank { a: zeros(&[2, 8], DType::F32), b: zeros(&[3, 2], DType::F32), scale: 1.0 };
        let found = adapted_row_norms(&below, &zeros(&[3, 8], on.dtype), &low, on.dtype).unwrap();
        on.close("lengths", &found, &Tensor::zeros(3, DType::F64, &Device::Cpu).unwrap());
    }

    fn quotients_go_number_by_number(on) tolerance(2e-7, 2e-7) {
        let (a, b) = (on.single("a", &[1003]), on.single("b", &[1003]));
        let expected = (on.leaf(&a).as_tensor() / on.leaf(&b).as_tensor()).unwrap();
        on.close("a / b", &divide(&a, &b).unwrap(), &expected);
        assert!(matches!(divide(&a, &on.single("b", &[5])), Err(Error::Shape(_))));
    }

    fn adapters_of_another_side_are_refused(on) tolerance(0.0, 0.0) {
        let (weight, squares, low) = layer(on);
        let narrow = LowRank { a: on.single("a", &[SIDES.2, 47]), ..low.clone() };
        assert!(matches!(adapted_row_norms(&squares, &weight, &narrow, on.dtype), Err(Error::Shape(_))));
        let short = on.single("squares", &[SIDES.0 - 1]);
        assert!(matches!(adapted_row_norms(&short, &weight, &low, on.dtype), Err(Error::Shape(_))));
    }
}
