//! Rows packed one after another for a pass, and where their targets are.
//! Rows without a target, and tokens that predict none, never enter the pass.

use std::ops::Range;

use tunebox_compute::Tensor;
use tunebox_compute::fused::Segments;

use super::hook::Spoken;
use super::lens::Lens;
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::rows::Rows;

/// Packed rows of one pass.
#[derive(Debug)]
pub(crate) struct Packing {
    pub(crate) ids: Vec<u32>,
    pub(crate) positions: Vec<u32>,
    pub(crate) segments: Segments,
    /// The length of the longest packed row.
    pub(crate) longest: usize,
    /// For each target: the packed token that predicts it.
    pub(crate) predictors: Vec<u32>,
    /// For each target: its id.
    pub(crate) targets: Vec<u32>,
    /// For each target: its place in the `[rows, width]` of the whole batch.
    places: Vec<usize>,
    /// For each packed token: whether it is a target itself.
    answers: Vec<bool>,
}

impl Packing {
    /// Packs the tokens that the targets of a slice of rows depend on.
    ///
    /// # Errors
    /// When a token is not in the vocabulary, or a row is longer than the model can be asked for.
    pub(crate) fn new(rows: &Rows, slice: Range<usize>, configuration: &Configuration) -> Result<Self> {
        let width = rows.width();
        let mut packing = Self::empty();
        let mut lengths = Vec::new();
        for row in slice {
            let (ids, marks) = (&rows.ids[row], &rows.targets[row]);
            check_ids(row, ids, marks.len(), configuration)?;
            let Some(last) = marks.iter().rposition(|mark| *mark).filter(|last| *last > 0) else {
                continue;
            };
            let start = packing.ids.len();
            packing.ids.extend_from_slice(&ids[..last]);
            packing.positions.extend(0..last as u32);
            packing.answers.extend_from_slice(&marks[..last]);
            lengths.push(last);
            for at in (1..=last).filter(|at| marks[*at]) {
                packing.predictors.push((start + at - 1) as u32);
                packing.targets.push(ids[at]);
                packing.places.push(row * width + at);
            }
        }
        packing.longest = lengths.iter().copied().max().unwrap_or(0);
        packing.segments = Segments::new(&lengths);
        Ok(packing)
    }

    /// Packs the beginnings of a slice of rows, each up to a length, for passes that read activations instead of
    /// scoring targets; the predictors are the last packed token of each row.
    ///
    /// # Errors
    /// When a token is not in the vocabulary, or a length is 0 or past the end of its row.
    pub(crate) fn beginnings(
        rows: &Rows,
        slice: Range<usize>,
        lengths: &[usize],
        configuration: &Configuration,
    ) -> Result<Self> {
        let mut packing = Self::empty();
        for (row, length) in slice.zip(lengths) {
            let (ids, marks) = (&rows.ids[row], &rows.targets[row]);
            check_ids(row, ids, marks.len(), configuration)?;
            if *length == 0 || *length > ids.len() {
                return Err(Error::Argument(format!("row `{row}` has `{}` tokens, not `{length}`", ids.len())));
            }
            packing.ids.extend_from_slice(&ids[..*length]);
            packing.positions.extend(0..*length as u32);
            packing.answers.extend_from_slice(&marks[..*length]);
            packing.predictors.push((packing.ids.len() - 1) as u32);
        }
        packing.longest = lengths.iter().copied().max().unwrap_or(0);
        packing.segments = Segments::new(lengths);
        Ok(packing)
    }

    fn empty() -> Self {
        Self {
            ids: Vec::new(),
            positions: Vec::new(),
            segments: Segments::new(&[]),
            longest: 0,
            predictors: Vec::new(),
            targets: Vec::new(),
            places: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Which packed tokens belong to answers, for patches that ask.
    pub(crate) fn spoken(&self, lens: &Lens<'_>) -> Result<Spoken> {
        if !lens.patches.ask_for_answers() {
            return Ok(Spoken::Nothing);
        }
        let marks: Vec<f32> = self.answers.iter().map(|answer| f32::from(u8::from(*answer))).collect();
        let shape = (marks.len(), 1);
        Ok(Spoken::Some(Tensor::from_vec(marks, shape, lens.model.weights.device())?))
    }

    /// Whether there is nothing to predict.
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Puts values of the targets at their places in the batch's `[rows, width]`.
    pub(crate) fn scatter(&self, values: &[f32], all: &mut [f32]) {
        for (place, value) in self.places.iter().zip(values) {
            all[*place] = *value;
        }
    }

    /// The values that the batch's `[rows, width]` has at the targets.
    pub(crate) fn gather(&self, all: &[f32]) -> Vec<f32> {
        self.places.iter().map(|place| all[*place]).collect()
    }

    /// The rows of packed activations that predict a target.
    pub(crate) fn select(&self, hidden: &Tensor) -> Result<Tensor> {
        if self.covers_all() {
            return Ok(hidden.clone());
        }
        let predictors = Tensor::new(self.predictors.as_slice(), hidden.device())?;
        Ok(hidden.index_select(&predictors, 0)?)
    }

    /// Gradients of the selected rows back at their places, 0 elsewhere.
    pub(crate) fn spread(&self, selected: &Tensor) -> Result<Tensor> {
        if self.covers_all() {
            return Ok(selected.clone());
        }
        let (_, width) = selected.dims2()?;
        let predictors = Tensor::new(self.predictors.as_slice(), selected.device())?;
        let zeros = Tensor::zeros((self.ids.len(), width), selected.dtype(), selected.device())?;
        Ok(zeros.index_add(&predictors, selected, 0)?)
    }

    fn covers_all(&self) -> bool {
        self.predictors.len() == self.ids.len()
    }
}

fn check_ids(row: usize, ids: &[u32], marks: usize, configuration: &Configuration) -> Result<()> {
    if marks != ids.len() {
        return Err(Error::Argument(format!("row `{row}` has `{}` tokens but `{marks}` target marks", ids.len())));
    }
    match ids.iter().find(|id| **id as usize >= configuration.vocabulary) {
        Some(id) => Err(Error::Argument(format!(
            "row `{row}` holds token `{id}`, the model's vocabulary ends at `{}`",
            configuration.vocabulary.saturating_sub(1)
        ))),
        None => Ok(()),
    }
}
