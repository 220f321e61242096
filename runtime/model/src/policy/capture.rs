//! Reads activations at one token of each row, and the distribution of the next token. Rows run slice by slice; only
//! the requested activations stay in memory, and results are on the CPU.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tunebox_compute::fused::TapSet;
use tunebox_compute::{Device, Tensor};

use super::{Policy, View};
use crate::decoder::head::OutputHead;
use crate::decoder::hook::{ActivationReader, TokenSelection};
use crate::decoder::network::{ActivationReaders, Network};
use crate::decoder::packing::Packing;
use crate::decoder::stack;
use crate::error::{Error, Result};
use crate::rows::Rows;
use crate::stream::{Site, Token};

/// The most rows whose logits are in memory at a time.
const LOGIT_ROWS: usize = 32;

impl Policy {
    /// Reads the activations of a view at a site of each of `layers`, after the patches of that site, at the token of
    /// each row that `token` names or averaged over the row's targets: `[layers, rows, hidden]`, `f32`, on the CPU, in
    /// the order of `layers`, which count from 0. Runs only the blocks up to the highest of these layers, and of each
    /// row no token after the last that is read.
    ///
    /// # Errors
    /// When `layers` is empty, a layer is not there or named twice, a row ends before the named token or has no target
    /// to average over, a token is not in the vocabulary, a snapshot does not exist, or the deadline has passed.
    pub fn capture(&self, view: &View, rows: &Rows, layers: &[usize], site: Site, token: Token) -> Result<Tensor> {
        let configuration = &self.model_of(view).configuration;
        let last = layers.iter().copied().max().ok_or_else(|| Error::Argument("no layer is named".into()))?;
        configuration.check_layer(last)?;
        let hidden = configuration.hidden;
        let none: BTreeMap<usize, Vec<f32>> = layers.iter().map(|layer| (*layer, Vec::new())).collect();
        if none.len() != layers.len() {
            return Err(Error::Argument("a layer is named twice".into()));
        }
        (0..rows.count()).try_for_each(|row| token_indices(rows, row, token).map(drop))?;
        let values = self.map_rows("capture", view, rows, |slices| {
            let mut found = none;
            for slice in slices {
                self.capture_slice(view, rows, slice, last, (site, token), &mut found)?;
            }
            let count = found.values().next().map_or(0, |values| values.len() / hidden);
            let of_row = |row: usize| layers.iter().flat_map(move |layer| [(layer, row * hidden..(row + 1) * hidden)]);
            let values = (0..count).flat_map(of_row).flat_map(|(layer, range)| found[layer][range].iter().copied());
            Ok(values.collect())
        })?;
        let values = Tensor::from_vec(values, (rows.count(), layers.len(), hidden), &Device::Cpu)?;
        Ok(values.transpose(0, 1)?.contiguous()?)
    }

    /// Computes numbers for each row, as many for one as for another, on the rank that has the row. `compute` gets the
    /// slices of rows that are here. Returns the numbers of all rows, in order.
    fn map_rows(
        &self,
        purpose: &'static str,
        view: &View,
        rows: &Rows,
        compute: impl FnOnce(Vec<Range<usize>>) -> Result<Vec<f32>>,
    ) -> Result<Vec<f32>> {
        // A row that is refused is refused on every rank, with the same words.
        Packing::check_rows(rows, &self.model_of(view).configuration)?;
        let weights: Vec<usize> = rows.ids.iter().map(Vec::len).collect();
        self.ranks().map_items(purpose, &weights, |own| {
            let slices = self.slices(rows, true).into_iter();
            let clipped = slices.map(|slice| slice.start.max(own.start)..slice.end.min(own.end));
            compute(clipped.filter(|slice| !slice.is_empty()).collect())
        })
    }

    /// Runs one slice of rows up to layer `last`, each row up to the last token that is read. Appends the activations read
    /// at each layer that is a key of `found` to that layer's list: `hidden` values for each row, row after row.
    fn capture_slice(
        &self,
        view: &View,
        rows: &Rows,
        slice: Range<usize>,
        last: usize,
        (site, token): (Site, Token),
        found: &mut BTreeMap<usize, Vec<f32>>,
    ) -> Result<()> {
        let places = slice.clone().map(|row| token_indices(rows, row, token)).collect::<Result<Vec<_>>>()?;
        let lengths: Vec<usize> = places.iter().map(|places| places.last().map_or(0, |last| last + 1)).collect();
        let (packing, token_positions) =
            Packing::of_prefixes(rows, slice, &lengths, &self.model_of(view).configuration)?;
        let picks =
            |(row, places): (usize, &Vec<usize>)| places.iter().map(|place| token_positions[row][*place]).collect();
        let picks: Vec<Vec<u32>> = places.iter().enumerate().map(picks).collect();
        let picks = Arc::new(TokenSelection::new(&picks));
        let reader = |layer: &usize| (*layer, Arc::new(ActivationReader::new(&picks)));
        let readers = ActivationReaders { site, layers: found.keys().map(reader).collect() };
        let network = Network { readers: Some(&readers), ..self.network(view)? };
        stack::forward_to(&network, &packing, last)?;
        for (layer, reader) in &readers.layers {
            if let Some(found) = found.get_mut(layer) {
                found.extend(reader.take()?);
            }
        }
        Ok(())
    }

    /// Computes log p(id), in nats at temperature 1, of each of `ids` as the token that follows each row: `[rows, ids]`,
    /// `f32`, on the CPU.
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

    /// Runs all blocks over one slice of rows at once. The iterator yields the logits of the token that follows each row,
    /// at temperature 1, for at most [`LOGIT_ROWS`] rows at a time and in their order; it computes them when asked, since
    /// the logits of all rows may not fit in memory.
    fn last_logits(
        &self,
        view: &View,
        rows: &Rows,
        slice: Range<usize>,
    ) -> Result<impl Iterator<Item = Result<Vec<Vec<f32>>>>> {
        let lengths: Vec<usize> = slice.clone().map(|row| rows.ids[row].len()).collect();
        let (packing, _) = Packing::of_prefixes(rows, slice, &lengths, &self.model_of(view).configuration)?;
        let network = self.network(view)?;
        let hidden = packing.select_predictors(&stack::forward(&network, &packing)?)?;
        let head = OutputHead::new(&network, 1.0, TapSet::default())?;
        let count = lengths.len();
        Ok((0..count).step_by(LOGIT_ROWS).map(move |start| {
            let part = hidden.narrow(0, start, LOGIT_ROWS.min(count - start))?.contiguous()?;
            Ok(head.logits(&part)?.to_vec2::<f32>()?)
        }))
    }
}

/// The indices of the tokens to read in the row with index `row`, ascending: one for [`Token::FromEnd`], all targets for
/// [`Token::TargetMean`]. Errors: the row has no such token, or no target.
fn token_indices(rows: &Rows, row: usize, token: Token) -> Result<Vec<usize>> {
    let length = rows.ids[row].len();
    match token {
        Token::FromEnd(number) => {
            let place = length.checked_sub(1).and_then(|last| last.checked_sub(number as usize));
            let what = || format!("row `{row}` has `{length}` tokens, none `{number}` before its last");
            Ok(vec![place.ok_or_else(|| Error::Argument(what()))?])
        }
        Token::TargetMean => {
            let marks = &rows.targets[row];
            let places: Vec<usize> = (0..length).filter(|at| marks[*at]).collect();
            if places.is_empty() {
                return Err(Error::Argument(format!("row `{row}` has no target token to average over")));
            }
            Ok(places)
        }
    }
}

/// log Σ exp of the logits, in `f64`, without overflow.
fn logsumexp(logits: &[f32]) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    largest + logits.iter().map(|logit| (f64::from(*logit) - largest).exp()).sum::<f64>().ln()
}

/// KL(left ‖ right) = Σ p (log p − log q), in nats, for two rows of logits.
fn divergence(left: &[f32], right: &[f32]) -> f32 {
    let (first, second) = (logsumexp(left), logsumexp(right));
    let terms = left.iter().zip(right).map(|(left, right)| {
        let logprob = f64::from(*left) - first;
        logprob.exp() * (logprob - (f64::from(*right) - second))
    });
    terms.sum::<f64>() as f32
}
