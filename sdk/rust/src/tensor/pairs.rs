//! Two operands and more.

use super::{Tensor, full};
use crate::bindings::tunebox::method::tensor;

/// What can stand beside a tensor: a tensor, or a number that becomes one.
pub trait Operand {
    /// Does something with the operand's handle.
    #[track_caller]
    #[doc(hidden)]
    fn with<R>(&self, work: impl FnOnce(&Tensor) -> R) -> R;
}

impl Operand for Tensor {
    #[track_caller]
    fn with<R>(&self, work: impl FnOnce(&Tensor) -> R) -> R {
        work(self)
    }
}

impl Operand for f32 {
    #[track_caller]
    fn with<R>(&self, work: impl FnOnce(&Tensor) -> R) -> R {
        work(&full(&[], *self))
    }
}

impl<O: Operand> Operand for &O {
    #[track_caller]
    fn with<R>(&self, work: impl FnOnce(&Tensor) -> R) -> R {
        (**self).with(work)
    }
}

macro_rules! comparisons {
    ($($(#[$doc:meta])+ $name:ident;)+) => {
        impl Tensor {
            $(
                $(#[$doc])+
                #[track_caller]
                pub fn $name(&self, other: impl Operand) -> Tensor {
                    Tensor::from_answer(other.with(|other| tensor::$name(self.handle(), other.handle())))
                }
            )+
        }
    };
}

comparisons! {
    /// The smaller of both; equal ones share the gradient.
    minimum;
    /// The larger of both; equal ones share the gradient.
    maximum;
    /// 1 where both are equal, as `u8`.
    equal;
    /// 1 where they differ, as `u8`.
    not_equal;
    /// 1 where this one is smaller, as `u8`.
    less;
    /// 1 where this one is smaller or equal, as `u8`.
    less_equal;
    /// 1 where this one is larger, as `u8`.
    greater;
    /// 1 where this one is larger or equal, as `u8`.
    greater_equal;
    /// 1 where both `u8` are not 0, as `u8`.
    logical_and;
    /// 1 where either `u8` is not 0, as `u8`.
    logical_or;
}

/// `a` where `condition` (`u8`) is not 0, `b` elsewhere; a value not taken has gradient 0 even if it is NaN.
#[track_caller]
pub fn choose(condition: &Tensor, a: impl Operand, b: impl Operand) -> Tensor {
    Tensor::from_answer(a.with(|a| b.with(|b| tensor::choose(condition.handle(), a.handle(), b.handle()))))
}

/// The matrix product over the last two axes; the axes before them are equal or broadcast.
#[track_caller]
pub fn matmul(a: &Tensor, b: &Tensor) -> Tensor {
    Tensor::from_answer(tensor::matmul(a.handle(), b.handle()))
}

/// The outer product of two vectors, `[n, m]`.
#[track_caller]
pub fn outer(a: &Tensor, b: &Tensor) -> Tensor {
    Tensor::from_answer(tensor::outer(a.handle(), b.handle()))
}

/// The inner product of two vectors, one element.
#[track_caller]
pub fn dot(a: &Tensor, b: &Tensor) -> Tensor {
    Tensor::from_answer(tensor::dot(a.handle(), b.handle()))
}

/// Tensors one after another along an axis that exists; at most 1,024.
#[track_caller]
pub fn concat(tensors: &[&Tensor], axis: i32) -> Tensor {
    Tensor::from_answer(tensor::concat(&handles(tensors), axis))
}

/// Tensors of one shape along a new axis; at most 1,024.
#[track_caller]
pub fn stack(tensors: &[&Tensor], axis: i32) -> Tensor {
    Tensor::from_answer(tensor::stack(&handles(tensors), axis))
}

fn handles<'a>(tensors: &[&'a Tensor]) -> Vec<&'a tensor::Tensor> {
    tensors.iter().map(|tensor| tensor.handle()).collect()
}
