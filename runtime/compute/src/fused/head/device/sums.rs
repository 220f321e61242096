//! The sums over the vocabulary that kernels keep for every row, and the taps computed from them.

use std::ops::Range;

use candle_core::{DType, Tensor};

use super::Head;
use crate::accelerator::{Argument, Grid, extent, kernel};
use crate::error::Result;
use crate::fused::head::HeadTaps;
use crate::fused::taps::{Tap, TapSet};

/// Threads, one for each row, of a block of the kernel that computes the taps.
const THREADS: usize = 128;

/// Returns which optional sums the taps need, as the bits that `kernels/head.h` knows: 1 for the entropy, 2 for
/// squares, 4 for the mean.
pub(super) fn wanted(taps: TapSet) -> u32 {
    let mean = taps.contains(Tap::MeanLogit) || taps.contains(Tap::MeanLogprob);
    u32::from(taps.contains(Tap::Entropy)) | u32::from(taps.contains(Tap::LogSumSquare)) << 1 | u32::from(mean) << 2
}

/// Running sums, `[rows]` each: the largest logit, the target's logit, Σ e, Σ e², Σ e·(z − largest), Σ z with
/// e = exp(z − largest). The kernel for the first tile initializes all that the taps need.
pub(super) struct Sums([Tensor; 6]);

impl Sums {
    /// Allocates the sums of all rows; their content is unspecified until the kernel of the first tile has run.
    pub(super) fn new(head: &Head<'_>) -> Result<Self> {
        let new = |dtype| head.device.empty(&[head.rows], dtype);
        let (single, double) = (DType::F32, DType::F64);
        Ok(Self([new(single)?, new(single)?, new(double)?, new(double)?, new(double)?, new(double)?]))
    }

    /// Returns views of the six running sums for a block of rows, in the order that [`Sums`] lists them.
    pub(super) fn of(&self, block: &Range<usize>) -> Result<[Tensor; 6]> {
        let mut all = self.0.clone();
        for sums in &mut all {
            *sums = sums.narrow(0, block.start, block.len())?;
        }
        Ok(all)
    }

    /// Returns the target's logit, f32, and Σ e, f64, of all rows.
    pub(super) fn target_and_sum(&self) -> (&Tensor, &Tensor) {
        (&self.0[1], &self.0[2])
    }

    /// Computes the taps of all rows from the sums and copies them to the host in one read. Waits for the device.
    /// Without rows, returns empty lists at once.
    pub(super) fn taps(&self, head: &Head<'_>) -> Result<HeadTaps> {
        let (asked, rows) = (head.options.taps, head.rows);
        if rows == 0 {
            return Ok(HeadTaps::new(asked));
        }
        // One buffer for all outputs of the kernel: the log-probability, ln Σ exp, then the taps that were asked for.
        let all = head.device.empty(&[(1 + asked.iter().count()) * rows], DType::F32)?;
        let mut start = 0;
        let mut next = || {
            start += rows;
            all.narrow(0, start - rows, rows)
        };
        let mut outputs = Vec::with_capacity(1 + Tap::ALL.len());
        for tap in TapSet::OF_ONE_HEAD.iter() {
            outputs.push(asked.contains(tap).then(&mut next).transpose()?);
            if tap == Tap::Logprob {
                outputs.push(Some(next()?));
            }
        }
        let mut arguments: Vec<Argument<'_>> = self.0.iter().map(Argument::from).collect();
        arguments.extend(outputs.iter().map(|output| Argument::from(output.as_ref())));
        arguments.extend([Argument::Size(rows), Argument::Size(head.words)]);
        let grid = Grid::of(extent(rows.div_ceil(THREADS))?, THREADS as u32);
        head.device.launch(&kernel::HEAD_FINISH, head.act, grid, &arguments)?;
        let numbers = head.device.download::<f32>(&all)?;
        let mut numbers: Vec<Vec<f32>> = numbers.chunks_exact(rows).map(<[f32]>::to_vec).collect();
        let logsumexp = numbers.remove(1);
        Ok(HeadTaps { logsumexp, values: asked.iter().zip(numbers).collect() })
    }
}
