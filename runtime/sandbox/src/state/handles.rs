//! Tensors of a method: given out as handles, charged, and freed one by one or by a scope.
//!
//! A tensor is charged to the run's ledger before it is made and stays charged as long as the handle, or a graph that
//! leads through it, lives.

use std::collections::BTreeSet;
use std::sync::Arc;

use tunebox_compute::budget::Reservation;
use tunebox_compute::ops::Made;
use tunebox_compute::{Device, Tensor};
use wasmtime::component::Resource;

use super::{Charge, Held, ScopeEntry, State, TensorEntry};
use crate::cause::Cause;
use crate::refusal::Refusal;

/// A handle that a function of the contract gives out, or why it gives none.
pub(crate) type Answer<T = TensorEntry> = Result<Resource<T>, Refusal>;

/// The device of a method's tensors: the CPU, wherever the model computes, so that a component works everywhere.
pub(crate) const DEVICE: Device = Device::Cpu;

impl State {
    /// Returns the tensor behind a handle, sharing its data. Ends the method if the handle is invalid or its scope was
    /// dropped.
    pub(crate) fn held(&self, handle: &Resource<TensorEntry>) -> Result<Held, Refusal> {
        let entry = self.table.get(handle)?;
        entry.held.clone().ok_or_else(|| Cause::FreedHandle.into())
    }

    /// Reserves 4 bytes an element, makes a tensor of `elements` elements, and returns its handle.
    pub(crate) fn give_new<E: Into<Refusal>>(
        &mut self,
        elements: u64,
        make: impl FnOnce(&Self) -> Result<Tensor, E>,
    ) -> Answer {
        let reservation = self.reserve(4 * elements)?;
        let tensor = make(self).map_err(Into::into)?;
        self.give(tensor, &[], reservation)
    }

    /// Returns a handle of a new tensor whose bytes `reservation` holds. If the tensor has a graph, the bytes of its
    /// operands `parents` stay reserved as long as the result, and a graph deeper than `graph_depth` ends the method.
    pub(crate) fn give(&mut self, tensor: Tensor, parents: &[&Held], reservation: Reservation) -> Answer {
        let (parents, depth) = if tensor.track_op() { self.lineage(parents)? } else { (Vec::new(), 0) };
        self.hand_out(Held { tensor, charge: Arc::new(Charge::new(reservation, parents)), depth })
    }

    /// Returns a handle of the result of a tensor operation on `parents`: as a new tensor if it has a reservation, else
    /// as a view of the first parent.
    pub(crate) fn give_result(&mut self, made: Made, parents: &[&Held]) -> Answer {
        match (made.reservation, parents) {
            (Some(reservation), parents) => self.give(made.tensor, parents, reservation),
            (None, [parent, ..]) => self.give_view(made.tensor, parent),
            (None, []) => {
                let nothing = self.reserve(0)?;
                self.give(made.tensor, &[], nothing)
            }
        }
    }

    /// Returns a handle of a tensor that shares the bytes of `parent` (a slice, transposition or expansion); nothing
    /// more is charged. A graph deeper than `graph_depth` ends the method.
    pub(crate) fn give_view(&mut self, tensor: Tensor, parent: &Held) -> Answer {
        if !tensor.track_op() {
            return self.hand_out(Held { tensor, charge: parent.charge.clone(), depth: 0 });
        }
        let (_, depth) = self.lineage(&[parent])?;
        self.hand_out(Held { tensor, charge: parent.charge.clone(), depth })
    }

    /// Returns a handle of a tensor whose bytes are reserved already. Numbers the tensor for scopes and updates the
    /// peak.
    pub(crate) fn hand_out(&mut self, held: Held) -> Answer {
        let serial = self.serial;
        let handle = self.table.push(TensorEntry { held: Some(held), serial })?;
        self.serial += 1;
        self.live.insert(serial, handle.rep());
        self.usage.peak_tensors = self.usage.peak_tensors.max(self.live.len() as u64);
        Ok(handle)
    }

    /// Returns the charges of the operands, which a result with a graph keeps alive, and the depth of that graph.
    /// Errors: the depth exceeds `graph_depth`.
    fn lineage(&self, parents: &[&Held]) -> Result<(Vec<Arc<Charge>>, u32), Cause> {
        let depth = 1 + parents.iter().map(|parent| parent.depth).max().unwrap_or(0);
        if depth > self.limits.graph_depth {
            return Err(Cause::GraphDepth { limit: self.limits.graph_depth });
        }
        Ok((parents.iter().map(|parent| parent.charge.clone()).collect(), depth))
    }

    /// Deletes a handle. The tensor's bytes are released when no other tensor or graph needs them.
    pub(crate) fn free(&mut self, handle: Resource<TensorEntry>) -> Result<(), Refusal> {
        let entry = self.table.delete(handle)?;
        self.live.remove(&entry.serial);
        Ok(())
    }

    /// Opens a scope, to which tensors given out from now on belong, and returns its handle.
    pub(crate) fn open_scope(&mut self) -> Answer<ScopeEntry> {
        Ok(self.table.push(ScopeEntry { opened: self.serial, kept: BTreeSet::new() })?)
    }

    /// Exempts a tensor from being freed with a scope. Ends the method if the tensor was freed already.
    pub(crate) fn keep_beyond(
        &mut self,
        scope: &Resource<ScopeEntry>,
        tensor: &Resource<TensorEntry>,
    ) -> Result<(), Refusal> {
        let entry = self.table.get(tensor)?;
        if entry.held.is_none() {
            return Err(Cause::FreedHandle.into());
        }
        let serial = entry.serial;
        self.table.get_mut(scope)?.kept.insert(serial);
        Ok(())
    }

    /// Deletes a scope and frees the tensors given out since it was opened, except those kept. Their handles stay,
    /// empty: using one ends the method.
    pub(crate) fn close_scope(&mut self, scope: Resource<ScopeEntry>) -> Result<(), Refusal> {
        let scope = self.table.delete(scope)?;
        let mut remaining = self.live.split_off(&scope.opened);
        remaining.retain(|serial, rep| {
            let keep = scope.kept.contains(serial);
            if !keep && let Ok(entry) = self.table.get_mut(&Resource::<TensorEntry>::new_borrow(*rep)) {
                entry.held = None;
            }
            keep
        });
        self.live.append(&mut remaining);
        Ok(())
    }
}
