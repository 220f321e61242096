//! The memory of a method itself: linear memory and tables of all its parts together.
//!
//! wasmtime asks before anything grows. Growing past a limit ends the method: code whose
//! allocation fails tends to end with a less helpful error. Tensors are not counted here.

use wasmtime::ResourceLimiter;

use crate::cause::Cause;
use crate::limits::Limits;

/// What has grown so far.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: u64,
    entries: u64,
    limits: Limits,
}

impl Memory {
    /// Nothing used yet.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { bytes: 0, entries: 0, limits: limits.clone() }
    }

    /// Bytes of linear memory, and entries of tables.
    pub(crate) fn used(&self) -> (u64, u64) {
        (self.bytes, self.entries)
    }
}

impl ResourceLimiter for Memory {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.bytes.saturating_add(desired.saturating_sub(current) as u64);
        if wanted > self.limits.linear_memory {
            return Err(Cause::LinearMemory { wanted, limit: self.limits.linear_memory }.into());
        }
        self.bytes = wanted;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.entries.saturating_add(desired.saturating_sub(current) as u64);
        if wanted > self.limits.table_entries {
            return Err(Cause::Tables { wanted, limit: self.limits.table_entries }.into());
        }
        self.entries = wanted;
        Ok(true)
    }

    fn instances(&self) -> usize {
        self.limits.instances
    }

    fn tables(&self) -> usize {
        self.limits.tables
    }

    fn memories(&self) -> usize {
        self.limits.memories
    }
}
