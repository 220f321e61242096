//! `+ − · /` between tensors, references to tensors and `f32`, and the minus sign.

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

        impl $operator<$side> for f32 {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, $x: $side) -> Tensor {
                let ($x, $number) = (&$x, self);
                $left
            }
        }
    };
}

operator!(Add, add, add, |x, number| x.add_scalar(number.into()), x.add_scalar(number.into()));
operator!(Sub, sub, subtract, |x, number| x.add_scalar((-number).into()), full(&[], number) - x.reference());
operator!(Mul, mul, multiply, |x, number| x.scale(number.into()), x.scale(number.into()));
operator!(Div, div, divide, |x, number| x.reference() / full(&[], number), full(&[], number) / x.reference());

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
