//! Implements `wit/hidden.wit`: one function for each of the interface, in its order.

use tunebox_compute::Tensor;
use tunebox_model::policy::View;
use tunebox_model::rows::Rows;
use tunebox_model::stream;

use super::data::row_bytes;
use crate::bindings::hidden::{Host, Site, Token};
use crate::refusal::ErrorCode;
use crate::refusal::{Refusal, Result, ensure};
use crate::scores::saved_block_bytes;
use crate::state::{Answer, Handle, HostContext, RowsEntry, State, ViewEntry};
use crate::train_state::Direction;

/// Bytes of a token of captured rows, beside that of the rows: its place among those that a pass runs (twice 4 and 1),
/// and, if it is captured, its place in the row and in the result (twice 8), and in the pass (4).
const TOKEN_BYTES: u64 = 32;

impl Host for HostContext<'_> {
    /// Counts the call and returns the number of blocks of the model.
    fn layers(&mut self) -> wasmtime::Result<u32> {
        self.enter("hidden.layers")?;
        Ok(u32::try_from(self.configuration.layers)?)
    }

    /// Counts the call and returns the width of the residual stream.
    fn dimension(&mut self) -> wasmtime::Result<u32> {
        self.enter("hidden.dimension")?;
        Ok(u32::try_from(self.configuration.hidden)?)
    }

    /// Runs one forward pass under `view` and returns a handle of the activations at one site and token, with active
    /// patches applied: `[layers, rows, dimension]`, or `[layers, rows, width, dimension]` for the target tokens,
    /// `f32`, in the order of `layers`, without gradient. Charges a pass.
    ///
    /// Errors: `invalid-argument` for no layers, one that is missing or named twice, for no rows, for a token that a
    /// row lacks, or for more numbers than a tensor has. Too little memory for the pass ends the method.
    fn capture(
        &mut self,
        view: Handle<ViewEntry>,
        rows: Handle<RowsEntry>,
        layers: Vec<u32>,
        site: Site,
        token: Token,
    ) -> Answer {
        self.enter("hidden.capture")?;
        let view = self.table.get(&view)?.0.clone();
        let rows = self.table.get(&rows)?.0.clone();
        let token = stream_token(token);
        let (layers, _, elements) = self.charge_capture(&view, &rows, layers, (token, false))?;
        // The activations exist twice while they are put in the order of the layers.
        let exchanged = self.train_state().policy.capture_exchange_bytes(elements, false);
        let _scratch = self.reserve(4 * elements + exchanged)?;
        let site = stream_site(site);
        self.push_new_tensor(elements, |state| state.train_state().policy.capture(&view, &rows, &layers, site, token))
    }

    /// Runs one forward pass under the policy and returns a handle of the activations as `capture` does, with a
    /// gradient: saves what a backward pass needs. Charges a pass, and reserves the bytes of the patches that are
    /// active now and of the tensors that are saved, beside their numbers.
    ///
    /// Errors: those of `capture`; `unsupported` if the run trains nothing up to the last of the layers.
    fn capture_for_learning(&mut self, rows: Handle<RowsEntry>, layers: Vec<u32>, site: Site, token: Token) -> Answer {
        self.enter("hidden.capture-for-learning")?;
        let rows = self.table.get(&rows)?.0.clone();
        let token = stream_token(token);
        let (layers, last, elements) = self.charge_capture(&View::Policy, &rows, layers, (token, true))?;
        let untrained = || {
            let what = format!(
                "the run trains nothing up to layer {last}, so no gradient of its activations changes the model"
            );
            Refusal::new(ErrorCode::Unsupported, what)
        };
        ensure(self.train_state().policy.trains_below(last + 1), untrained)?;
        let tokens = rows.tokens() as u64;
        let beside = self.patches as u64 * self.patch_bytes() + saved_block_bytes(last + 1) + tokens * TOKEN_BYTES;
        let bytes = self.reserve(4 * elements + row_bytes(tokens, rows.count()) + beside)?;
        // Beside the leaf there are the activations as they were read, and in the order of the layers.
        let exchanged = self.train_state().policy.capture_exchange_bytes(elements, true);
        let _scratch = self.reserve(8 * elements + exchanged)?;
        self.push_capture(&rows, &layers, (stream_site(site), token), bytes)
    }

    /// Adds a direction `[dimension]` for a layer to the run's artifact, replacing an earlier one of that layer.
    ///
    /// Errors: `shape-mismatch`, `dtype-mismatch`; `invalid-argument` for a missing layer, a number that is not finite,
    /// or a site, token or coefficient that differs from that of other layers.
    fn publish(&mut self, layer: u32, site: Site, token: Token, vector: Handle, coefficient: f32) -> Result<()> {
        self.enter("hidden.publish")?;
        let layers = self.layer_indices(vec![layer])?;
        check_finite("the coefficient", coefficient)?;
        let vector = self.read_stream_vector(&vector)?;
        for layer in layers {
            let (site, token) = (stream_site(site), stream_token(token));
            self.train_state().publish(Direction { layer, site, token, vector: vector.clone(), coefficient })?;
        }
        Ok(())
    }
}

impl State {
    /// Checks the arguments of a capture under `view`, charges its work and its pass, and checks the memory of the
    /// pass. `learning` says whether the pass saves activations for a backward pass. Returns the indices of the layers,
    /// the largest of them, and how many numbers the result has. Errors: those of `capture`.
    fn charge_capture(
        &mut self,
        view: &View,
        rows: &Rows,
        layers: Vec<u32>,
        (token, learning): (stream::Token, bool),
    ) -> Result<(Vec<usize>, usize, u64)> {
        let sizes = self.configuration_of(view);
        let layers = layer_indices(layers, sizes.layers)?;
        ensure(rows.count() > 0, || Refusal::argument("there are no rows to read"))?;
        let tokens = if token == stream::Token::Targets { rows.width() } else { 1 };
        let vectors = layers.len() as u64 * rows.count() as u64 * tokens as u64;
        let elements = vectors.saturating_mul(sizes.hidden as u64);
        let many = || Refusal::argument(format!("these are {elements} activations, a tensor has at most {}", i32::MAX));
        ensure(elements <= i32::MAX as u64, many)?;
        self.meters.charge_units(elements)?;
        self.count_pass(view, rows.tokens())?;
        let last = layers.iter().copied().max().unwrap_or_default();
        self.check_capture_memory(view, rows, last, learning)?;
        Ok((layers, last, elements))
    }

    /// Converts a method's list of layers to indices, in its order. Errors: `invalid-argument` for an empty list, an
    /// index that the model lacks, or an index that is named twice.
    pub(crate) fn layer_indices(&self, layers: Vec<u32>) -> Result<Vec<usize>> {
        layer_indices(layers, self.configuration.layers)
    }

    /// Returns the numbers of an `f32` vector `[dimension]`, as wide as the residual stream. Charges one unit of work
    /// for each number. Errors: `shape-mismatch`, `dtype-mismatch`, `invalid-argument` for a number that is not finite.
    pub(crate) fn read_stream_vector(&mut self, vector: &Handle) -> Result<Vec<f32>> {
        self.read_vector(vector, self.configuration.hidden, "the stream")
    }

    /// Returns the numbers of an `f32` vector `[length]`. `what` says in the error's message which part of the model
    /// has that length. Charges one unit of work for each number.
    ///
    /// Errors: `shape-mismatch`, `dtype-mismatch`, `invalid-argument` for a number that is not finite.
    pub(crate) fn read_vector(&mut self, vector: &Handle, length: usize, what: &str) -> Result<Vec<f32>> {
        let held = self.tensor_node(vector)?;
        let tensor = &held.tensor;
        let other = || format!("a vector of {what} is [{length}], this is {:?}", tensor.dims());
        ensure(tensor.dims() == [length], || Refusal::new(ErrorCode::ShapeMismatch, other()))?;
        self.meters.charge_units(length as u64)?;
        let values = read_values(tensor)?;
        match values.iter().position(|value| !value.is_finite()) {
            Some(place) => Err(Refusal::argument(format!("number {place} of the vector is not finite"))),
            None => Ok(values),
        }
    }
}

/// Copies the elements of an `f32` tensor of any shape to a flat list; `dtype-mismatch` for another element type.
fn read_values(tensor: &Tensor) -> Result<Vec<f32>> {
    let (dtype, wanted) = (tensor.dtype(), candle_core::DType::F32);
    let other = || format!("a vector is `f32`, this is `{}`", dtype.as_str());
    ensure(dtype == wanted, || Refusal::new(ErrorCode::DtypeMismatch, other()))?;
    Ok(tensor.detach().flatten_all()?.to_vec1::<f32>()?)
}

/// Returns `invalid-argument` if `value` is infinite or NaN; `what` names it in the message.
pub(crate) fn check_finite(what: &str, value: f32) -> Result<()> {
    ensure(value.is_finite(), || Refusal::argument(format!("{what} is a finite number, this is {value}")))
}

/// Converts a site of the contract to that of the model crate.
pub(crate) fn stream_site(site: Site) -> stream::Site {
    match site {
        Site::ResidualBefore => stream::Site::ResidualBefore,
        Site::AttentionOutput => stream::Site::AttentionOutput,
        Site::MlpOutput => stream::Site::MlpOutput,
        Site::ResidualAfter => stream::Site::ResidualAfter,
    }
}

/// Converts a token position of the contract to that of the model crate.
fn stream_token(token: Token) -> stream::Token {
    match token {
        Token::FromEnd(number) => stream::Token::FromEnd(number),
        Token::TargetMean => stream::Token::TargetMean,
        Token::Targets => stream::Token::Targets,
    }
}

/// Converts a method's list of layers to indices below `count`, in its order. Errors: `invalid-argument` for an empty
/// list, an index of `count` or more, or an index that is named twice.
fn layer_indices(layers: Vec<u32>, count: usize) -> Result<Vec<usize>> {
    let allowed = || Refusal::argument(format!("layers are a list of 1 to {count}, this has {}", layers.len()));
    ensure((1..=count).contains(&layers.len()), allowed)?;
    let mut named = vec![false; count];
    for layer in &layers {
        let absent = || Refusal::argument(format!("layer {layer} is not there: they are 0 to {}", count - 1));
        let seen = named.get_mut(*layer as usize).ok_or_else(absent)?;
        ensure(!*seen, || Refusal::argument(format!("layer {layer} is named twice")))?;
        *seen = true;
    }
    Ok(layers.into_iter().map(|layer| layer as usize).collect())
}
