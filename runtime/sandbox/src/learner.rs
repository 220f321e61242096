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

/// The model under training, its optimiser and its place in the run.
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
        view: &View,
        rows: &Arc<Rows>,
        taps: TapSet,
        temperature: f32,
        keep: bool,
    ) -> Result<Scored, Error>;

    /// Whether rows that are scored one after another are better scored in one pass: where what they begin with in
    /// common is then computed once. Such scores are only asked for when somebody looks at them.
    fn joins(&self, _view: &View, _keep: bool) -> bool {
        false
    }

    /// Adds the gradient of Σ seed · tap to what has accumulated; uses up what `scored` kept.
    ///
    /// # Errors
    /// When memory runs out or a gradient is not finite.
    fn backward(&mut self, scored: &mut Scored, seeds: &Seeds) -> Result<(), Error>;

    /// Takes a frozen copy of the trained weights under a name; replaces one of the same name.
    ///
    /// # Errors
    /// When the adapter cannot be copied or memory runs out.
    fn snapshot(&mut self, name: &str) -> Result<(), Error>;

    /// Whether there is a view of the model before training.
    fn has_reference(&self) -> bool;

    /// Clips, updates the weights, clears the gradient; returns its norm before clipping.
    ///
    /// # Errors
    /// When the gradient is not finite.
    fn update(&mut self) -> Result<f32, Error>;

    /// The learning rate of the coming update.
    fn rate(&self) -> f64;

    /// Finished updates.
    fn position(&self) -> u32;

    /// Planned updates.
    fn planned(&self) -> u32;

    /// A number that changes with every update of the weights.
    fn generation(&self) -> u64;

    /// Whether a gradient has accumulated since the last update.
    fn has_accumulated(&self) -> bool;
}

/// No learner: what a session holds in its place between two calls. Nothing reaches it.
#[derive(Debug)]
pub(crate) struct Absent {
    device: Device,
}

impl Default for Absent {
    fn default() -> Self {
        Self { device: Device::Cpu }
    }
}

fn absent<T>() -> Result<T, Error> {
    Err(Error::Argument("there is no model between two calls".into()))
}

impl Sampling for Absent {}

impl Editing for Absent {}

impl Learner for Absent {
    fn device(&self) -> &Device {
        &self.device
    }

    fn score(&mut self, _: &View, _: &Arc<Rows>, _: TapSet, _: f32, _: bool) -> Result<Scored, Error> {
        absent()
    }

    fn backward(&mut self, _: &mut Scored, _: &Seeds) -> Result<(), Error> {
        absent()
    }

    fn snapshot(&mut self, _: &str) -> Result<(), Error> {
        absent()
    }

    fn has_reference(&self) -> bool {
        false
    }

    fn update(&mut self) -> Result<f32, Error> {
        absent()
    }

    fn rate(&self) -> f64 {
        0.0
    }

    fn position(&self) -> u32 {
        0
    }

    fn planned(&self) -> u32 {
        0
    }

    fn generation(&self) -> u64 {
        0
    }

    fn has_accumulated(&self) -> bool {
        false
    }
}
