//! Rows packed one after another for a pass, and where their targets are.
//! Rows without a target, and tokens that predict none, never enter the pass.

use tunebox_compute::fused::Segments;
use tunebox_compute::{Device, Tensor};

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
    /// For each target: its place in `[rows, width]`.
    places: Vec<usize>,
    shape: (usize, usize),
}

impl Packing {
    /// Packs the tokens that targets depend on.
    ///
    /// # Errors
    /// When a token is not in the vocabulary, or a row is longer than the model can be asked for.
    pub(crate) fn new(rows: &Rows, configuration: &Configuration) -> Result<Self> {
        let width = rows.width();
        let mut packing = Self {
            ids: Vec::new(),
            positions: Vec::new(),
            segments: Segments::new(&[]),
            longest: 0,
            predictors: Vec::new(),
            targets: Vec::new(),
            places: Vec::new(),
            shape: (rows.count(), width),
        };
        let mut lengths = Vec::new();
        for (row, (ids, marks)) in rows.ids.iter().zip(&rows.targets).enumerate() {
            check_ids(row, ids, marks.len(), configuration)?;
            let Some(last) = marks.iter().rposition(|mark| *mark).filter(|last| *last > 0) else {
                continue;
            };
            let start = packing.ids.len();
            packing.ids.extend_from_slice(&ids[..last]);
            packing.positions.extend(0..last as u32);
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

    /// Whether there is nothing to predict.
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Values of the targets as `[rows, width]`, exactly 0 elsewhere.
    pub(crate) fn scatter(&self, values: &[f32], device: &Device) -> Result<Tensor> {
        let mut all = vec![0.0; self.shape.0 * self.shape.1];
        for (place, value) in self.places.iter().zip(values) {
            all[*place] = *value;
        }
        Ok(Tensor::from_vec(all, self.shape, device)?)
    }

    /// The values that a `[rows, width]` tensor has at the targets.
    pub(crate) fn gather(&self, values: &Tensor) -> Result<Vec<f32>> {
        if values.dims() != [self.shape.0, self.shape.1] {
            return Err(Error::Argument(format!(
                "seeds of shape {:?} for scores of shape [{}, {}]",
                values.dims(),
                self.shape.0,
                self.shape.1
            )));
        }
        let all = values.flatten_all()?.to_dtype(tunebox_compute::DType::F32)?.to_vec1::<f32>()?;
        Ok(self.places.iter().map(|place| all[*place]).collect())
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
