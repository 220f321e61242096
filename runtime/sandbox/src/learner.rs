//! What a session works on: the model under training, seen through seven verbs.
//!
//! A run implements this over its policy, optimiser and schedule; tests implement it over a few
//! numbers. The session owns the learner while a method runs and gives it back whatever happens.

mod editing;
mod sampling;

use std::any::Any;
use std::sync::Arc;

use tunebox_compute::Device;
use tunebox_compute::fused::TapSet;
use tunebox_model::error::Error;
use tunebox_model::policy::{Scored, Seeds, View};
use tunebox_model::rows::Rows;

pub use editing::{Direction, Editing, Sizes};
pub use sampling::{Sampler, Sampling};

/// The model under training, its optimiser and its place in the run. What it does not do keeps the default: what can fail
/// is refused, and a method that asks for it is told so; numbers are 0.
pub trait Learner: Sampling + Editing + Any + Send {
    /// Where what a method sees and computes lives: scores, and the tensors made of them. It need not be where the model
    /// computes.
    fn device(&self) -> &Device;

    /// Scores rows through a view. With `keep`, holds on to what a backward pass needs.
    ///
    /// # Errors
    /// When the rows or the view do not fit the model, or memory runs out.
    fn score(
        &mut self,
        _view: &View,
        _rows: &Arc<Rows>,
        _taps: TapSet,
        _temperature: f32,
        _keep: bool,
    ) -> Result<Scored, Error> {
        unsupported("scores")
    }

    /// Whether rows that are scored one after another are better scored in one pass: where what they begin with in
    /// common is then computed once. Such scores are only asked for when somebody looks at them.
    fn joins(&self, _view: &View, _keep: bool) -> bool {
        false
    }

    /// Adds the gradient of Σ seed · tap to what has accumulated; uses up what `scored` kept.
    ///
    /// # Errors
    /// When memory runs out or a gradient is not finite.
    fn backward(&mut self, _scored: &mut Scored, _seeds: &Seeds) -> Result<(), Error> {
        unsupported("gradients")
    }

    /// Takes a frozen copy of the trained weights under a name; replaces one of the same name.
    ///
    /// # Errors
    /// When the adapter cannot be copied or memory runs out.
    fn snapshot(&mut self, _name: &str) -> Result<(), Error> {
        unsupported("snapshots")
    }

    /// Whether there is a view of the model before training.
    fn has_reference(&self) -> bool {
        false
    }

    /// Clips, updates the weights, clears the gradient; returns its norm before clipping.
    ///
    /// # Errors
    /// When the gradient is not finite.
    fn update(&mut self) -> Result<f32, Error> {
        unsupported("updates")
    }

    /// The learning rate of the coming update.
    fn rate(&self) -> f64 {
        0.0
    }

    /// Finished updates.
    fn position(&self) -> u32 {
        0
    }

    /// Planned updates.
    fn planned(&self) -> u32 {
        0
    }

    /// A number that changes with every update of the weights.
    fn generation(&self) -> u64;

    /// Whether a gradient has accumulated since the last update.
    fn has_accumulated(&self) -> bool {
        false
    }
}

/// No learner: what a session holds in its place between two calls. Nothing reaches it.
#[derive(Debug)]
pub(crate) struct Absent;

impl Sampling for Absent {}

impl Editing for Absent {}

impl Learner for Absent {
    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn generation(&self) -> u64 {
        0
    }
}

/// What a learner says that does not do this.
fn unsupported<T>(what: &str) -> Result<T, Error> {
    Err(Error::Unsupported(format!("this run offers no {what}")))
}
