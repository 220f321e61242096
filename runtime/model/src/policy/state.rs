//! Saves and restores the state of a policy beside its trained values, for a step that is retried.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Policy;
use crate::adapter::Adapter;
use crate::edit::Edits;
use crate::error::Result;

/// The edits, snapshots and update count of a policy at one moment. Shares its tensors, which the policy never
/// overwrites.
#[derive(Clone)]
pub struct PolicyState {
    edits: Edits,
    snapshots: BTreeMap<String, Arc<(Adapter, Edits)>>,
    generation: u64,
}

impl Policy {
    /// Copies the present edits, snapshots and update count, without the trained values and patches.
    #[must_use]
    pub fn state(&self) -> PolicyState {
        PolicyState { edits: self.edits.clone(), snapshots: self.snapshots.clone(), generation: self.generation }
    }

    /// Replaces edits, with their form, snapshots and update count by those that [`state`](Self::state) returned, and
    /// restarts the numbering of dropout passes. Patches stay. The caller restores the trained values.
    pub fn restore_state(&mut self, state: &PolicyState) {
        self.edits.clone_from(&state.edits);
        self.snapshots.clone_from(&state.snapshots);
        self.resume_at(state.generation);
    }

    /// Restores a saved state after a method's `init` has run again. The saved edits, if any weight was edited, replace
    /// those that `init` made; else the edits of `init` stay. Saved snapshots replace those of `init` with equal names;
    /// its other snapshots stay. Sets the update count to the saved one and restarts the numbering of dropout passes.
    /// The caller restores the trained values.
    pub fn restore_state_over_init(&mut self, state: &PolicyState) {
        if !state.edits.is_empty() {
            self.edits.clone_from(&state.edits);
        }
        self.snapshots.extend(state.snapshots.clone());
        self.resume_at(state.generation);
    }

    /// Returns to the state before the first step: initial trained values (of the continued adapter, if there is one),
    /// no edits, edits held as weights, no snapshots, update count 0. Patches and gradients stay as they are.
    ///
    /// # Errors
    /// When a weight cannot be read, or the device fails.
    pub fn reset(&mut self) -> Result<()> {
        match &self.reference {
            Some(continued) => self.adapter.parameters().copy_from(continued.parameters())?,
            None => self.adapter.initialize(&self.model)?,
        }
        self.edits = Edits::default();
        self.snapshots.clear();
        self.resume_at(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tunebox_compute::Tensor;

    use super::*;
    use crate::adapter::{AdapterKind, AdapterSettings};
    use crate::edit::Role;
    use crate::policy::PolicySettings;
    use crate::tiny;

    fn values(policy: &Policy) -> Vec<f32> {
        policy.parameters().values().to_vec1().unwrap()
    }

    /// Changes every number that trains, and the embedding.
    fn change(policy: &mut Policy) {
        let parameters = policy.parameters();
        for (number, slot) in parameters.slots().iter().enumerate() {
            let device = parameters.device();
            parameters.set(number, &Tensor::full(0.5_f32, slot.shape.as_slice(), device).unwrap()).unwrap();
        }
        policy.project_out(Role::Embedding, 0, &[1.0; 16], 0.5, false).unwrap();
        policy.note_update();
    }

    #[test]
    fn a_policy_begins_anew_with_the_numbers_that_it_began_with() {
        for kind in [AdapterKind::Lora, AdapterKind::Dora, AdapterKind::Full] {
            let settings = AdapterSettings { kind, ..AdapterSettings::default() };
            let model = tiny::model(tiny::llama(), 1);
            let mut policy = Policy::new(model, &settings, PolicySettings::default()).unwrap();
            let first = values(&policy);
            change(&mut policy);
            assert_ne!(values(&policy), first, "{kind:?}");
            policy.reset().unwrap();
            assert_eq!(values(&policy), first, "{kind:?}");
            assert!(!policy.is_edited() && policy.generation() == 0, "{kind:?}");
        }
    }

    #[test]
    fn a_policy_that_continues_an_adapter_begins_anew_with_that() {
        let (model, settings) = (tiny::model(tiny::llama(), 1), AdapterSettings::default());
        let mut written = Policy::new(Arc::clone(&model), &settings, PolicySettings::default()).unwrap();
        change(&mut written);
        let folder = tempfile::tempdir().unwrap();
        written.save(folder.path()).unwrap();
        let mut policy = Policy::open(model, Some(folder.path()), PolicySettings::default()).unwrap();
        let zero = Tensor::zeros_like(&policy.parameters().value(0).unwrap()).unwrap();
        policy.parameters().set(0, &zero).unwrap();
        policy.snapshot("old").unwrap();
        policy.reset().unwrap();
        assert_eq!(values(&policy), values(&written));
        assert!(policy.snapshots.is_empty());
    }
}
