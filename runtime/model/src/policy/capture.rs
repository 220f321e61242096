//! Captures activations: reads them at some tokens of each row while the rows run slice by slice. Only the captured
//! activations stay in memory, and for learning what the backward pass needs (`captured`). Results are on the CPU.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tunebox_compute::budget::Reservation;
use tunebox_compute::{Device, Tensor};

use super::division::{BatchValues, DividedSlice};
use super::learning_pass::slice_pass;
use super::{Policy, View};
use crate::configuration::Configuration;
use crate::decoder::hook::{ActivationReader, AtSite, TokenSelection};
use crate::decoder::network::Network;
use crate::decoder::packing::Packing;
use crate::decoder::{SavedBlocks, stack};
use crate::error::{Error, Result};
use crate::rows::Rows;
use crate::stream::{Site, Token};

/// Which activations of a batch are captured.
#[derive(Debug)]
pub(super) struct CaptureRequest {
    /// The layers, in the order of the result.
    pub(super) layers: Vec<usize>,
    /// The highest of the layers.
    pub(super) last: usize,
    pub(super) site: Site,
    token: Token,
    /// The indices of the tokens that are read of each row, ascending.
    tokens: Vec<Vec<usize>>,
    /// The length of the longest row.
    width: usize,
}

impl CaptureRequest {
    /// A request for activations of these rows. Errors: a row that [`Packing::check_rows`] refuses; no layer, one that
    /// the model lacks or that is named twice; a row without the token that is asked for.
    pub(super) fn new(
        rows: &Rows,
        layers: &[usize],
        site: Site,
        token: Token,
        configuration: &Configuration,
    ) -> Result<Self> {
        let last = layers.iter().copied().max().ok_or_else(|| Error::Argument("no layer is named".into()))?;
        configuration.check_layer(last)?;
        if BTreeSet::from_iter(layers).len() != layers.len() {
            return Err(Error::Argument("a layer is named twice".into()));
        }
        Packing::check_rows(rows, configuration)?;
        let tokens = (0..rows.count()).map(|row| token_indices(rows, row, token)).collect::<Result<_>>()?;
        Ok(Self { layers: layers.to_vec(), last, site, token, tokens, width: rows.width() })
    }

    /// The shape of the result: `[layers, rows, hidden]`, or `[layers, rows, width, hidden]` for [`Token::Targets`].
    fn shape(&self, hidden: usize) -> Vec<usize> {
        let width = (self.token == Token::Targets).then_some(self.width);
        [self.layers.len(), self.tokens.len()].into_iter().chain(width).chain([hidden]).collect()
    }

    /// How many vectors the result has for each row of each layer.
    pub(super) fn vectors_per_row(&self) -> usize {
        if self.token == Token::Targets { self.width } else { 1 }
    }

    /// The vectors that are captured of a row: the index of each among the vectors of a layer, and the tokens of the
    /// row over which it is the mean.
    pub(super) fn vectors(&self, row: usize) -> Vec<(usize, &[usize])> {
        let tokens = &self.tokens[row];
        match self.token {
            Token::Targets => {
                tokens.iter().map(|token| (row * self.width + token, std::slice::from_ref(token))).collect()
            }
            Token::FromEnd(_) | Token::TargetMean => vec![(row, tokens)],
        }
    }

    /// How many tokens of a row, from the first, a pass has to run: up to and including the last captured token; 0 if
    /// the row has none.
    pub(super) fn length(&self, row: usize) -> usize {
        self.tokens[row].last().map_or(0, |last| last + 1)
    }
}

/// The packed rows of one slice, and the tokens among them that are captured.
pub(super) struct CapturePacking {
    pub(super) packing: Packing,
    /// The tokens of each captured vector.
    pub(super) selection: Arc<TokenSelection>,
    /// For each captured vector: its index among the vectors of a layer.
    pub(super) indices: Vec<usize>,
}

/// What one slice's forward pass saves for its backward pass.
pub(super) struct CapturePass {
    pub(super) packed: CapturePacking,
    pub(super) blocks: SavedBlocks,
    /// The bytes of the saved tensors, reserved in the policy's count of saved bytes.
    pub(super) reservation: Option<Reservation>,
}

/// What [`Policy::run_capture`] returns.
pub(super) struct CaptureResult {
    /// The captured activations, in the shape of [`Policy::capture`].
    pub(super) values: Tensor,
    /// As in [`Scored`](super::Scored).
    pub(super) learning_pass: Option<(u64, u64)>,
    /// What each slice saved for its backward pass; `None` for a slice that saved nothing.
    pub(super) passes: Vec<Option<CapturePass>>,
}

impl Policy {
    /// Captures the activations of a view at a site of each of `layers`, after the patches of that site: `[layers,
    /// rows, hidden]`, `f32`, on the CPU, in the order of `layers`, which count from 0. They are those of the token of
    /// each row that `token` names, or their mean over the row's targets. For [`Token::Targets`]: `[layers, rows,
    /// width, hidden]` with the length of the longest row as `width`; position t holds the activation at token t, and
    /// exactly 0 if token t is not a target. Runs only the blocks up to the highest of these layers, and of each row no
    /// token after the last that is captured.
    ///
    /// # Errors
    /// When `layers` is empty, a layer is not there or named twice, a row ends before the named token or has no target
    /// to average over, a token is not in the vocabulary, a snapshot does not exist, or the deadline has passed.
    pub fn capture(&self, view: &View, rows: &Rows, layers: &[usize], site: Site, token: Token) -> Result<Tensor> {
        let request = CaptureRequest::new(rows, layers, site, token, &self.model_of(view).configuration)?;
        Ok(self.run_capture(view, rows, &request, false)?.values)
    }

    /// Captures what `request` asks for, each rank a share of the rows, and gathers the activations of all rows. With
    /// `learning`, which is for [`View::Policy`] alone, adapter dropout and the noise on embeddings apply, the counter
    /// that names them advances by the number of slices, and slices save what their backward passes need while there is
    /// room.
    pub(super) fn run_capture(
        &self,
        view: &View,
        rows: &Rows,
        request: &CaptureRequest,
        learning: bool,
    ) -> Result<CaptureResult> {
        let share = self.shares_prefixes(view, learning);
        let slices = self.divided_slices(rows, view, (learning, share), |row| request.length(row));
        let learning_pass = learning.then(|| self.next_learning_pass(&slices));
        let hidden = self.model_of(view).configuration.hidden;
        let mut passes = Vec::new();
        let mut compute = || {
            let mut all = BatchValues::new(request.layers.len(), rows.count() * request.vectors_per_row(), hidden);
            for (slice, number) in slices.iter().zip(0_u64..) {
                let packed = CapturePacking::new(rows, slice, request, share, &self.model_of(view).configuration)?;
                let save = learning && self.can_save(rows, &slices, (packed.packing.ids.len(), request.last + 1));
                let pass = slice_pass(learning_pass, number);
                passes.push(self.capture_slice(view, packed, request, (pass, save), &mut all)?);
            }
            Ok(all)
        };
        let own = compute();
        let indices = |row| request.vectors(row).into_iter().map(|(index, _)| index);
        let values = self.gather_values(("capture", learning), &slices, indices, own)?;
        let values = Tensor::from_vec(values.numbers, request.shape(hidden), &Device::Cpu)?;
        Ok(CaptureResult { values, learning_pass, passes })
    }

    /// Runs one slice of rows up to the highest layer and writes the captured activations into `values`, the tables of
    /// the whole batch. Returns what its backward pass needs if `save` is true, else `None`. Does nothing and returns
    /// `None` if no vector of these rows is captured. `learning_pass` names the dropout masks and the noise; `None` for
    /// neither.
    fn capture_slice(
        &self,
        view: &View,
        packed: CapturePacking,
        request: &CaptureRequest,
        (learning_pass, save): (Option<(u64, u64)>, bool),
        values: &mut BatchValues,
    ) -> Result<Option<CapturePass>> {
        if packed.indices.is_empty() {
            return Ok(None);
        }
        let reader = |layer: &usize| (*layer, Arc::new(ActivationReader::new(&packed.selection)));
        let readers = AtSite { site: request.site, layers: BTreeMap::from_iter(request.layers.iter().map(reader)) };
        let network = self.learning_network(view, learning_pass, &packed.packing)?;
        let network = Network { readers: Some(&readers), ..network };
        let mut blocks = None;
        if save {
            blocks = Some(stack::forward_saving(&network, &packed.packing, request.last, self.settings.recompute)?.1);
        } else {
            stack::forward_to(&network, &packed.packing, request.last)?;
        }
        for (table, layer) in request.layers.iter().enumerate() {
            values.set_entries(table, &packed.indices, &readers.layers[layer].take()?);
        }
        let Some(blocks) = blocks else { return Ok(None) };
        let reservation = Some(self.saved.reserve(blocks.bytes() as u64)?);
        Ok(Some(CapturePass { packed, blocks, reservation }))
    }
}

impl CapturePacking {
    /// Packs the rows of this rank's parts of a slice, each up to its last captured token, and finds the captured
    /// tokens among the packed ones. `share` packs common prefixes once.
    pub(super) fn new(
        rows: &Rows,
        slice: &DividedSlice,
        request: &CaptureRequest,
        share: bool,
        configuration: &Configuration,
    ) -> Result<Self> {
        let parts = (&slice.parts, share);
        let (packing, positions) = Packing::of_lengths(rows, slice.rows.clone(), &slice.lengths, parts, configuration)?;
        let (mut groups, mut indices) = (Vec::new(), Vec::new());
        for number in slice.parts.own_rows() {
            for (index, tokens) in request.vectors(slice.rows.start + number) {
                groups.push(tokens.iter().map(|token| positions[number][*token]).collect());
                indices.push(index);
            }
        }
        Ok(Self { packing, selection: Arc::new(TokenSelection::new(&groups)), indices })
    }
}

/// The indices of the tokens to read in the row with index `row`, ascending: one for [`Token::FromEnd`], else all
/// targets. Errors: the row has no such token, or no target for [`Token::TargetMean`].
fn token_indices(rows: &Rows, row: usize, token: Token) -> Result<Vec<usize>> {
    let length = rows.ids[row].len();
    if let Token::FromEnd(number) = token {
        let place = length.checked_sub(1).and_then(|last| last.checked_sub(number as usize));
        let what = || format!("row `{row}` has `{length}` tokens, none `{number}` before its last");
        return Ok(vec![place.ok_or_else(|| Error::Argument(what()))?]);
    }
    let marks = &rows.targets[row];
    let targets: Vec<usize> = (0..length).filter(|at| marks[*at]).collect();
    if targets.is_empty() && token == Token::TargetMean {
        return Err(Error::Argument(format!("row `{row}` has no target token to average over")));
    }
    Ok(targets)
}
