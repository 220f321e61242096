//! How the operations call the host: the macros that `operations` is written with, and the arguments that authors write in
//! more than one way.

use super::{Tensor, full};
use crate::bindings::tunebox::method::tensor;
use crate::error::certain;

/// The elements that a reduction runs over. An axis counts from 0, or from the end when negative.
#[derive(Clone, Copy)]
pub struct Over {
    pub(super) axis: Option<i32>,
    pub(super) keep: bool,
}

/// Over all elements: the result is one element.
#[derive(Clone, Copy)]
pub struct All;

/// Over one axis that stays with length 1.
#[derive(Clone, Copy)]
pub struct Keep(pub i32);

impl From<All> for Over {
    fn from(_: All) -> Self {
        Self { axis: None, keep: false }
    }
}

impl From<i32> for Over {
    fn from(axis: i32) -> Self {
        Self { axis: Some(axis), keep: false }
    }
}

impl From<Keep> for Over {
    fn from(Keep(axis): Keep) -> Self {
        Self { axis: Some(axis), keep: true }
    }
}

/// An operand beside a tensor: a tensor, or a number that becomes one.
pub trait Operand {
    /// Calls `work` with the operand as a tensor and returns its result. A number becomes a scalar tensor.
    #[track_caller]
    #[doc(hidden)]
    fn with<R>(&self, work: impl FnOnce(&Tensor) -> R) -> R;

    /// The operand, if it is a number: some functions of the contract take one directly.
    #[doc(hidden)]
    fn number(&self) -> Option<f64> {
        None
    }
}

impl Operand for Tensor {
    #[track_caller]
    fn with<R>(&self, work: impl FnOnce(&Tensor) -> R) -> R {
        work(self)
    }
}

/// Numbers as operands. A tensor that is made of one is `f32`.
macro_rules! numbers {
    ($($kind:ty),+) => {
        $(
            impl Operand for $kind {
                #[track_caller]
                fn with<R>(&self, work: impl FnOnce(&Tensor) -> R) -> R {
                    work(&full(&[], *self as f32))
                }

                fn number(&self) -> Option<f64> {
                    Some(*self as f64)
                }
            }
        )+
    };
}

numbers!(f32, f64, i32, i64, u32, u64, usize);

impl<O: Operand> Operand for &O {
    #[track_caller]
    fn with<R>(&self, work: impl FnOnce(&Tensor) -> R) -> R {
        (**self).with(work)
    }

    fn number(&self) -> Option<f64> {
        (**self).number()
    }
}

/// An argument as the bindings take it: tensors by their handles, anything else as it is.
pub(super) trait Lower {
    type Lowered;

    fn lower(self) -> Self::Lowered;
}

impl<'a> Lower for &'a Tensor {
    type Lowered = &'a tensor::Tensor;

    fn lower(self) -> Self::Lowered {
        self.handle()
    }
}

macro_rules! lower_unchanged {
    ($($kind:ty),+) => {
        $(
            impl Lower for $kind {
                type Lowered = Self;

                fn lower(self) -> Self {
                    self
                }
            }
        )+
    };
}

lower_unchanged!(bool, u32, i32, f32, f64, Option<f64>, super::Dtype, &[u32], &[f32], &str);

/// A method of a tensor: a panic on the caller's line if the host refuses it.
macro_rules! method {
    ([$(#[$doc:meta])+] $name:ident($($argument:ident: $kind:ty),*)) => {
        $(#[$doc])+
        #[track_caller]
        pub fn $name(&self $(, $argument: $kind)*) -> Tensor {
            Tensor::from_answer(self.handle().$name($($crate::tensor::call::Lower::lower($argument)),*))
        }
    };
    ([$(#[$doc:meta])+] $name:ident($($argument:ident: $kind:ty),*) over($($after:ident: $type:ty),*)) => {
        $(#[$doc])+
        #[track_caller]
        pub fn $name(
            &self
            $(, $argument: $kind)*,
            over: impl Into<$crate::tensor::Over>
            $(, $after: $type)*
        ) -> Tensor {
            let $crate::tensor::Over { axis, keep } = over.into();
            Tensor::from_answer(
                self.handle().$name($($crate::tensor::call::Lower::lower($argument),)* axis, keep $(, $after)*)
            )
        }
    };
}

/// Methods of a tensor; `over(...)` stands for the axis of a reduction.
macro_rules! methods {
    ($($(#[$doc:meta])+ $name:ident($($before:tt)*) $(over($($after:tt)*))?;)+) => {
        impl Tensor {
            $($crate::tensor::call::method! { [$(#[$doc])+] $name($($before)*) $(over($($after)*))? })+
        }
    };
}

/// Functions of two operands as methods of the first.
macro_rules! comparisons {
    ($($(#[$doc:meta])+ $name:ident;)+) => {
        impl Tensor {
            $(
                $(#[$doc])+
                ///
                /// Here a is `self` and b is `other`, a tensor or a number.
                #[track_caller]
                pub fn $name(&self, other: impl $crate::tensor::Operand) -> Tensor {
                    use $crate::bindings::tunebox::method::tensor;
                    Tensor::from_answer(other.with(|other| tensor::$name(self.handle(), other.handle())))
                }
            )+
        }
    };
}

/// Functions that belong to no tensor.
macro_rules! functions {
    ($($(#[$doc:meta])+ $name:ident($($argument:ident: $kind:ty),*);)+) => {
        $(
            $(#[$doc])+
            #[track_caller]
            pub fn $name($($argument: $kind),*) -> Tensor {
                use $crate::bindings::tunebox::method::tensor;
                Tensor::from_answer(tensor::$name($($crate::tensor::call::Lower::lower($argument)),*))
            }
        )+
    };
}

/// Functions of a list of tensors.
macro_rules! list_functions {
    ($($(#[$doc:meta])+ $name:ident($($argument:ident: $kind:ty),*);)+) => {
        $(
            $(#[$doc])+
            #[track_caller]
            pub fn $name(tensors: &[&Tensor] $(, $argument: $kind)*) -> Tensor {
                use $crate::bindings::tunebox::method::tensor;
                let handles: Vec<_> = tensors.iter().map(|tensor| tensor.handle()).collect();
                Tensor::from_answer(tensor::$name(&handles $(, $argument)*))
            }
        )+
    };
}

pub(super) use {comparisons, functions, list_functions, method, methods};

/// `a` where `condition` (`u8`) is not 0, `b` elsewhere; a value not taken has gradient 0 even if it is NaN.
#[track_caller]
pub fn where_(condition: &Tensor, a: impl Operand, b: impl Operand) -> Tensor {
    Tensor::from_answer(a.with(|a| b.with(|b| tensor::where_(condition.handle(), a.handle(), b.handle()))))
}

impl Tensor {
    /// Splits the axis into `count` parts of equal length, at most 1,024.
    #[track_caller]
    pub fn chunk(&self, axis: i32, count: u32) -> Vec<Tensor> {
        certain(self.handle().chunk(axis, count)).into_iter().map(Tensor::new).collect()
    }
}
