//! `+ − · /` between tensors, references to tensors and `f32`, and the minus sign.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{Tensor, full};
use crate::bindings::tunebox::method::tensor;

/// One operator between two tensors, owned or borrowed, through one function of the contract.
macro_rules! between_tensors {
    ($operator:ident, $method:ident, $function:ident, [$(($left:ty, $right:ty)),+]) => {
        $(
            impl $operator<$right> for $left {
                type Output = Tensor;

                #[track_caller]
                fn $method(self, other: $right) -> Tensor {
                    Tensor::from_answer(tensor::$function(self.handle(), other.handle()))
                }
            }
        )+
    };
}

/// One operator with a number on either side.
macro_rules! with_numbers {
    ($operator:ident, $method:ident, [$($side:ty),+], |$x:ident, $number:ident| $right:expr, $left:expr) => {
        $(
            impl $operator<f32> for $side {
                type Output = Tensor;

                #[track_caller]
                fn $method(self, $number: f32) -> Tensor {
                    let $x = &self;
                    $right
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
        )+
    };
}

macro_rules! operator {
    ($operator:ident, $method:ident, $function:ident, |$x:ident, $number:ident| $right:expr, $left:expr) => {
        between_tensors!(
            $operator,
            $method,
            $function,
            [(Tensor, Tensor), (Tensor, &Tensor), (&Tensor, Tensor), (&Tensor, &Tensor)]
        );
        with_numbers!($operator, $method, [Tensor, &Tensor], |$x, $number| $right, $left);
    };
}

operator!(Add, add, add, |x, number| x.add_scalar(number.into()), x.add_scalar(number.into()));
operator!(Sub, sub, subtract, |x, number| x.add_scalar((-number).into()), full(&[], number) - x.reference());
operator!(Mul, mul, multiply, |x, number| x.scale(number.into()), x.scale(number.into()));
operator!(Div, div, divide, |x, number| x.reference() / full(&[], number), full(&[], number) / x.reference());

impl Tensor {
    /// A reference from an owner or a reference alike, for the macros above.
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
