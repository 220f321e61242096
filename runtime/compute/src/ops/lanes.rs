//! A view of a tensor along one axis: `[outer, length, inner]`, whatever its rank. A lane is the `length` entries along
//! the axis at one index of `outer` and one of `inner`; without an axis, the whole tensor is one lane.
//!
//! Reductions and scans work on this view only, so each of them is written for one shape.

use candle_core::{DType, Tensor};

use super::check;
use super::graph::CandleResult;
use crate::error::Result;

/// How a tensor is cut into lanes along an axis. `length` is that of the axis; `outer` and `inner` are the products of
/// the lengths of the axes before and after it.
#[derive(Debug, Clone)]
pub(super) struct Lanes {
    dims: Vec<usize>,
    axis: Option<usize>,
    pub(super) outer: usize,
    pub(super) length: usize,
    pub(super) inner: usize,
}

impl Lanes {
    /// Cuts a tensor into lanes along one axis, counted from the end if negative. Copies no data.
    /// [`crate::Error::Argument`] if there is no such axis.
    pub(super) fn along(x: &Tensor, axis: i32) -> Result<Self> {
        Self::over(x, Some(axis))
    }

    /// Cuts a tensor into lanes along one axis, counted from the end if negative, or makes the whole tensor one lane if
    /// `axis` is `None`. Copies no data. [`crate::Error::Argument`] if there is no such axis.
    pub(super) fn over(x: &Tensor, axis: Option<i32>) -> Result<Self> {
        let dims = x.dims().to_vec();
        let Some(axis) = axis else {
            return Ok(Self { axis: None, outer: 1, length: x.elem_count(), inner: 1, dims });
        };
        let axis = check::axis(x, axis)?;
        let outer = dims.iter().take(axis).product();
        let inner = dims.iter().skip(axis + 1).product();
        Ok(Self { axis: Some(axis), outer, length: check::length(&dims, axis), inner, dims })
    }

    /// Reshapes a tensor of the original shape to `[outer, length, inner]`, outside the graph. f16 and bf16 are widened
    /// to f32; other types stay.
    pub(super) fn view(&self, x: &Tensor) -> CandleResult<Tensor> {
        super::graph::wide(x)?.reshape((self.outer, self.length, self.inner))
    }

    /// Reshapes a tensor of the reduced shape to `[outer, 1, inner]`.
    pub(super) fn view_reduced(&self, y: &Tensor) -> CandleResult<Tensor> {
        y.contiguous()?.reshape((self.outer, 1, self.inner))
    }

    /// Broadcasts `[outer, 1, inner]` to `[outer, length, inner]`.
    pub(super) fn spread(&self, y: &Tensor) -> CandleResult<Tensor> {
        y.broadcast_as((self.outer, self.length, self.inner))
    }

    /// The shape of a reduction along the axis; with `keep` the axis stays with length 1. Without an axis, every axis
    /// is reduced.
    pub(super) fn reduced(&self, keep: bool) -> Vec<usize> {
        match (self.axis, keep) {
            (None, true) => vec![1; self.dims.len()],
            (None, false) => Vec::new(),
            (Some(axis), true) => check::resize_axis(&self.dims, axis, 1),
            (Some(axis), false) => {
                let others = self.dims.iter().enumerate().filter(|(place, _)| *place != axis);
                others.map(|(_, length)| *length).collect()
            }
        }
    }

    /// The original shape with `length` on the axis. Without an axis, the original shape.
    pub(super) fn with_length(&self, length: usize) -> Vec<usize> {
        self.axis.map_or_else(|| self.dims.clone(), |axis| check::resize_axis(&self.dims, axis, length))
    }

    /// The unit by which sorting and running sums are charged: the number of elements times the bits of the lane length
    /// (about log₂ of it).
    pub(super) fn numbers_times_doublings(&self) -> u64 {
        (self.outer * self.length * self.inner) as u64 * u64::from(usize::BITS - self.length.leading_zeros())
    }

    /// The original shape of the tensor.
    pub(super) fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Sums every lane of `[outer, length, inner]`: `[outer, 1, inner]`.
    pub(super) fn sum(&self, x: &Tensor) -> CandleResult<Tensor> {
        if self.inner == 1 {
            // The last axis is summed in one sweep, a middle one entry by entry.
            return x.reshape((self.outer, self.length))?.sum_keepdim(1)?.unsqueeze(2);
        }
        x.sum_keepdim(1)
    }

    /// The indices 0 … length − 1 of a lane's entries, as `u32`, broadcast to `[outer, length, inner]`, on the device
    /// of `x`.
    pub(super) fn indices(&self, x: &Tensor) -> CandleResult<Tensor> {
        let last = u32::try_from(self.length).map_err(candle_core::Error::wrap)?;
        Tensor::arange(0, last, x.device())?.reshape((1, self.length, 1)).and_then(|places| self.spread(&places))
    }

    /// Counts the entries of each lane that are not 0: `[outer, 1, inner]`, as `u32`.
    pub(super) fn count_nonzero(&self, marks: &Tensor) -> CandleResult<Tensor> {
        self.sum(&marks.ne(&marks.zeros_like()?)?.to_dtype(DType::U32)?)
    }
}
