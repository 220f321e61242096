//! One named site of a block: the patches that act there, and the reader of its activations.
//!
//! With r of length 1: adding v is x + v, whose gradient passes unchanged; removing r is x − (x·r) r and setting it
//! x + (c − x·r) r, whose gradients lose their own component along r. Descriptions of patches are in `stream`.

use std::sync::{Arc, Mutex, PoisonError};

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, Indices};

use crate::error::Result;
use crate::stream::PatchOperation;

/// Which tokens of a pass belong to answers. Patches with `answers_only` change these alone.
#[derive(Debug, Clone, Default)]
pub(crate) enum AnswerMask {
    /// No token, or no patch asks.
    #[default]
    None,
    /// Every token.
    All,
    /// The tokens with a 1: `[tokens, 1]`, `f32`.
    Tokens(Tensor),
}

/// A change as one pass sees it.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) operation: PatchOperation,
    /// The tokens that change; none: all of them.
    pub(crate) only: Option<AnswerMask>,
}

/// One place of one block.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hook {
    pub(crate) changes: Vec<Change>,
    pub(crate) reader: Option<Arc<ActivationReader>>,
}

impl Hook {
    /// The activations `[tokens, hidden]` as they go on from here.
    pub(crate) fn forward(&self, rows: Tensor) -> Result<Tensor> {
        let mut rows = rows;
        for change in &self.changes {
            rows = change.forward(&rows)?;
        }
        if let Some(reader) = &self.reader {
            reader.read(&rows)?;
        }
        Ok(rows)
    }

    /// The gradient of what came in, from that of what went on.
    pub(crate) fn backward(&self, upstream: Tensor) -> Result<Tensor> {
        let mut upstream = upstream;
        for change in self.changes.iter().rev() {
            upstream = change.backward(upstream)?;
        }
        Ok(upstream)
    }
}

impl Change {
    fn forward(&self, rows: &Tensor) -> Result<Tensor> {
        Ok(match (&self.operation, &self.only) {
            (PatchOperation::Add(_), Some(AnswerMask::None)) => rows.clone(),
            (PatchOperation::Add(vector), Some(AnswerMask::Tokens(marks))) => {
                fused::add_vector(rows, vector, Some(marks))?
            }
            (PatchOperation::Add(vector), _) => fused::add_vector(rows, vector, None)?,
            (PatchOperation::Remove(direction), _) => fused::remove_component(rows, direction)?,
            (PatchOperation::Set(direction, value), _) => fused::set_component(rows, direction, *value)?,
        })
    }

    fn backward(&self, upstream: Tensor) -> Result<Tensor> {
        Ok(match &self.operation {
            PatchOperation::Add(_) => upstream,
            PatchOperation::Remove(direction) | PatchOperation::Set(direction, _) => {
                fused::remove_component(&upstream, direction)?
            }
        })
    }
}

/// The packed tokens that are read of each row of a batch, at least one.
#[derive(Debug)]
pub(crate) struct TokenSelection {
    /// The packed tokens of all rows, row by row.
    tokens: Indices,
    /// How many are each row's.
    counts: Vec<usize>,
}

impl TokenSelection {
    pub(crate) fn new(of_rows: &[Vec<u32>]) -> Self {
        Self { tokens: of_rows.concat().into(), counts: of_rows.iter().map(Vec::len).collect() }
    }

    /// The mean over each row's tokens, row after row, from the activations of all of them.
    fn means(&self, selected: &Tensor) -> Result<Vec<f32>> {
        let (_, width) = selected.dims2()?;
        let selected = fused::to_host_f32(selected)?;
        let mut selected = selected.chunks_exact(width);
        let mut found = Vec::with_capacity(self.counts.len() * width);
        for count in &self.counts {
            let mut sums = vec![0.0_f64; width];
            for token in selected.by_ref().take(*count) {
                sums.iter_mut().zip(token).for_each(|(sum, value)| *sum += f64::from(*value));
            }
            found.extend(sums.iter().map(|sum| (sum / *count as f64) as f32));
        }
        Ok(found)
    }
}

/// Reads activations at one site during a pass: for each row of a batch the mean over some packed tokens.
#[derive(Debug)]
pub(crate) struct ActivationReader {
    selection: Arc<TokenSelection>,
    found: Mutex<ReadResult>,
}

/// What was read.
#[derive(Debug)]
enum ReadResult {
    /// The means, which are small.
    Means(Vec<f32>),
    /// The activations of the tokens, on another device: the host asks for their numbers when the pass is over, not at
    /// every block.
    Tokens(Tensor),
}

impl ActivationReader {
    pub(crate) fn new(selection: &Arc<TokenSelection>) -> Self {
        Self { selection: Arc::clone(selection), found: Mutex::new(ReadResult::Means(Vec::new())) }
    }

    fn read(&self, rows: &Tensor) -> Result<()> {
        let selected = fused::gather_rows(rows, &self.selection.tokens)?;
        let found = if selected.device().is_cpu() {
            ReadResult::Means(self.selection.means(&selected)?)
        } else {
            ReadResult::Tokens(selected)
        };
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }

    /// Takes what was read, row by row; empty at a second call.
    pub(crate) fn take(&self) -> Result<Vec<f32>> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *found, ReadResult::Means(Vec::new())) {
            ReadResult::Means(means) => Ok(means),
            ReadResult::Tokens(tokens) => self.selection.means(&tokens),
        }
    }
}
