//! The memory of a method itself: linear memory and tables of all its parts together.
//!
//! wasmtime asks before anything grows. Growing past a limit ends the method, since code that is
//! told "no" tends to end in a worse place. Tensors are not counted here.

use wasmtime::ResourceLimiter;

use crate::cause::Cause;
use crate::limits::Limits;

/// What has grown so far.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: u64,
    max_bytes: u64,
    entries: u64,
    max_entries: u64,
    /// Instances, tables and memories, which are counted by the engine.
    parts: [usize; 3],
}

impl Memory {
    /// Nothing used yet.
    pub(crate) fn new(limits: &Limits) -> Self {
        let parts = [limits.instances, limits.tables, limits.memories];
        Self { bytes: 0, max_bytes: limits.linear_memory, entries: 0, max_entries: limits.table_entries, parts }
    }

    /// Bytes of linear memory, and entries of tables.
    pub(crate) fn used(&self) -> (u64, u64) {
        (self.bytes, self.entries)
    }
}

impl ResourceLimiter for Memory {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.bytes.saturating_add(desired.saturating_sub(current) as u64);
        if wanted > self.max_bytes {
            return Err(Cause::LinearMemory { wanted, limit: self.max_bytes }.into());
        }
        self.bytes = wanted;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.entries.saturating_add(desired.saturating_sub(current) as u64);
        if wanted > self.max_entries {
            return Err(Cause::Tables { wanted, limit: self.max_entries }.into());
        }
        self.entries = wanted;
        Ok(true)
    }

    fn instances(&self) -> usize {
        let [instances, ..] = self.parts;
        instances
    }

    fn tables(&self) -> usize {
        let [_, tables, _] = self.parts;
        tables
    }

    fn memories(&self) -> usize {
        let [.., memories] = self.parts;
        memories
    }
}
