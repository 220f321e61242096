//! A tensor seen along one axis: `[outer, length, inner]`, whatever its rank.
//!
//! Reductions and scans work on this view only, so each of them is written for one shape.
//! Without an axis the whole tensor is one lane.

use candle_core::{DType, Tensor};

use super::check;
use super::graph::Raw;
use crate::error::Result;

/// How a tensor is cut into lanes.
#[derive(Debug, Clone)]
pub(super) struct Lanes {
    dims: Vec<usize>,
    axis: Option<usize>,
    pub(super) outer: usize,
    pub(super) length: usize,
    pub(super) inner: usize,
}

impl Lanes {
    /// Along one axis.
    pub(super) fn along(x: &Tensor, axis: i32) -> Result<Self> {
        Self::over(x, Some(axis))
    }

    /// Along one axis, or over everything.
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

    /// The view `[outer, length, inner]` of a tensor with the original shape; wide, without a graph.
    pub(super) fn view(&self, x: &Tensor) -> Raw<Tensor> {
        super::graph::wide(x)?.reshape((self.outer, self.length, self.inner))
    }

    /// The view `[outer, 1, inner]` of a tensor with the reduced shape.
    pub(super) fn view_reduced(&self, y: &Tensor) -> Raw<Tensor> {
        y.contiguous()?.reshape((self.outer, 1, self.inner))
    }

    /// A reduced tensor repeated along its lane.
    pub(super) fn spread(&self, y: &Tensor) -> Raw<Tensor> {
        y.broadcast_as((self.outer, self.length, self.inner))
    }

    /// The shape of a reduction; `keep` leaves the axis with length 1.
    pub(super) fn reduced(&self, keep: bool) -> Vec<usize> {
        match (self.axis, keep) {
            (None, true) => vec![1; self.dims.len()],
            (None, false) => Vec::new(),
            (Some(axis), true) => check::resized(&self.dims, axis, 1),
            (Some(axis), false) => {
                let others = self.dims.iter().enumerate().filter(|(place, _)| *place != axis);
                others.map(|(_, length)| *length).collect()
            }
        }
    }

    /// The original shape with another length along the axis.
    pub(super) fn resized(&self, length: usize) -> Vec<usize> {
        self.axis.map_or_else(|| self.dims.clone(), |axis| check::resized(&self.dims, axis, length))
    }

    /// The numbers of all lanes times the doublings that make up a lane: how sorting and running sums are measured.
    pub(super) fn numbers_times_doublings(&self) -> u64 {
        (self.outer * self.length * self.inner) as u64 * u64::from(usize::BITS - self.length.leading_zeros())
    }

    /// The original shape.
    pub(super) fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The sums of all lanes, `[outer, 1, inner]`.
    pub(super) fn sum(&self, x: &Tensor) -> Raw<Tensor> {
        if self.inner == 1 {
            // The last axis is summed in one sweep, a middle one entry by entry.
            return x.reshape((self.outer, self.length))?.sum_keepdim(1)?.unsqueeze(2);
        }
        x.sum_keepdim(1)
    }

    /// The places 0 … length − 1, as `u32`, spread to all lanes.
    pub(super) fn places(&self, x: &Tensor) -> Raw<Tensor> {
        let last = u32::try_from(self.length).map_err(candle_core::Error::wrap)?;
        Tensor::arange(0, last, x.device())?.reshape((1, self.length, 1)).and_then(|places| self.spread(&places))
    }

    /// How many entries of each lane a `u8` marks, `[outer, 1, inner]`, as `u32`.
    pub(super) fn marked(&self, marks: &Tensor) -> Raw<Tensor> {
        self.sum(&marks.ne(&marks.zeros_like()?)?.to_dtype(DType::U32)?)
    }
}
