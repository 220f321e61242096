//! All of a student that a checkpoint keeps, in memory: where a step begins that is tried again.

use std::collections::BTreeMap;

use tunebox_compute::Tensor;
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
        let (first, second, updates) = self.optimizer.state(parameters)?;
        Ok(Standing {
            values: parameters.snapshot()?,
            // On the CPU they would see later updates.
            moments: (first.copy()?, second.copy()?),
            updates,
            snapshots: self.snapshots.clone(),
            published: self.published.clone(),
            policy: self.policy.aside(),
        })
    }

    /// Goes back to where it stood; what has accumulated since is forgotten.
    pub(crate) fn go_back(&mut self, standing: &Standing) -> Result<(), Error> {
        self.train_from(&standing.values)?;
        let (first, second) = &standing.moments;
        self.optimizer.restore(self.policy.parameters(), first, second, standing.updates)?;
        self.snapshots.clone_from(&standing.snapshots);
        self.published.clone_from(&standing.published);
        self.policy.put_back(&standing.policy);
        self.accumulated = false;
        Ok(self.policy.parameters().clear_gradients()?)
    }

    /// Puts a snapshot of a checkpoint back in place. The trained numbers are those of the snapshot afterwards, so the
    /// checkpoint's own must follow.
    pub(crate) fn restore_snapshot(&mut self, name: &str, values: Tensor) -> Result<(), Error> {
        self.train_from(&values)?;
        self.policy.snapshot(name)?;
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
