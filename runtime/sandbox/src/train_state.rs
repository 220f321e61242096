//! The model under training, everything that a method changes in it, and the hooks of its run.
//!
//! A [`crate::Session`] and the method's instance share a train state through a mutex. It outlives the instance: after
//! a trap, or a panic under a call, the session and the next method go on with it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tunebox_compute::Tensor;
use tunebox_foundation::explain::ensure;
use tunebox_model::error::Error;
use tunebox_model::policy::{Captured, Policy, Scored, Seeds};
use tunebox_model::rows::Rows;
use tunebox_model::stream::{Site, Token};

use crate::method_parameters::MethodParameters;
use crate::run_hooks::RunHooks;
use crate::run_hooks::ScoreRequest;

/// A direction in the residual stream that a method publishes in the run's artifact.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// The layer that it belongs to.
    pub layer: usize,
    /// The site where it was read.
    pub site: Site,
    /// The token at which it was read.
    pub token: Token,
    /// The direction, `[hidden]`.
    pub vector: Vec<f32>,
    /// The advised factor for adding the direction.
    pub coefficient: f32,
}

/// The policy, the snapshots and directions that methods made, and the hooks of the run.
pub struct TrainState<H: ?Sized = dyn RunHooks> {
    /// The model under training.
    pub policy: Policy,
    /// The trained values of each snapshot by its name: flat, on the CPU, in the order of the parameters' slots.
    pub snapshots: BTreeMap<String, Tensor>,
    /// Directions for the run's artifact, by layer.
    pub published: BTreeMap<usize, Direction>,
    /// The method's state of parameters, its extra parameters, and the values before a perturbation.
    pub method_parameters: MethodParameters,
    /// The values with which new extra parameters of these names begin: those of the run whose adapter this run
    /// continues. `f32` on the CPU; they stay as they are for the whole run.
    pub start_values: BTreeMap<String, Tensor>,
    has_gradient: bool,
    /// The hooks of the run.
    pub hooks: H,
}

impl<H> TrainState<H> {
    /// Creates a train state without snapshots, published directions and gradient.
    pub fn new(policy: Policy, hooks: H) -> Self {
        Self {
            policy,
            snapshots: BTreeMap::new(),
            published: BTreeMap::new(),
            method_parameters: MethodParameters::default(),
            start_values: BTreeMap::new(),
            has_gradient: false,
            hooks,
        }
    }
}

impl<H: RunHooks + ?Sized> TrainState<H> {
    /// Scores rows through the run's [`RunHooks::score`].
    ///
    /// # Errors
    /// Those of the hook: rows or view that do not fit the model, or exhausted memory.
    pub fn score(&mut self, rows: &Arc<Rows>, request: &ScoreRequest) -> Result<Scored, Error> {
        self.hooks.score(&self.policy, rows, request)
    }

    /// Runs the backward pass of `scored` through the run's [`RunHooks::backward`] and adds to the policy's gradient.
    /// `seeds` are the gradients of the taps. [`has_gradient`](Self::has_gradient) is true afterwards, even if the hook
    /// fails.
    ///
    /// # Errors
    /// Those of the hook: exhausted memory, or a gradient that is not finite.
    pub fn backward(&mut self, scored: &mut Scored, seeds: &Seeds) -> Result<(), Error> {
        self.has_gradient = true;
        self.hooks.backward(&self.policy, scored, seeds)
    }

    /// Runs the backward pass of captured activations and adds to the policy's gradient. `seeds` is the gradient with
    /// respect to the activations. [`has_gradient`](Self::has_gradient) is true afterwards, even on an error.
    ///
    /// # Errors
    /// When memory runs out or the time is over.
    pub fn backward_captured(&mut self, captured: &mut Captured, seeds: &Tensor) -> Result<(), Error> {
        self.has_gradient = true;
        self.policy.backward_captured(captured, seeds)
    }

    /// Whether a backward pass was started since the last update or clearing.
    pub fn has_gradient(&self) -> bool {
        self.has_gradient
    }

    /// Updates the weights through the run's [`RunHooks::update`]; returns the norm of the gradient before clipping.
    /// Also clears the gradients of extra parameters. [`has_gradient`](Self::has_gradient) is false afterwards, even if
    /// the hook fails.
    ///
    /// # Errors
    /// Those of the hook: a gradient that is not finite, or a run without updates.
    pub fn update(&mut self) -> Result<f32, Error> {
        let norm = self.hooks.update(&mut self.policy);
        self.method_parameters.clear_gradients();
        self.has_gradient = false;
        norm
    }

    /// Ends an update that the method made itself, through the run's [`RunHooks::count_update`]: clears all gradients
    /// and returns the norm that the gradient had, without extra parameters. [`has_gradient`](Self::has_gradient) is
    /// false afterwards, even if the hook fails.
    ///
    /// # Errors
    /// Those of the hook: a device that fails, or a run without updates.
    pub fn count_update(&mut self) -> Result<f32, Error> {
        let norm = self.hooks.count_update(&mut self.policy);
        self.method_parameters.clear_gradients();
        self.has_gradient = false;
        norm
    }

    /// Adds `scale` · z to all values that the run trains, with the z of the random stream of this seed and name, and
    /// keeps the values from before. Counts as a change of the weights. Call only while no perturbation is active.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn perturb(&mut self, seed: u64, name: &str, scale: f32) -> Result<(), Error> {
        let parameters = self.policy.parameters();
        self.method_parameters.unperturbed = Some(parameters.snapshot()?);
        parameters.add_noise(seed, name, scale)?;
        self.policy.note_update();
        Ok(())
    }

    /// Restores the values from before the perturbation, bit for bit, and counts as a change of the weights. Does
    /// nothing if no perturbation is active.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn end_perturbation(&mut self) -> Result<(), Error> {
        let Some(values) = self.method_parameters.unperturbed.take() else { return Ok(()) };
        self.policy.parameters().assign(None, &values)?;
        self.policy.note_update();
        Ok(())
    }

    /// Sets the policy's gradient and those of extra parameters to 0. [`has_gradient`](Self::has_gradient) is false
    /// afterwards, even on an error.
    ///
    /// # Errors
    /// When the device fails.
    pub fn clear_gradient(&mut self) -> Result<(), Error> {
        self.has_gradient = false;
        self.method_parameters.clear_gradients();
        Ok(self.policy.parameters().clear_gradients()?)
    }

    /// Has the policy store a frozen copy of its adapter and edits under a name, and stores the trained values in
    /// `snapshots`, flat and on the CPU. Replaces a snapshot of that name.
    ///
    /// # Errors
    /// When all weights are trained, so that there is no adapter to copy, or memory runs out.
    pub fn snapshot(&mut self, name: &str) -> Result<(), Error> {
        self.policy.snapshot(name)?;
        self.snapshots.insert(name.to_owned(), self.policy.parameters().snapshot()?);
        Ok(())
    }

    /// Restores a snapshot from its trained values, flat, and the file of its edits, which need not exist. Also
    /// overwrites the policy's trained values with those of the snapshot: the caller restores them afterwards.
    ///
    /// # Errors
    /// When the numbers or edits do not fit the model.
    pub fn restore_snapshot(&mut self, name: &str, values: Tensor, edits: &Path) -> Result<(), Error> {
        self.set_trained(&values)?;
        self.policy.restore_snapshot(name, edits)?;
        self.snapshots.insert(name.to_owned(), values);
        Ok(())
    }

    /// Overwrites all trained weights with those of a flat tensor on the CPU, in the order of the parameters' slots.
    /// Ignores values past the last slot.
    ///
    /// # Errors
    /// When there are fewer values than trained weights, or the device fails; the slots before stay overwritten.
    pub fn set_trained(&self, values: &Tensor) -> Result<(), Error> {
        let parameters = self.policy.parameters();
        for (index, slot) in parameters.slots().iter().enumerate() {
            let count = slot.shape.iter().product();
            parameters.set(index, &values.narrow(0, slot.offset, count)?.reshape(slot.shape.as_slice())?)?;
        }
        Ok(())
    }

    /// Adds a direction to the run's artifact; replaces an earlier one of the same layer.
    ///
    /// # Errors
    /// When directions of other layers have another site, token or coefficient.
    pub fn publish(&mut self, direction: Direction) -> Result<(), Error> {
        let kind = |direction: &Direction| (direction.site, direction.token, direction.coefficient);
        let mut others = self.published.values().filter(|known| known.layer != direction.layer);
        let message = "the directions of a run are read at one site and token, and have one coefficient";
        ensure(others.all(|known| kind(known) == kind(&direction)), || Error::Argument(message.into()))?;
        self.published.insert(direction.layer, direction);
        Ok(())
    }
}

/// A train state that a session and the instance of its method share.
pub(crate) type Shared<H = dyn RunHooks> = Arc<Mutex<TrainState<H>>>;

/// Locks a shared state. A panic under the lock leaves the state usable: the call that panicked is reported as failed.
pub(crate) fn lock<H: ?Sized>(shared: &Mutex<TrainState<H>>) -> MutexGuard<'_, TrainState<H>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    use tunebox_model::policy::PolicySettings;
    use tunebox_model::{Model, adapter::AdapterSettings};

    /// A run that keeps the default of every hook.
    pub(crate) struct NoRun;

    impl RunHooks for NoRun {}

    /// A tiny model with random weights and an adapter.
    pub(crate) fn tiny<H: RunHooks>(hooks: H) -> TrainState<H> {
        let folder = tempfile::tempdir().unwrap();
        let config = serde_json::json!({
            "model_type": "llama", "vocab_size": 16, "hidden_size": 4, "intermediate_size": 4,
            "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 16, "tie_word_embeddings": true,
        });
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let model = Arc::new(Model::random(folder.path(), 1, &tunebox_compute::Device::Cpu).unwrap());
        let policy = Policy::new(model, &AdapterSettings::default(), PolicySettings::default()).unwrap();
        TrainState::new(policy, hooks)
    }

    /// A shared train state of a tiny model, in a run that keeps the default of every hook.
    pub(crate) fn shared() -> Shared {
        Arc::new(Mutex::new(tiny(NoRun)))
    }
}
