//! One named place of a block: what patches change there, and who reads along.
//!
//! With r of length 1: adding v is x + v, whose gradient passes unchanged; removing r is x − (x·r) r and setting it
//! x + (c − x·r) r, whose gradients lose their own component along r. Descriptions of patches are in `stream`.

use std::sync::{Arc, Mutex, PoisonError};

use tunebox_compute::Tensor;

use crate::error::Result;
use crate::stream::Act;

/// Which tokens of a pass belong to answers.
#[derive(Debug, Clone, Default)]
pub(crate) enum Spoken {
    /// None, or nobody asks.
    #[default]
    Nothing,
    /// All.
    Everything,
    /// Those with a 1: `[tokens, 1]`, `f32`.
    Some(Tensor),
}

/// A change as one pass sees it.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) act: Act,
    /// The tokens that it leaves alone are those that nobody spoke.
    pub(crate) only: Option<Spoken>,
}

/// One place of one block.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hook {
    pub(crate) changes: Vec<Change>,
    pub(crate) reader: Option<Arc<Reader>>,
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
        Ok(match (&self.act, &self.only) {
            (Act::Add(_), Some(Spoken::Nothing)) => rows.clone(),
            (Act::Add(vector), Some(Spoken::Some(marks))) => (rows + marks.matmul(vector)?)?,
            (Act::Add(vector), _) => rows.broadcast_add(vector)?,
            (Act::Remove(direction), _) => (rows - along(rows, direction)?.matmul(direction)?)?,
            (Act::Set(direction, value), _) => {
                let missing = along(rows, direction)?.affine(-1.0, *value)?;
                (rows + missing.matmul(direction)?)?
            }
        })
    }

    fn backward(&self, upstream: Tensor) -> Result<Tensor> {
        Ok(match &self.act {
            Act::Add(_) => upstream,
            Act::Remove(direction) | Act::Set(direction, _) => {
                (&upstream - along(&upstream, direction)?.matmul(direction)?)?
            }
        })
    }
}

/// The component of every row along a direction of length 1, `[tokens, 1]`.
fn along(rows: &Tensor, direction: &Tensor) -> Result<Tensor> {
    Ok(rows.matmul(&direction.t()?)?)
}

/// Reads along at one place: for each row of a batch the mean over some packed tokens.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The packed tokens of each row, at least one.
    picks: Vec<Vec<u32>>,
    found: Mutex<Vec<f32>>,
}

impl Reader {
    pub(crate) fn new(picks: Vec<Vec<u32>>) -> Self {
        Self { picks, found: Mutex::default() }
    }

    fn read(&self, rows: &Tensor) -> Result<()> {
        let (_, width) = rows.dims2()?;
        let picked = Tensor::new(self.picks.concat(), rows.device())?;
        let picked = rows.index_select(&picked, 0)?.flatten_all()?.to_vec1::<f32>()?;
        let mut picked = picked.chunks_exact(width);
        let mut found = Vec::with_capacity(self.picks.len() * width);
        for picks in &self.picks {
            let mut sums = vec![0.0_f64; width];
            for token in picked.by_ref().take(picks.len()) {
                sums.iter_mut().zip(token).for_each(|(sum, value)| *sum += f64::from(*value));
            }
            found.extend(sums.iter().map(|sum| (sum / picks.len() as f64) as f32));
        }
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }

    /// What was read, row after row.
    pub(crate) fn take(&self) -> Vec<f32> {
        std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
