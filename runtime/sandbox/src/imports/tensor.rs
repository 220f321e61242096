//! Implements `wit/tensor.wit`. The build script writes the operations from the contract: each looks up its operands
//! and calls the function of `compute::ops` that has its name (`calls` is what they have in common). The functions that
//! are not operations are here: reading a tensor, and scopes.

mod calls;
#[cfg(test)]
mod tests;

use tunebox_compute::ops;

use self::calls::{element_type, element_type_of};
use crate::bindings::tensor::{Host, HostScope, HostTensor};
use crate::bindings::types::Dtype;
use crate::refusal::{Refusal, Result};
use crate::state::{Answer, Handle, HostContext, ScopeEntry};

include!(concat!(env!("OUT_DIR"), "/operations.rs"));

impl HostTensor for HostContext<'_> {
    tensor_methods!();

    /// Counts the call and returns the dimensions of a tensor.
    fn shape(&mut self, this: Handle) -> wasmtime::Result<Vec<u32>> {
        self.enter("tensor.tensor.shape")?;
        let dims = self.tensor_node(&this)?.tensor.dims().to_vec();
        Ok(dims.into_iter().map(u32::try_from).collect::<Result<_, _>>()?)
    }

    /// Counts the call and returns the element type of a tensor.
    fn dtype(&mut self, this: Handle) -> wasmtime::Result<Dtype> {
        self.enter("tensor.tensor.dtype")?;
        let held = self.tensor_node(&this)?;
        Ok(element_type_of(held.tensor.dtype())?)
    }

    /// Returns the element of a one-element tensor as `f32` and counts 4 bytes as read back. Errors: `shape-mismatch`
    /// for another number of elements; `out-of-budget` past `readback_bytes`.
    fn item(&mut self, this: Handle) -> Result<f32> {
        self.enter("tensor.tensor.item")?;
        let held = self.tensor_node(&this)?;
        let number = ops::item(&held.tensor)?;
        self.meters.count_readback(ops::read_bytes(&held.tensor))?;
        Ok(number)
    }

    /// Returns all elements of a tensor in row-major order, as `f32`. First counts 4 bytes an element as read back, and
    /// charges work. Errors: `out-of-budget` past `readback_bytes`.
    fn copy_to_list(&mut self, this: Handle) -> Result<Vec<f32>> {
        self.enter("tensor.tensor.copy-to-list")?;
        let held = self.tensor_node(&this)?;
        self.meters.count_readback(ops::read_bytes(&held.tensor))?;
        self.meters.charge_units(held.tensor.elem_count() as u64)?;
        Ok(ops::list(&held.tensor)?)
    }

    /// Returns all elements of a `u32` or `u8` tensor in row-major order. First counts 4 bytes an element as read back,
    /// and charges work. Errors: `dtype-mismatch` for another element type; `out-of-budget` past `readback_bytes`.
    fn copy_to_indices(&mut self, this: Handle) -> Result<Vec<u32>> {
        self.enter("tensor.tensor.copy-to-indices")?;
        let held = self.tensor_node(&this)?;
        self.meters.count_readback(ops::read_bytes(&held.tensor))?;
        self.meters.charge_units(held.tensor.elem_count() as u64)?;
        Ok(ops::indices(&held.tensor)?)
    }

    /// Deletes the handle; the tensor's bytes are released when no graph needs them. Not counted as a call.
    fn drop(&mut self, this: Handle) -> wasmtime::Result<()> {
        Ok(self.delete_tensor(this)?)
    }
}

impl Host for HostContext<'_> {
    tensor_functions!();
}

impl HostScope for HostContext<'_> {
    /// Opens a scope, to which all tensors made from now on belong, and returns its handle.
    fn new(&mut self) -> wasmtime::Result<Handle<ScopeEntry>> {
        self.enter("tensor.scope.constructor")?;
        Ok(self.open_scope()?)
    }

    /// Exempts a tensor from being freed with a scope. Ends the method if the tensor was freed already.
    fn keep(&mut self, this: Handle<ScopeEntry>, tensor: Handle) -> wasmtime::Result<()> {
        self.enter("tensor.scope.keep")?;
        Ok(self.exempt_from_scope(&this, &tensor)?)
    }

    /// Closes the scope: frees the tensors made since it was opened, except those kept. Their handles stay, and using
    /// one ends the method. Not counted as a call.
    fn drop(&mut self, this: Handle<ScopeEntry>) -> wasmtime::Result<()> {
        Ok(self.close_scope(this)?)
    }
}
