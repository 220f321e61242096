//! What changes in a policy beside the numbers that train, kept aside and put back: for a step that is tried again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Policy;
use crate::adapter::Adapter;
use crate::edit::Edits;

/// Edits, snapshots and the count of updates of a policy at one moment. It shares their tensors: nothing writes to those.
#[derive(Clone)]
pub struct Aside {
    edits: Edits,
    snapshots: BTreeMap<String, Arc<(Adapter, Edits)>>,
    generation: u64,
}

impl Policy {
    /// What changes beside the trained numbers, as it is now.
    #[must_use]
    pub fn aside(&self) -> Aside {
        Aside { edits: self.edits.clone(), snapshots: self.snapshots.clone(), generation: self.generation }
    }

    /// Goes back to what [`aside`](Self::aside) gave; the trained numbers are the caller's to put back.
    pub fn put_back(&mut self, aside: &Aside) {
        self.edits.clone_from(&aside.edits);
        self.snapshots.clone_from(&aside.snapshots);
        self.resume_at(aside.generation);
    }

    /// The same over what a method's `init` did: edits and snapshots that were not there before stay.
    pub fn put_over(&mut self, aside: &Aside) {
        if !aside.edits.is_empty() {
            self.edits.clone_from(&aside.edits);
        }
        self.snapshots.extend(aside.snapshots.clone());
        self.resume_at(aside.generation);
    }
}
