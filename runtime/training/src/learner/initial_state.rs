//! A copy in memory of everything that a checkpoint saves of a train state, from which a failed step is tried again.
//!
//! A new version of a method runs its `init` on the state of the run's beginning (see [`reset`]), as in a resumed run;
//! the copy is then restored over it. So `init` reads the same values as the first time.

use std::collections::BTreeMap;

use tunebox_compute::Tensor;
use tunebox_model::error::Error;
use tunebox_model::policy::PolicyState;
use tunebox_sandbox::{Direction, MethodParameters};

use super::TrainState;

/// A copy of a train state between two steps.
pub(crate) struct InitialState {
    /// The trained numbers, flat, on the CPU.
    values: Tensor,
    /// The optimizer's state by name, on the CPU; empty if the method updates the parameters itself.
    optimizer: Vec<(&'static str, Tensor)>,
    /// Updates of the weights, by the optimizer or by the method.
    updates: u64,
    method_parameters: MethodParameters,
    snapshots: BTreeMap<String, Tensor>,
    published: BTreeMap<usize, Direction>,
    policy: PolicyState,
}

impl InitialState {
    /// Copies everything of a train state that a step may change, except the gradient and patches. Trained numbers and
    /// the optimizer's state are copied to the CPU.
    pub(crate) fn copy_of(train_state: &TrainState) -> Result<Self, Error> {
        Ok(Self {
            values: train_state.policy.parameters().snapshot()?,
            optimizer: optimizer_state(train_state)?,
            updates: train_state.hooks.updates(),
            method_parameters: train_state.method_parameters.clone(),
            snapshots: train_state.snapshots.clone(),
            published: train_state.published.clone(),
            policy: train_state.policy.state(),
        })
    }

    /// Restores the copy in place of the train state's present content, patches excepted, and clears the gradient.
    /// Fails if the device or the optimizer rejects the numbers.
    pub(crate) fn restore(&self, train_state: &mut TrainState) -> Result<(), Error> {
        train_state.snapshots.clone_from(&self.snapshots);
        train_state.published.clone_from(&self.published);
        train_state.policy.restore_state(&self.policy);
        self.restore_numbers(train_state)
    }

    /// Restores the copy after a method's `init` ran again, and clears the gradient. Keeps from `init` what the copy
    /// lacks: edits if the copy has none, snapshots under other names, and directions of other layers.
    pub(crate) fn restore_after_init(&self, train_state: &mut TrainState) -> Result<(), Error> {
        train_state.snapshots.extend(self.snapshots.clone());
        train_state.published.extend(self.published.clone());
        train_state.policy.restore_state_over_init(&self.policy);
        self.restore_numbers(train_state)
    }

    /// Restores the trained numbers, what the method keeps of parameters, the optimizer's state and the update counts,
    /// and clears the gradient.
    fn restore_numbers(&self, train_state: &mut TrainState) -> Result<(), Error> {
        train_state.set_trained(&self.values)?;
        train_state.method_parameters.clone_from(&self.method_parameters);
        let TrainState { policy, hooks, .. } = train_state;
        hooks.own_updates = self.updates;
        if let Some(optimizer) = &mut hooks.optimizer {
            optimizer.restore(policy.parameters(), &self.optimizer, self.updates)?;
        }
        train_state.clear_gradient()
    }
}

/// Copies of the optimizer's state on the CPU, by name, which no later update changes. Empty without an optimizer.
fn optimizer_state(train_state: &TrainState) -> Result<Vec<(&'static str, Tensor)>, Error> {
    let parameters = train_state.policy.parameters();
    let Some(optimizer) = &train_state.hooks.optimizer else { return Ok(Vec::new()) };
    let mut state = optimizer.state(parameters)?;
    // The state of an accelerator was copied to the CPU already.
    if parameters.device().is_cpu() {
        for (_, tensor) in &mut state {
            *tensor = tensor.copy()?;
        }
    }
    Ok(state)
}

/// Resets a train state to the beginning of the run, before any `init`: weights and what the method keeps
/// ([`reset_weights`]), the optimizer, and the count of updates. Clears the gradient.
pub(crate) fn reset(train_state: &mut TrainState) -> Result<(), Error> {
    reset_weights(train_state)?;
    let TrainState { policy, hooks, .. } = &mut *train_state;
    if let Some(optimizer) = &mut hooks.optimizer {
        optimizer.reset(policy.parameters())?;
    }
    hooks.own_updates = 0;
    train_state.clear_gradient()
}

/// Resets the policy, and removes snapshots, directions, and what the method keeps of parameters. Leaves the optimizer
/// as it is.
pub(crate) fn reset_weights(train_state: &mut TrainState) -> Result<(), Error> {
    train_state.snapshots.clear();
    train_state.published.clear();
    train_state.method_parameters = MethodParameters::default();
    train_state.policy.reset()
}
