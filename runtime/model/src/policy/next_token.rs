//! The distribution of the token that follows each row: the log-probabilities of some tokens, and the divergence of two
//! views. Rows run slice by slice; results are on the CPU.

use std::ops::Range;

use tunebox_compute::fused::TapSet;
use tunebox_compute::{Device, Tensor};

use super::{Policy, View};
use crate::decoder::head::OutputHead;
use crate::decoder::packing::Packing;
use crate::decoder::stack;
use crate::error::{Error, Result};
use crate::rows::Rows;

/// The most rows whose logits are in memory at a time.
const LOGIT_ROWS: usize = 32;

impl Policy {
    /// Computes equally many numbers for each row. Each rank computes its share of the rows, and all ranks return the
    /// numbers of all rows, in order. `compute` gets slices of this rank's rows and returns their numbers. `purpose`
    /// names the exchange. Errors: an empty row or a row that [`Packing::check_rows`] rejects, on all ranks; an error
    /// of `compute` on any rank.
    fn map_rows(
        &self,
        purpose: &'static str,
        view: &View,
        rows: &Rows,
        compute: impl FnOnce(Vec<Range<usize>>) -> Result<Vec<f32>>,
    ) -> Result<Vec<f32>> {
        // Before the rows are divided, so that every rank returns the same error.
        Packing::check_rows(rows, &self.model_of(view).configuration)?;
        if let Some(row) = rows.ids.iter().position(Vec::is_empty) {
            return Err(Error::Argument(format!("row `{row}` has `0` tokens")));
        }
        let weights: Vec<usize> = rows.ids.iter().map(Vec::len).collect();
        self.ranks().map_items(purpose, &weights, |own| {
            let slices = self.slices(rows, true).into_iter();
            let clipped = slices.map(|slice| slice.start.max(own.start)..slice.end.min(own.end));
            compute(clipped.filter(|slice| !slice.is_empty()).collect())
        })
    }

    /// Computes log p(id), in nats at temperature 1, of each of `ids` as the token that follows each row: `[rows,
    /// ids]`, `f32`, on the CPU.
    ///
    /// # Errors
    /// When a row is empty, a token of a row or of `ids` is not in the vocabulary, a snapshot does not exist, or the
    /// deadline has passed.
    pub fn next_token(&self, view: &View, rows: &Rows, ids: &[u32]) -> Result<Tensor> {
        self.model_of(view).configuration.check_tokens("the list of tokens", ids)?;
        let found = self.map_rows("next-token", view, rows, |slices| {
            let mut found = Vec::new();
            for slice in slices {
                for part in self.last_logits(view, rows, slice)? {
                    for logits in part? {
                        let normalizer = logsumexp(&logits);
                        found.extend(ids.iter().map(|id| (f64::from(logits[*id as usize]) - normalizer) as f32));
                    }
                }
            }
            Ok(found)
        })?;
        Ok(Tensor::from_vec(found, (rows.count(), ids.len()), &Device::Cpu)?)
    }

    /// Computes KL(view ‖ other), in nats, of the distributions of the token that follows each row, at temperature 1:
    /// `[rows]`, `f32`, on the CPU.
    ///
    /// # Errors
    /// When a row is empty, a token is not in the vocabulary, a snapshot does not exist, or the deadline has passed.
    pub fn divergence(&self, view: &View, other: &View, rows: &Rows) -> Result<Tensor> {
        let found = self.map_rows("divergence", view, rows, |slices| {
            let mut found = Vec::new();
            for slice in slices {
                let parts = self.last_logits(view, rows, slice.clone())?.zip(self.last_logits(other, rows, slice)?);
                for (left, right) in parts {
                    found.extend(left?.iter().zip(right?).map(|(left, right)| divergence(left, &right)));
                }
            }
            Ok(found)
        })?;
        let count = found.len();
        Ok(Tensor::from_vec(found, count, &Device::Cpu)?)
    }

    /// Runs all blocks over one slice of rows at once. The iterator yields the logits of the token that follows each
    /// row, at temperature 1, for at most [`LOGIT_ROWS`] rows at a time and in their order; it computes them when
    /// asked, since the logits of all rows may not fit in memory.
    fn last_logits(
        &self,
        view: &View,
        rows: &Rows,
        slice: Range<usize>,
    ) -> Result<impl Iterator<Item = Result<Vec<Vec<f32>>>>> {
        let count = slice.len();
        let packing = Packing::of_whole_rows(rows, slice, &self.model_of(view).configuration)?;
        let network = self.network(view)?;
        let hidden = packing.select_predictors(&stack::forward(&network, &packing)?)?;
        let head = OutputHead::new(&network, 1.0, TapSet::default())?;
        Ok((0..count).step_by(LOGIT_ROWS).map(move |start| {
            let part = hidden.narrow(0, start, LOGIT_ROWS.min(count - start))?.contiguous()?;
            Ok(head.logits(&part)?.to_vec2::<f32>()?)
        }))
    }
}

/// Computes log Σ exp(logit) of a row of logits, in `f64`, without overflow.
fn logsumexp(logits: &[f32]) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    largest + logits.iter().map(|logit| (f64::from(*logit) - largest).exp()).sum::<f64>().ln()
}

/// Computes KL(left ‖ right) = Σ p (log p − log q), in nats, of the softmax distributions of two rows of logits.
/// Ignores the logits at the end of the longer row.
fn divergence(left: &[f32], right: &[f32]) -> f32 {
    // Heads of one vocabulary may be padded to different widths.
    let common = left.len().min(right.len());
    let (left, right) = (&left[..common], &right[..common]);
    let (first, second) = (logsumexp(left), logsumexp(right));
    let terms = left.iter().zip(right).map(|(left, right)| {
        let logprob = f64::from(*left) - first;
        logprob.exp() * (logprob - (f64::from(*right) - second))
    });
    terms.sum::<f64>() as f32
}
