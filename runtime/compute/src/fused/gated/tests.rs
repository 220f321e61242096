//! The gates against plain operations in f64.

use candle_core::Var;

use super::super::reference::{gradients, normal, same_on_two_threads};
use super::*;
use crate::error::Error;
use crate::fused::to_host_f32;
use crate::parity::on_each_device;

const BOTH: [Activation; 2] = [Activation::Silu, Activation::GeluTanh];

/// Computes `activation(gate) · up` by plain operations. GELU is written out, because the tensor library's own has a
/// rounded derivative.
fn reference(gate: &Var, up: &Var, activation: Activation) -> Tensor {
    let gate = gate.as_tensor();
    let inner = match activation {
        Activation::Silu => gate.clone(),
        Activation::GeluTanh => {
            let cubic = (gate.powf(3.0).unwrap() * 0.044_715).unwrap();
            ((gate + cubic).unwrap() * (2.0 * (2.0 / std::f64::consts::PI).sqrt())).unwrap()
        }
    };
    // ½(1 + tanh(z)) is the sigmoid of 2z.
    let open = (inner.neg().unwrap().exp().unwrap() + 1.0).unwrap().recip().unwrap();
    ((gate * open).unwrap() * up.as_tensor()).unwrap()
}

// In bf16 a result is rounded once, by 2⁻⁸ of itself at most.
on_each_device! {
    fn output_and_gradients_agree_with_autograd(on) tolerance(5e-7, 4e-3) {
        for shape in [[37, 501], [3, 2056]] {
            let (gate, up, dy) = (normal("gate", &shape), on.normal("up", &shape), on.normal("dy", &shape));
            let gate = on.place(&(gate * 4.0).unwrap());
            for activation in BOTH {
                let (gate64, up64) = (on.leaf(&gate), on.leaf(&up));
                let expected = reference(&gate64, &up64, activation);
                on.close("y", &gated(&gate, &up, activation).unwrap(), &expected);
                let (dgate, dup) = gated_backward(&dy, &gate, &up, activation).unwrap();
                let references = gradients(&expected, &on.leaf(&dy), &[&gate64, &up64]);
                on.close("dgate", &dgate, &references[0]);
                on.close("dup", &dup, &references[1]);
                let (same_gate, same_up, again) = gated_backward_with_result(&dy, &gate, &up, activation).unwrap();
                on.close("dgate beside y", &same_gate, &references[0]);
                on.close("dup beside y", &same_up, &references[1]);
                on.close("y again", &again, &expected);
            }
        }
    }
}

on_each_device! {
    fn far_from_zero_a_gate_is_shut_or_open_and_never_not_a_number(on) tolerance(0.0, 0.0) {
        let cpu = &candle_core::Device::Cpu;
        let gate = on.place(&Tensor::new(&[-200f32, -90.0, 90.0, 200.0], cpu).unwrap());
        let up = on.place(&Tensor::ones(4, candle_core::DType::F32, cpu).unwrap());
        for activation in BOTH {
            let y = to_host_f32(&gated(&gate, &up, activation).unwrap()).unwrap();
            assert!(y[0].abs() < 1e-30 && y[1].abs() < 1e-30, "{y:?}");
            assert_eq!(y[2..], [90.0, 200.0]);
            let slopes = to_host_f32(&gated_backward(&up, &gate, &up, activation).unwrap().0).unwrap();
            assert!(slopes[..2].iter().all(|slope| slope.abs() < 1e-30), "{slopes:?}");
            assert_eq!(slopes[2..], [1.0, 1.0]);
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let shape = [100, 999];
    let (gate, up, dy) = (normal("gate", &shape), normal("up", &shape), normal("dy", &shape));
    same_on_two_threads(|| {
        let (dgate, dup) = gated_backward(&dy, &gate, &up, Activation::Silu).unwrap();
        vec![gated(&gate, &up, Activation::GeluTanh).unwrap(), dgate, dup]
    });
}

#[test]
fn gates_of_another_shape_are_refused() {
    let refused = gated(&normal("a", &[2, 3]), &normal("b", &[3, 2]), Activation::Silu);
    assert!(matches!(refused, Err(Error::Shape(_))));
}
