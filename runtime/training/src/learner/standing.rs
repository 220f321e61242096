//! All of a student that a checkpoint keeps, in memory: where a step begins that is tried again.
//!
//! A method takes up a run by its `init` first, which did its work on the model at the beginning of the run. So the student
//! begins anew for it, and what is kept comes after it, in its place: nothing is done twice, and what the method read then
//! is what it read before.

use std::collections::BTreeMap;
use std::path::Path;

use tunebox_compute::{DType, Device, Tensor};
use tunebox_model::error::Error;
use tunebox_model::policy::Aside;
use tunebox_sandbox::Direction;

use super::Student;

/// A student as it was between two steps.
pub(crate) struct Standing {
    /// What is trained, flat, on the CPU.
    values: Tensor,
    /// The moments of the optimiser, as flat.
    moments: (Tensor, Tensor),
    /// Updates of the optimiser.
    updates: u64,
    snapshots: BTreeMap<String, Tensor>,
    published: BTreeMap<usize, Direction>,
    policy: Aside,
}

impl Student {
    /// All that a step may change. Copies three numbers for every one that is trained.
    pub(crate) fn standing(&self) -> Result<Standing, Error> {
        let parameters = self.policy.parameters();
        Ok(Standing {
            values: parameters.snapshot()?,
            moments: self.moments()?,
            updates: self.optimizer.steps(),
            snapshots: self.snapshots.clone(),
            published: self.published.clone(),
            policy: self.policy.aside(),
        })
    }

    /// Takes down where it stands now in the place of what was there, part by part: there may be no room for both.
    pub(crate) fn stand(&self, standing: &mut Standing) -> Result<(), Error> {
        standing.values = self.policy.parameters().snapshot()?;
        standing.moments = self.moments()?;
        standing.updates = self.optimizer.steps();
        standing.snapshots.clone_from(&self.snapshots);
        standing.published.clone_from(&self.published);
        standing.policy = self.policy.aside();
        Ok(())
    }

    /// The moments of the optimiser, which no later update changes.
    fn moments(&self) -> Result<(Tensor, Tensor), Error> {
        let parameters = self.policy.parameters();
        let (first, second, _) = self.optimizer.state(parameters)?;
        // Those of an accelerator were copied on the way here.
        if parameters.device().is_cpu() { Ok((first.copy()?, second.copy()?)) } else { Ok((first, second)) }
    }

    /// Goes back to the beginning of the run, before any `init`.
    pub(crate) fn begin_anew(&mut self) -> Result<(), Error> {
        self.snapshots.clear();
        self.published.clear();
        self.policy.begin_anew()?;
        let parameters = self.policy.parameters();
        let none = Tensor::zeros(parameters.len(), DType::F32, &Device::Cpu)?;
        self.optimizer.restore(parameters, &none, &none, 0)?;
        self.forget_gradient()
    }

    /// Goes back to where it stood; what has accumulated since is forgotten.
    pub(crate) fn go_back(&mut self, standing: &Standing) -> Result<(), Error> {
        self.snapshots.clone_from(&standing.snapshots);
        self.published.clone_from(&standing.published);
        self.policy.put_back(&standing.policy);
        self.numbers_of(standing)
    }

    /// Goes on from where it stood, after a method's `init`. What that did for the first time stays: edits where there were
    /// none, snapshots under new names.
    pub(crate) fn go_on(&mut self, standing: &Standing) -> Result<(), Error> {
        self.snapshots.extend(standing.snapshots.clone());
        self.published.extend(standing.published.clone());
        self.policy.put_over(&standing.policy);
        self.numbers_of(standing)
    }

    fn numbers_of(&mut self, standing: &Standing) -> Result<(), Error> {
        self.train_from(&standing.values)?;
        let (first, second) = &standing.moments;
        self.optimizer.restore(self.policy.parameters(), first, second, standing.updates)?;
        self.forget_gradient()
    }

    /// Forgets what has accumulated.
    pub(crate) fn forget_gradient(&mut self) -> Result<(), Error> {
        self.accumulated = false;
        Ok(self.policy.parameters().clear_gradients()?)
    }

    /// Puts a snapshot of a checkpoint back in place, with what was edited then in the file of a path, if there is one. The
    /// trained numbers are those of the snapshot afterwards, so the checkpoint's own must follow.
    pub(crate) fn restore_snapshot(&mut self, name: &str, values: Tensor, edits: &Path) -> Result<(), Error> {
        self.train_from(&values)?;
        self.policy.restore_snapshot(name, edits)?;
        self.snapshots.insert(name.to_owned(), values);
        Ok(())
    }

    /// Overwrites all trained numbers with flat ones of the CPU.
    fn train_from(&self, values: &Tensor) -> Result<(), Error> {
        let parameters = self.policy.parameters();
        for (index, slot) in parameters.slots().iter().enumerate() {
            let count = slot.shape.iter().product();
            parameters.set(index, &values.narrow(0, slot.offset, count)?.reshape(slot.shape.as_slice())?)?;
        }
        Ok(())
    }
}
