//! Assembles the taps of a batch from its slices, and splits the gradients of a loss with respect to them by slice.

use std::ops::Range;

use tunebox_compute::fused::{HeadTaps, Tap, TapGradients, TapSet, Taps};
use tunebox_compute::{DType, Device, Tensor};

use super::View;
use super::division::BatchValues;
use crate::decoder::packing::Packing;
use crate::error::{Error, Result};
use crate::rows::Rows;

/// The view to whose next-token distribution [`Tap::Divergence`] is computed.
#[derive(Debug, Clone, PartialEq)]
pub struct DivergenceTo {
    /// The other weights.
    pub view: View,
    /// β of [`head_divergence`](tunebox_compute::fused::head_divergence), from 0 (forward) to 1 (reverse).
    pub beta: f32,
}

/// Which taps to compute.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TapRequest {
    /// The taps; [`Tap::Divergence`] is one of them exactly if `divergence` is given.
    pub(super) taps: TapSet,
    pub(super) divergence: Option<DivergenceTo>,
}

impl TapRequest {
    /// Asks for the taps of a set, and for the divergence if it is given, whether or not the set has it.
    #[must_use]
    pub fn new(taps: TapSet, divergence: Option<DivergenceTo>) -> Self {
        let also = divergence.is_some().then_some(Tap::Divergence);
        Self { taps: taps.of_one_head().iter().chain(also).collect(), divergence }
    }

    /// Returns the set of the requested taps, which has [`Tap::Divergence`] exactly if a divergence is requested.
    #[must_use]
    pub fn set(&self) -> TapSet {
        self.taps
    }

    /// Returns the view and β of the requested divergence; `None` if none is requested.
    #[must_use]
    pub fn divergence(&self) -> Option<&DivergenceTo> {
        self.divergence.as_ref()
    }
}

impl From<TapSet> for TapRequest {
    /// Asks for the taps of a set, without the divergence.
    fn from(taps: TapSet) -> Self {
        Self::new(taps, None)
    }
}

/// The gradients of a loss with respect to taps, each `[rows, width]` on the CPU, with the length of the longest row
/// as `width`; values at tokens that are not targets are ignored.
pub type Seeds = Taps<Tensor>;

/// Selects from every tap the rows with these indices, in the order of the indices, and of each row the first `width`
/// columns. Returns new tensors, `[rows, width]` each; an index may come twice.
///
/// # Errors
/// When an index is past the last row, or the width past that of the taps.
pub fn select_rows(taps: &Taps<Tensor>, rows: &[u32], width: usize) -> Result<Taps<Tensor>> {
    let rows = Tensor::new(rows, &Device::Cpu)?;
    let select =
        |tap: &Tensor| -> Result<Tensor> { Ok(tap.index_select(&rows, 0)?.narrow(1, 0, width)?.contiguous()?) };
    taps.iter().map(|(tap, values)| Ok((tap, select(values)?))).collect()
}

impl BatchValues {
    /// Writes the taps of a slice into the tables, at the positions of the targets in `packing`; `self` has a table of
    /// `[rows, width]` for each tap in `asked`. Ignores taps that were not asked for.
    pub(super) fn add_taps(&mut self, asked: TapSet, packing: &Packing, taps: &HeadTaps) {
        for (number, tap) in asked.iter().enumerate() {
            if let Some(values) = taps.values.get(tap) {
                packing.scatter(values, self.table(number));
            }
        }
    }

    /// Converts the tables, which are those of the taps in `asked`, to tensors `[rows, width]` on the CPU.
    pub(super) fn into_taps(mut self, asked: TapSet, rows: &Rows) -> Result<Taps<Tensor>> {
        let shape = (rows.count(), rows.width());
        let mut tensor = |number| Tensor::from_slice(self.table(number), shape, &Device::Cpu);
        asked.iter().enumerate().map(|(number, tap)| Ok((tap, tensor(number)?))).collect()
    }
}

/// Seeds in host memory: of a whole batch, `[rows, width]` in row-major order, or of a slice, one value per target.
pub(super) struct SeedValues(Taps<Vec<f32>>);

impl SeedValues {
    /// Copies seeds `[rows, width]` to host memory as `f32`. Errors: another shape.
    pub(super) fn read(seeds: &Seeds, rows: &Rows) -> Result<Self> {
        seeds.iter().map(|(tap, seed)| Ok((tap, seed_numbers(seed, rows)?))).collect::<Result<_>>().map(Self)
    }

    /// Selects from the seeds of the whole batch those at the targets of `packing`, in the order of the targets; `None`
    /// if all of them are 0.
    pub(super) fn of(&self, packing: &Packing) -> Option<Self> {
        let own: Taps<Vec<f32>> = self.0.iter().map(|(tap, all)| (tap, packing.gather(all))).collect();
        let all_zero = own.iter().all(|(_, seeds)| seeds.iter().all(|seed| *seed == 0.0));
        (!all_zero).then_some(Self(own))
    }

    /// Whether any target of the rows in `slice` has a seed other than 0 for any tap. `rows` is the whole batch, as are
    /// the seeds.
    pub(super) fn has_any(&self, rows: &Rows, slice: Range<usize>) -> bool {
        let width = rows.width();
        let is_target = |(at, _): &(usize, &f32)| rows.targets[at / width].get(at % width) == Some(&true);
        let range = slice.start * width..slice.end * width;
        let any = |seeds: &Vec<f32>| {
            let seeds = seeds.iter().enumerate().take(range.end).skip(range.start);
            seeds.filter(is_target).any(|(_, seed)| *seed != 0.0)
        };
        self.0.iter().any(|(_, seeds)| any(seeds))
    }

    /// Borrows the seeds in the form that the backward pass of the output head takes.
    pub(super) fn head(&self) -> TapGradients<'_> {
        self.0.iter().map(|(tap, seeds)| (tap, seeds.as_slice())).collect()
    }
}

/// The values of one seed as `f32`, in row-major order. Errors: a shape other than `[rows, width]`.
fn seed_numbers(seed: &Tensor, rows: &Rows) -> Result<Vec<f32>> {
    let (count, width) = (rows.count(), rows.width());
    if seed.dims() != [count, width] {
        let found = seed.dims();
        return Err(Error::Argument(format!("seeds of shape {found:?} for scores of shape [{count}, {width}]")));
    }
    Ok(seed.flatten_all()?.to_dtype(DType::F32)?.to_vec1::<f32>()?)
}
