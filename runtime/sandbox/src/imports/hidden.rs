//! Implements `wit/hidden.wit`: one function for each of the interface, in its order.

use tunebox_compute::Tensor;
use tunebox_model::stream;
use wasmtime::component::Resource;

use crate::bindings::hidden::{Host, Site, Token};
use crate::bindings::types::ErrorCode;
use crate::refusal::Refusal;
use crate::state::{Answer, HostContext, RowsEntry, State, TensorEntry, ViewEntry};
use crate::train_state::Direction;

impl Host for HostContext<'_> {
    fn layers(&mut self) -> wasmtime::Result<u32> {
        self.enter("hidden.layers")?;
        Ok(u32::try_from(self.configuration.layers)?)
    }

    fn dimension(&mut self) -> wasmtime::Result<u32> {
        self.enter("hidden.dimension")?;
        Ok(u32::try_from(self.configuration.hidden)?)
    }

    fn capture(
        &mut self,
        view: Resource<ViewEntry>,
        rows: Resource<RowsEntry>,
        layers: Vec<u32>,
        site: Site,
        token: Token,
    ) -> Answer {
        self.enter("hidden.capture")?;
        let view = self.table.get(&view)?.0.clone();
        let rows = self.table.get(&rows)?.0.clone();
        let layers = self.layers_of(layers)?;
        if rows.count() == 0 {
            return Err(Refusal::argument("there are no rows to read"));
        }
        let elements = layers.len() as u64 * rows.count() as u64 * self.configuration.hidden as u64;
        self.work(elements)?;
        self.pass(rows.tokens())?;
        let (site, token) = (stream_site(site), stream_token(token));
        self.give_new(elements, |state| state.train_state().policy.capture(&view, &rows, &layers, site, token))
    }

    fn publish(
        &mut self,
        layer: u32,
        site: Site,
        token: Token,
        vector: Resource<TensorEntry>,
        coefficient: f32,
    ) -> Result<(), Refusal> {
        self.enter("hidden.publish")?;
        let layers = self.layers_of(vec![layer])?;
        check_finite("the coefficient", coefficient)?;
        let vector = self.stream_vector(&vector)?;
        for layer in layers {
            let (site, token) = (stream_site(site), stream_token(token));
            self.train_state().publish(Direction { layer, site, token, vector: vector.clone(), coefficient })?;
        }
        Ok(())
    }
}

impl State {
    /// Layers that are there, each once, at least one.
    pub(crate) fn layers_of(&self, layers: Vec<u32>) -> Result<Vec<usize>, Refusal> {
        let count = self.configuration.layers;
        if layers.is_empty() || layers.len() > count {
            return Err(Refusal::argument(format!("layers are a list of 1 to {count}, this has {}", layers.len())));
        }
        let mut named = vec![false; count];
        for layer in &layers {
            match named.get_mut(*layer as usize) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return Err(Refusal::argument(format!("layer {layer} is named twice"))),
                None => {
                    return Err(Refusal::argument(format!("layer {layer} is not there: they are 0 to {}", count - 1)));
                }
            }
        }
        Ok(layers.into_iter().map(|layer| layer as usize).collect())
    }

    /// The numbers of a vector as wide as the stream, all finite.
    pub(crate) fn stream_vector(&mut self, vector: &Resource<TensorEntry>) -> Result<Vec<f32>, Refusal> {
        let width = self.configuration.hidden;
        self.vector(vector, width, "the stream")
    }

    /// The numbers of a vector of a length, all finite; `what` is what it has to be as long as.
    pub(crate) fn vector(
        &mut self,
        vector: &Resource<TensorEntry>,
        length: usize,
        what: &str,
    ) -> Result<Vec<f32>, Refusal> {
        let tensor = self.held(vector)?.tensor;
        if tensor.dims() != [length] {
            let message = format!("a vector of {what} is [{length}], this is {:?}", tensor.dims());
            return Err(Refusal::new(ErrorCode::ShapeMismatch, message));
        }
        self.work(length as u64)?;
        let values = numbers(&tensor)?;
        match values.iter().position(|value| !value.is_finite()) {
            Some(place) => Err(Refusal::argument(format!("number {place} of the vector is not finite"))),
            None => Ok(values),
        }
    }
}

fn numbers(tensor: &Tensor) -> Result<Vec<f32>, Refusal> {
    if tensor.dtype() != candle_core::DType::F32 {
        let message = format!("a vector is `f32`, this is `{}`", tensor.dtype().as_str());
        return Err(Refusal::new(ErrorCode::DtypeMismatch, message));
    }
    Ok(tensor.detach().flatten_all()?.to_vec1::<f32>()?)
}

/// Refuses a number that is infinite or NaN.
pub(crate) fn check_finite(what: &str, value: f32) -> Result<(), Refusal> {
    if value.is_finite() {
        Ok(())
    } else {
        Err(Refusal::argument(format!("{what} is a finite number, this is {value}")))
    }
}

/// Converts a site of the contract.
pub(crate) fn stream_site(site: Site) -> stream::Site {
    match site {
        Site::ResidualBefore => stream::Site::ResidualBefore,
        Site::AttentionOutput => stream::Site::AttentionOutput,
        Site::MlpOutput => stream::Site::MlpOutput,
        Site::ResidualAfter => stream::Site::ResidualAfter,
    }
}

fn stream_token(token: Token) -> stream::Token {
    match token {
        Token::FromEnd(number) => stream::Token::FromEnd(number),
        Token::TargetMean => stream::Token::TargetMean,
    }
}
