//! The residual stream, captured at a layer and a site (`wit/hidden.wit`).

use crate::bindings::tunebox::method::hidden;
use crate::error::checked;
use crate::{Result, Rows, Tensor, View};

pub use hidden::{Site, Token};

/// The number of blocks.
pub fn layers() -> u32 {
    hidden::layers()
}

/// The width of the residual stream.
pub fn dimension() -> u32 {
    hidden::dimension()
}

/// One vector a row and layer: `[layers, rows, dimension]`, `f32`, without gradient. Costs one
/// forward pass. Errors: a layer or token that is not there.
#[track_caller]
pub fn capture(view: &View, rows: &Rows, layers: &[u32], site: Site, token: Token) -> Result<Tensor> {
    checked(hidden::capture(view.handle(), rows.handle(), layers, site, token)).map(Tensor::new)
}

/// Hands a direction of the stream (`[dimension]`) to the run's artifact, as that of a layer.
/// Errors: a layer that is not there; another site or token than before.
#[track_caller]
pub fn publish(layer: u32, site: Site, token: Token, vector: &Tensor, coefficient: f32) -> Result<()> {
    checked(hidden::publish(layer, site, token, vector.handle(), coefficient))
}
