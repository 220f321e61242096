//! The WebAssembly memory of a method, verifier or environment: memories, tables and instances of all its parts
//! together.
//!
//! wasmtime asks before anything grows. Growing past a limit ends the method: code whose
//! allocation fails tends to end with a less helpful error. Tensors are not counted here.

use wasmtime::ResourceLimiter;

use crate::cause::Cause;
use crate::limits::Limits;

/// Bytes of a table's entry on the host.
const ENTRY_BYTES: u64 = 8;

/// Bytes of linear memory and table entries that a method has grown to, with their limits.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: u64,
    entries: u64,
    limits: Limits,
}

impl Memory {
    /// Starts with 0 bytes and 0 table entries used, under these limits.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { bytes: 0, entries: 0, limits: limits.clone() }
    }

    /// Adds `bytes` to the memory of the method, for as long as its session lasts. Called before a linear memory or a
    /// table grows, and for what the host keeps for an instance. If the sum would exceed `linear_memory`, adds nothing
    /// and ends the method.
    pub(crate) fn reserve(&mut self, bytes: u64) -> wasmtime::Result<()> {
        let wanted = self.bytes.saturating_add(bytes);
        if wanted > self.limits.linear_memory {
            return Err(Cause::LinearMemory { wanted, limit: self.limits.linear_memory }.into());
        }
        self.bytes = wanted;
        Ok(())
    }

    /// Returns the bytes and the table entries that are counted so far, in that order. The bytes include those of
    /// tables and instances.
    pub(crate) fn used(&self) -> (u64, u64) {
        (self.bytes, self.entries)
    }
}

impl ResourceLimiter for Memory {
    /// Adds the growth to the bytes of all memories together; past `linear_memory` ends the method.
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        self.reserve(desired.saturating_sub(current) as u64)?;
        Ok(true)
    }

    /// Adds the growth to the entries of all tables together, and 8 bytes an entry to the memory of the method. Past
    /// `table_entries` or `linear_memory` ends the method.
    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.entries.saturating_add(desired.saturating_sub(current) as u64);
        if wanted > self.limits.table_entries {
            return Err(Cause::Tables { wanted, limit: self.limits.table_entries }.into());
        }
        self.reserve(ENTRY_BYTES * desired.saturating_sub(current) as u64)?;
        self.entries = wanted;
        Ok(true)
    }

    /// Returns how many instances wasmtime may make in the store.
    fn instances(&self) -> usize {
        self.limits.instances
    }

    /// Returns how many tables wasmtime may make in the store.
    fn tables(&self) -> usize {
        self.limits.tables
    }

    /// Returns how many linear memories wasmtime may make in the store.
    fn memories(&self) -> usize {
        self.limits.memories
    }
}
