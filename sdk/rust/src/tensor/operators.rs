//! `+ − · /` between tensors, references to tensors and numbers, and the minus sign.
//!
//! On the right any number does. On the left a number is `f32` or `i32`: with one type of each, the compiler knows what
//! `2 * x` and `0.5 * x` are before it knows the type of the literal, so that `(0.5 * x).sum(All)` compiles.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{Operand, Tensor, full};
use crate::bindings::tunebox::method::tensor;

/// One operator: between two tensors by a function of the contract, and with a number on either side.
macro_rules! operator {
    ($operator:ident, $method:ident, $function:ident, |$x:ident, $number:ident| $right:expr, $left:expr) => {
        operator!($operator, $method, $function, |$x, $number| $right, $left, Tensor);
        operator!($operator, $method, $function, |$x, $number| $right, $left, &Tensor);
    };
    ($operator:ident, $method:ident, $function:ident, |$x:ident, $number:ident| $right:expr, $left:expr, $side:ty) => {
        impl<O: Operand> $operator<O> for $side {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, other: O) -> Tensor {
                let $x = &self;
                match other.number() {
                    Some($number) => $right,
                    None => Tensor::from_answer(other.with(|other| tensor::$function($x.handle(), other.handle()))),
                }
            }
        }

        operator!($operator, $method, |$x, $number| $left, $side, f32);
        operator!($operator, $method, |$x, $number| $left, $side, i32);
    };
    ($operator:ident, $method:ident, |$x:ident, $number:ident| $left:expr, $side:ty, $kind:ty) => {
        impl $operator<$side> for $kind {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, $x: $side) -> Tensor {
                let ($x, $number) = (&$x, f64::from(self));
                $left
            }
        }
    };
}

operator!(Add, add, add, |x, number| x.add_scalar(number), x.add_scalar(number));
operator!(Sub, sub, subtract, |x, number| x.add_scalar(-number), scalar(number) - x.reference());
operator!(Mul, mul, multiply, |x, number| x.scale(number), x.scale(number));
operator!(Div, div, divide, |x, number| x.reference() / scalar(number), scalar(number) / x.reference());

/// A number as a tensor of one element, `f32`.
#[track_caller]
fn scalar(number: f64) -> Tensor {
    full(&[], number as f32)
}

impl Tensor {
    /// Returns `self`: an auto-reference that the macro above applies to owned tensors and references alike.
    fn reference(&self) -> &Tensor {
        self
    }
}

impl Neg for Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        self.negate()
    }
}

impl Neg for &Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        self.negate()
    }
}

#[cfg(test)]
mod tests {
    use crate::native::tests::{Script, beside};
    use crate::native::{Connected, Role};
    use crate::tensor::{All, Dtype, Tensor, zeros};

    #[test]
    fn a_number_beside_a_tensor_is_one_request_and_a_clone_is_none() {
        let script = |host: &mut Script| {
            host.asked("tensor/zeros", &(vec![1_u32], 5_u8), &Ok::<u32, ()>(6));
            host.asked("tensor/[method]tensor.scale", &(6_u32, 2.0_f64), &Ok::<u32, ()>(7));
            // The last of both names is gone.
            host.asked("tensor/[resource-drop]tensor", &6_u32, &());
            host.asked("tensor/[method]tensor.add-scalar", &(7_u32, -0.1_f64), &Ok::<u32, ()>(8));
            host.asked("tensor/[resource-drop]tensor", &8_u32, &());
            host.asked("tensor/[resource-drop]tensor", &7_u32, &());
        };
        beside(script, |stream| {
            let _connected = Connected::new(stream, Role::Bench).unwrap();
            let x = zeros(&[1], Dtype::F32);
            let again = x.clone();
            drop(x);
            let doubled = 2 * again;
            drop(&doubled - 0.1);
        });
    }

    /// Compiles: every operator takes every number on the right, literals on the left, and both owned and borrowed tensors.
    #[expect(dead_code, reason = "to compile it is the claim")]
    fn every_operator_takes_numbers_of_every_type(x: &Tensor, n: usize) -> Vec<Tensor> {
        let right = [x * 2, x / 2.0, x + 2_u32, x - n, x.clone() * 2_i64, x.clone() / 2.0_f64, x.clone() + 2.0_f32];
        let left = [2 * x, 2.0 / x, 1 + x.clone(), 1.0 - x.clone(), 0.5_f32 * x, 3_i32 / x];
        let known_at_once = [(2 * x).sum(All), (1.0 - x).sum(All), (x * 2).sum(All), x.maximum(0), x.minimum(0.5)];
        right.into_iter().chain(left).chain(known_at_once).collect()
    }
}
