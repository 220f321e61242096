//! Tensors of a method: given out as handles, charged, and freed one by one or by a scope.
//!
//! A tensor is charged to the session's byte budget before it is made and stays charged as long as its handle, or a
//! graph that leads through it, exists: its numbers once, and a fixed size for each tensor and view, however small.

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::WithDType;
use tunebox_compute::budget::Reservation;
use tunebox_compute::ops::{Node, Output, depth_of};
use tunebox_compute::{Device, Tensor};
use wasmtime::component::Resource;

use super::{ScopeEntry, State, TensorEntry};
use crate::cause::Cause;
use crate::refusal::{Refusal, Result, ensure};

/// A handle that a function of the contract gives out, or why it gives none.
pub(crate) type Answer<T = TensorEntry> = Result<Handle<T>>;

/// A handle of a table entry, lent by the method or given out to it; by default the handle of a tensor.
pub(crate) type Handle<T = TensorEntry> = Resource<T>;

/// The device of a method's tensors: the CPU, wherever the model computes, so that a component works everywhere.
pub(crate) const DEVICE: Device = Device::Cpu;

/// Bytes that a tensor or view takes beside its numbers: shape, handle, and the operation that a gradient goes back
/// through.
pub(crate) const TENSOR_BYTES: u64 = 1_024;

/// Bytes that a scope takes for each tensor that outlives it.
pub(crate) const KEPT_BYTES: u64 = 64;

/// Bytes that a result in a graph takes for each operand: the list of a join, and up to two tensors in between.
pub(crate) const OPERAND_BYTES: u64 = 768;

impl State {
    /// Returns the tensor behind a handle, sharing its data. Ends the method if the handle is invalid or a scope freed
    /// the tensor.
    pub(crate) fn tensor_node(&self, handle: &Handle) -> Result<Arc<Node>> {
        let entry = self.table.get(handle)?;
        entry.node.clone().ok_or_else(|| Cause::FreedHandle.into())
    }

    /// Reserves 4 bytes for each of `elements` elements, has `make` compute a tensor of that size, reserves
    /// [`TENSOR_BYTES`], and returns the tensor's handle. Errors: those of [`push_tensor`](Self::push_tensor), and that
    /// of `make`, as a refusal; nothing stays reserved then. `make` runs only after the reservation.
    pub(crate) fn push_new_tensor<E: Into<Refusal>>(
        &mut self,
        elements: u64,
        make: impl FnOnce(&Self) -> Result<Tensor, E>,
    ) -> Answer {
        let reservation = self.reserve(4 * elements)?;
        let tensor = make(self).map_err(Into::into)?;
        self.push_tensor(tensor, Arc::new(reservation))
    }

    /// Returns a handle of a new tensor `[values]` with a copy of these numbers. Reserves 4 bytes a number before it
    /// copies. Errors: `invalid-argument` for an empty list.
    pub(crate) fn push_list<T: WithDType>(&mut self, values: &[T]) -> Answer {
        self.push_new_tensor(values.len() as u64, |_| Tensor::from_slice(values, values.len(), &DEVICE))
    }

    /// Returns a handle of a tensor that has no operands: it is outside a graph, or a leaf of one. `bytes` is the
    /// reservation of its numbers. Reserves [`TENSOR_BYTES`]. Errors: `invalid-argument` for a tensor without elements;
    /// past `device_bytes` or `handles` ends the method.
    pub(crate) fn push_tensor(&mut self, tensor: Tensor, bytes: Arc<Reservation>) -> Answer {
        let own = self.reserve(TENSOR_BYTES)?;
        self.push_node(Node::new(tensor, bytes, own))
    }

    /// Returns a handle of the result of a tensor operation on `operands`: a new tensor if it has a reservation, else a
    /// view, which shares the reservation of the first operand. Reserves [`TENSOR_BYTES`], and [`OPERAND_BYTES`] for
    /// each operand if the result has a graph: the operands then stay reserved as long as the result, and a graph
    /// deeper than `graph_depth` ends the method.
    pub(crate) fn push_result(&mut self, output: Output, operands: &[Arc<Node>]) -> Answer {
        let Output { tensor, reservation, backward, grad_fn } = output;
        let bytes = match (reservation, operands) {
            (Some(reservation), _) => Arc::new(reservation),
            (None, [operand, ..]) => Arc::clone(&operand.bytes),
            (None, []) => Arc::new(self.reserve(0)?),
        };
        if !tensor.track_op() {
            return self.push_tensor(tensor, bytes);
        }
        let limit = self.limits.graph_depth;
        ensure(depth_of(operands) < limit, || Cause::GraphDepth { limit })?;
        let own = self.reserve(TENSOR_BYTES + OPERAND_BYTES * operands.len() as u64)?;
        self.push_node(Node::new(tensor, bytes, own).with_operands(operands.to_vec(), grad_fn, backward))
    }

    /// Returns a handle of a tensor whose bytes are reserved already. Gives the tensor a serial number, by which scopes
    /// find it, and raises `usage.peak_tensors`. Past `handles` ends the method.
    ///
    /// Errors: `invalid-argument` for a tensor that has a dimension of 0, which operations do not expect.
    fn push_node(&mut self, node: Node) -> Answer {
        let dims = node.tensor.dims();
        let empty = || Refusal::argument(format!("a tensor of shape {dims:?} has no entries: there are no rows"));
        ensure(!dims.contains(&0), empty)?;
        let serial = self.next_number();
        let handle = self.table.push(TensorEntry { node: Some(Arc::new(node)), serial })?;
        self.live_tensors.insert(serial, handle.rep());
        self.usage.peak_tensors = self.usage.peak_tensors.max(self.live_tensors.len() as u64);
        Ok(handle)
    }

    /// Deletes a handle, also one whose tensor a scope freed. The tensor's bytes are released when no other tensor or
    /// graph needs them. An invalid handle ends the method.
    pub(crate) fn delete_tensor(&mut self, handle: Handle) -> Result<()> {
        let entry = self.table.delete(handle)?;
        self.live_tensors.remove(&entry.serial);
        Ok(())
    }

    /// Opens a scope, to which tensors given out from now on belong, and returns its handle. Scopes may overlap. Past
    /// `handles` ends the method.
    pub(crate) fn open_scope(&mut self) -> Answer<ScopeEntry> {
        Ok(self.table.push(ScopeEntry { opened: self.next_serial, kept: BTreeMap::new() })?)
    }

    /// Exempts a tensor from being freed with this scope; other scopes still free it. Reserves [`KEPT_BYTES`], which
    /// are released when the scope is closed, or earlier if the tensor is gone. Ends the method if it was freed
    /// already.
    pub(crate) fn exempt_from_scope(&mut self, scope: &Handle<ScopeEntry>, tensor: &Handle) -> Result<()> {
        self.tensor_node(tensor)?;
        let serial = self.table.get(tensor)?.serial;
        let bytes = self.reserve(KEPT_BYTES)?;
        let kept = &mut self.table.get_mut(scope)?.kept;
        kept.insert(serial, bytes);
        // A scope that is never closed must not remember every tensor that it ever kept.
        if kept.len() > 2 * self.live_tensors.len() {
            kept.retain(|serial, _| self.live_tensors.contains_key(serial));
        }
        Ok(())
    }

    /// Deletes a scope and frees the tensors given out since it was opened, except those that
    /// [`exempt_from_scope`](Self::exempt_from_scope) exempted from it. The handles of freed tensors stay, empty: using
    /// one ends the method. An invalid scope ends the method.
    pub(crate) fn close_scope(&mut self, scope: Handle<ScopeEntry>) -> Result<()> {
        let scope = self.table.delete(scope)?;
        let mut remaining = self.live_tensors.split_off(&scope.opened);
        remaining.retain(|serial, rep| {
            let keep = scope.kept.contains_key(serial);
            if !keep && let Ok(entry) = self.table.get_mut(&Resource::<TensorEntry>::new_borrow(*rep)) {
                entry.node = None;
            }
            keep
        });
        self.live_tensors.append(&mut remaining);
        Ok(())
    }
}
