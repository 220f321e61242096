//! Reductions: over one axis, or over all.

use super::Tensor;

/// What a reduction runs over. An axis counts from 0, or from the end when negative.
#[derive(Clone, Copy)]
pub struct Over {
    axis: Option<i32>,
    keep: bool,
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

macro_rules! reductions {
    ($($(#[$doc:meta])+ $name:ident($($argument:ident: $kind:ty),*);)+) => {
        impl Tensor {
            $(
                $(#[$doc])+
                #[track_caller]
                pub fn $name(&self, over: impl Into<Over> $(, $argument: $kind)*) -> Tensor {
                    let Over { axis, keep } = over.into();
                    Tensor::from_answer(self.handle().$name(axis, keep $(, $argument)*))
                }
            )+
        }
    };
}

reductions! {
    /// The sum.
    sum();
    /// The mean.
    mean();
    /// The largest; the first of equals takes the gradient.
    max();
    /// The smallest; the first of equals takes the gradient.
    min();
    /// log Σ eˣ, without overflow.
    log_sum_exp();
    /// √Σ x²; the gradient at 0 is 0.
    norm();
    /// The sum of the entries that are not NaN; 0 when there is none.
    sum_of_finite();
    /// The mean of the entries that are not NaN; NaN when there is none.
    mean_of_finite();
    /// The variance with divisor n − `correction`; NaN when that is not positive.
    variance(correction: u32);
    /// The square root of `variance`; the gradient at 0 is 0.
    standard_deviation(correction: u32);
    /// `standard_deviation` over the entries that are not NaN. No gradient.
    standard_deviation_of_finite(correction: u32);
    /// How many entries of a `u8` are not 0, as `f32`.
    count();
    /// 1 if any entry of a `u8` is not 0, as `u8`.
    any();
    /// 1 if no entry of a `u8` is 0, as `u8`.
    all();
    /// The place of the largest, the first of equals, as `u32`.
    argmax();
}

impl Tensor {
    /// Σ x·m with a mask of the same shape (broadcast). A masked entry counts exactly 0 even if it is NaN.
    #[track_caller]
    pub fn masked_sum(&self, mask: &Tensor, over: impl Into<Over>) -> Tensor {
        let Over { axis, keep } = over.into();
        Tensor::from_answer(self.handle().masked_sum(mask.handle(), axis, keep))
    }

    /// [`masked_sum`](Self::masked_sum) divided by max(Σ m, 1).
    #[track_caller]
    pub fn masked_mean(&self, mask: &Tensor, over: impl Into<Over>) -> Tensor {
        let Over { axis, keep } = over.into();
        Tensor::from_answer(self.handle().masked_mean(mask.handle(), axis, keep))
    }
}

super::elementwise::operations! {
    /// Running sums along an axis.
    cumulative_sum(axis: i32);
    /// Exponentials divided by their sum along an axis.
    softmax(axis: i32);
    /// log of `softmax`, without overflow.
    log_softmax(axis: i32);
}
