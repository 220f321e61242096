//! Places and shapes.

use super::Tensor;
use crate::error::certain;

super::elementwise::operations! {
    /// `length` entries of an axis from `start` on.
    slice(axis: i32, start: u32, length: u32);
    /// The same elements in another shape.
    reshape(shape: &[u32]);
    /// Two axes exchanged.
    transpose(first: i32, second: i32);
    /// A new axis of length 1.
    unsqueeze(axis: i32);
    /// Without an axis of length 1.
    squeeze(axis: i32);
    /// Repeated to a larger shape by the rules of broadcasting.
    expand(shape: &[u32]);
    /// Entries of an axis moved on by `shift` places, around the end.
    roll(axis: i32, shift: i32);
    /// An axis in reverse.
    flip(axis: i32);
}

impl Tensor {
    /// out\[i\]\[j\] = x\[index\[i\]\[j\]\]\[j\] for axis 0, and likewise for others; `index` is `u32`.
    #[track_caller]
    pub fn gather(&self, axis: i32, index: &Tensor) -> Tensor {
        Tensor::from_answer(self.handle().gather(axis, index.handle()))
    }

    /// The entries at the places of `index` (`u32`, one axis) along an axis.
    #[track_caller]
    pub fn index_select(&self, axis: i32, index: &Tensor) -> Tensor {
        Tensor::from_answer(self.handle().index_select(axis, index.handle()))
    }

    /// x with `source` added at the places of `index` (`u32`, one axis) along an axis.
    #[track_caller]
    pub fn index_add(&self, axis: i32, index: &Tensor, source: &Tensor) -> Tensor {
        Tensor::from_answer(self.handle().index_add(axis, index.handle(), source.handle()))
    }

    /// Sums of the entries of axis 0 that share a segment (`u32`, `[n]`): `count` entries, 0 for empty segments.
    #[track_caller]
    pub fn segment_sum(&self, segments: &Tensor, count: u32) -> Tensor {
        Tensor::from_answer(self.handle().segment_sum(segments.handle(), count))
    }

    /// The axis in `count` parts of equal length.
    #[track_caller]
    pub fn chunk(&self, axis: i32, count: u32) -> Vec<Tensor> {
        certain(self.handle().chunk(axis, count)).into_iter().map(Tensor::new).collect()
    }
}
