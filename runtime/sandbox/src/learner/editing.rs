//! The part of a learner behind `hidden`, `patch`, `weights`, `text` and the next-token functions of `model`.
//!
//! A learner that keeps none of it keeps the defaults, and a method that asks is told so. Arguments
//! are checked before they come here, except against the model's own sizes.

use tunebox_compute::Tensor;
use tunebox_model::edit::{Form, Role};
use tunebox_model::error::Error;
use tunebox_model::policy::View;
use tunebox_model::rows::Rows;
use tunebox_model::stream::{Patch, Site, Token};

use super::unsupported;

/// A direction of the stream that a method hands to the run's artifact.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// The layer that it belongs to.
    pub layer: usize,
    /// Where it was read.
    pub site: Site,
    /// Which token it was read at.
    pub token: Token,
    /// Its numbers, as many as the stream is wide.
    pub vector: Vec<f32>,
    /// What it is to be added with.
    pub coefficient: f32,
}

/// Sizes of a model that arguments are checked against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Blocks.
    pub layers: usize,
    /// Width of the stream.
    pub dimension: usize,
    /// Tokens.
    pub vocabulary: usize,
}

/// Reading and changing a model beside training. Implement it empty for a learner that does neither.
pub trait Editing {
    /// The sizes of the model; all 0 where there is none to read or edit.
    fn sizes(&self) -> Sizes {
        Sizes::default()
    }

    /// Activations of one token of each row, `[layers, rows, dimension]`.
    ///
    /// # Errors
    /// When a layer or token is not there, or memory runs out.
    fn capture(&mut self, _: &View, _: &Rows, _: &[usize], _: Site, _: Token) -> Result<Tensor, Error> {
        unsupported("hidden states")
    }

    /// log p of tokens after the end of each row, `[rows, ids]`.
    ///
    /// # Errors
    /// When a row is empty or a token is not in the vocabulary.
    fn next_token(&mut self, _: &View, _: &Rows, _: &[u32]) -> Result<Tensor, Error> {
        unsupported("next tokens")
    }

    /// KL(view ‖ other) of the token after the end of each row, `[rows]`.
    ///
    /// # Errors
    /// When a row is empty.
    fn divergence(&mut self, _: &View, _: &View, _: &Rows) -> Result<Tensor, Error> {
        unsupported("next tokens")
    }

    /// Makes a patch active; gives the number that takes it back.
    ///
    /// # Errors
    /// When the patch does not fit the model.
    fn patch(&mut self, _: Patch) -> Result<u64, Error> {
        unsupported("patches")
    }

    /// Takes a patch back.
    fn unpatch(&mut self, _: u64) {}

    /// Takes every patch back: the method that made them is gone.
    fn unpatch_all(&mut self) {}

    /// Rows and columns of a matrix.
    ///
    /// # Errors
    /// When the layer is not there.
    fn matrix(&self, _: Role, _: usize) -> Result<(usize, usize), Error> {
        unsupported("weights")
    }

    /// How later edits are kept.
    ///
    /// # Errors
    /// When edits were kept the other way.
    fn keep_edits_as(&mut self, _: Form) -> Result<(), Error> {
        unsupported("weights")
    }

    /// Rows `first .. first + count` of a matrix, `f32`.
    ///
    /// # Errors
    /// When they are not there.
    fn read_rows(&mut self, _: Role, _: usize, _: usize, _: usize) -> Result<Tensor, Error> {
        unsupported("weights")
    }

    /// W ← W + scale · left rightᵀ.
    ///
    /// # Errors
    /// When the vectors do not fit the matrix, or the matrix cannot be edited.
    fn add_outer(&mut self, _: Role, _: usize, _: &[f32], _: &[f32], _: f32) -> Result<(), Error> {
        unsupported("weights")
    }

    /// W ← W − strength · r rᵀ W.
    ///
    /// # Errors
    /// When the direction does not fit the matrix, or the matrix cannot be edited.
    fn project_out(&mut self, _: Role, _: usize, _: &[f32], _: f32, _: bool) -> Result<(), Error> {
        unsupported("weights")
    }

    /// Takes a direction for the run's artifact.
    ///
    /// # Errors
    /// When it was read at another site or token than those before.
    fn publish(&mut self, _: Direction) -> Result<(), Error> {
        unsupported("publishing")
    }

    /// The text of tokens, without special ones.
    ///
    /// # Errors
    /// When the model has no tokenizer.
    fn decode(&mut self, _: &[u32]) -> Result<String, Error> {
        unsupported("text")
    }

    /// The tokens of a text, without special ones.
    ///
    /// # Errors
    /// When the model has no tokenizer.
    fn encode(&mut self, _: &str) -> Result<Vec<u32>, Error> {
        unsupported("text")
    }
}
