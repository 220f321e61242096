//! The residual stream, captured at a layer and a site (`wit/hidden.wit`).
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn publish(positive: &Rows, negative: &Rows) -> Result<()> {
//! use tunebox::hidden::{self, Site, Token};
//!
//! // The mean difference of the last tokens of two kinds of text, as a steering vector for each layer.
//! for layer in hidden::layers_between(0.3, 0.7)? {
//!     let read = |rows| hidden::capture(&policy(), rows, &[layer], Site::ResidualAfter, Token::FromEnd(0));
//!     let difference = read(positive)? - read(negative)?; // [1, rows, dimension]
//!     hidden::publish(layer, Site::ResidualAfter, Token::FromEnd(0), &difference.squeeze(0).mean(0), 1.0)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`capture_for_learning`] gives activations with a gradient, for losses on hidden states.

use std::ops::Range;

use crate::bindings::tunebox::method::hidden;
use crate::error::checked;
use crate::{Error, Result, Rows, Tensor, View};

pub use hidden::{Site, Token};

/// The number of blocks of the model.
pub fn layers() -> u32 {
    hidden::layers()
}

/// The range of layers between two fractions of the depth, 0 to 1, rounded outwards. Errors: `from` is not below `to`.
#[track_caller]
pub fn layers_between(from: f32, to: f32) -> Result<Range<u32>> {
    let depth = layers();
    let at = |share: f32| share * depth as f32;
    let between = at(from).floor() as u32..(at(to).ceil() as u32).min(depth);
    if between.is_empty() || from >= to {
        return Err(Error::new("`from` must be below `to`: no layer is left between them"));
    }
    Ok(between)
}

/// The width of the residual stream.
pub fn dimension() -> u32 {
    hidden::dimension()
}

/// Captures one activation vector for each row and layer: `[layers, rows, dimension]`, `f32`, without gradient; for
/// [`Token::Targets`] one for each target token, `[layers, rows, width, dimension]`, 0 elsewhere. Costs one forward pass up
/// to the last of the layers. Errors: a layer or token that is not there.
#[track_caller]
pub fn capture(view: &View, rows: &Rows, layers: &[u32], site: Site, token: Token) -> Result<Tensor> {
    checked(hidden::capture(view.handle(), rows.handle(), layers, site, token)).map(Tensor::new)
}

/// Captures as [`capture`] does, through the policy, with a gradient: a loss of the result goes to
/// [`backward`](crate::learn::backward) in the same step. Errors: those of [`capture`]; `unsupported` if the run trains
/// nothing up to the last of the layers.
#[track_caller]
pub fn capture_for_learning(rows: &Rows, layers: &[u32], site: Site, token: Token) -> Result<Tensor> {
    checked(hidden::capture_for_learning(rows.handle(), layers, site, token)).map(Tensor::new)
}

/// Adds a direction (`[dimension]`) for one layer, and its coefficient, to the steering vectors that the run writes.
/// Errors: a layer that is not there; another site or token than before.
#[track_caller]
pub fn publish(layer: u32, site: Site, token: Token, vector: &Tensor, coefficient: f32) -> Result<()> {
    checked(hidden::publish(layer, site, token, vector.handle(), coefficient))
}
