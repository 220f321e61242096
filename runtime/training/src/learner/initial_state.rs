//! A copy in memory of everything that a checkpoint saves of a train state, from which a failed step is tried again.
//!
//! A new version of a method runs its `init` on the state of the run's beginning (see [`reset`]), as in a resumed run; the
//! copy is then restored over it. So `init` reads the same values as the first time.

use std::collections::BTreeMap;

use tunebox_compute::{DType, Device, Tensor};
use tunebox_model::error::Error;
use tunebox_model::policy::PolicyState;
use tunebox_sandbox::Direction;

use super::TrainState;

/// A copy of a train state between two steps.
pub(crate) struct InitialState {
    /// The trained numbers, flat, on the CPU.
    values: Tensor,
    /// The optimizer's first and second moments, flat, on the CPU.
    moments: (Tensor, Tensor),
    /// Updates of the optimizer.
    updates: u64,
    snapshots: BTreeMap<String, Tensor>,
    published: BTreeMap<usize, Direction>,
    policy: PolicyState,
}

impl InitialState {
    /// Copies everything that a step may change. Trained numbers and the optimizer's two moments are copied to the CPU.
    pub(crate) fn copy_of(train_state: &TrainState) -> Result<Self, Error> {
        Ok(Self {
            values: train_state.policy.parameters().snapshot()?,
            moments: moments(train_state)?,
            updates: train_state.hooks.optimizer.steps(),
            snapshots: train_state.snapshots.clone(),
            published: train_state.published.clone(),
            policy: train_state.policy.state(),
        })
    }

    /// Restores the copy in place of the train state's present content, and clears the gradient.
    pub(crate) fn restore(&self, train_state: &mut TrainState) -> Result<(), Error> {
        train_state.snapshots.clone_from(&self.snapshots);
        train_state.published.clone_from(&self.published);
        train_state.policy.restore_state(&self.policy);
        self.restore_numbers(train_state)
    }

    /// Restores the copy after a method's `init` ran again. Keeps from `init` what the copy lacks: edits if it has
    /// none, snapshots under other names, and directions of other layers.
    pub(crate) fn restore_after_init(&self, train_state: &mut TrainState) -> Result<(), Error> {
        train_state.snapshots.extend(self.snapshots.clone());
        train_state.published.extend(self.published.clone());
        train_state.policy.restore_state_over_init(&self.policy);
        self.restore_numbers(train_state)
    }

    /// Restores the trained numbers and the optimizer's moments and update count, and clears the gradient.
    fn restore_numbers(&self, train_state: &mut TrainState) -> Result<(), Error> {
        train_state.set_trained(&self.values)?;
        let (first, second) = &self.moments;
        train_state.hooks.optimizer.restore(train_state.policy.parameters(), first, second, self.updates)?;
        train_state.clear_gradient()
    }
}

/// Copies of the optimizer's first and second moments on the CPU, which no later update changes.
fn moments(train_state: &TrainState) -> Result<(Tensor, Tensor), Error> {
    let parameters = train_state.policy.parameters();
    let (first, second, _) = train_state.hooks.optimizer.state(parameters)?;
    // Moments of an accelerator were copied to the CPU already.
    if parameters.device().is_cpu() { Ok((first.copy()?, second.copy()?)) } else { Ok((first, second)) }
}

/// Resets a train state to the beginning of the run, before any `init`: removes snapshots and directions, resets the
/// policy, zeroes the optimizer and clears the gradient.
pub(crate) fn reset(train_state: &mut TrainState) -> Result<(), Error> {
    train_state.snapshots.clear();
    train_state.published.clear();
    train_state.policy.reset()?;
    let parameters = train_state.policy.parameters();
    let zeros = Tensor::zeros(parameters.len(), DType::F32, &Device::Cpu)?;
    train_state.hooks.optimizer.restore(parameters, &zeros, &zeros, 0)?;
    train_state.clear_gradient()
}
