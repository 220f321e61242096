//! What a method may use up. The defaults are safe for a stranger's method on a laptop.
//!
//! A run may raise or lower each one by name; a method never sees them.

use serde::{Deserialize, Serialize};

/// The limits of one session. Passing one ends the method unless its text says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limits {
    /// Seconds that the method itself may compute in one call of `step` or `finish`; the host's work does not count.
    pub step_seconds: f64,
    /// The same for starting, `init`, `save-state` and `load-state`.
    pub init_seconds: f64,
    /// Bytes of linear memory, all memories of the component together.
    pub linear_memory: u64,
    /// Entries of tables, all tables of the component together.
    pub table_entries: u64,
    /// Live handles of all kinds.
    pub handles: u32,
    /// Bytes of tensors that a method holds, graphs included.
    pub device_bytes: u64,
    /// Calls to the host in one call of the method; dropping a handle is free.
    pub host_calls: u64,
    /// Numbers read or written by tensor operations in one call of the method (multiply-adds of products).
    pub work: u64,
    /// Passes through the model, forward or back, in one call of the method.
    pub passes: u64,
    /// Completions of one call of `generate`, and of one prompt; past it the method gets an error.
    pub completions: u32,
    /// Tokens that the model may write in one call of the method.
    pub sampled_tokens: u64,
    /// Verdicts of verifiers in one call of the method.
    pub verdicts: u64,
    /// Bytes of activations that scores for learning keep at once, counted after each pass.
    pub activation_bytes: u64,
    /// The longest chain of operations that a gradient may walk.
    pub graph_depth: u32,
    /// Bytes of tensors that a step may read back; past it the method gets an error.
    pub readback_bytes: u64,
    /// Bytes that one call may hand to the host: lists, text.
    pub transfer_bytes: u64,
    /// Log lines in one call of the method; more are counted and dropped.
    pub log_lines: u32,
    /// Bytes of a log line; longer ones are counted and dropped.
    pub log_line_bytes: usize,
    /// Metric values in one call of the method; past it the method gets an error.
    pub metrics: u32,
    /// Bytes of the name of a snapshot or a random sequence.
    pub name_bytes: usize,
    /// Snapshots of a run.
    pub snapshots: usize,
    /// Active patches of a run; past it the method gets an error.
    pub patches: usize,
    /// Named random sequences of a run.
    pub streams: usize,
    /// Bytes of the method's own state in a checkpoint.
    pub state_bytes: usize,
    /// Bytes of a component.
    pub component_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            step_seconds: 30.0,
            init_seconds: 10.0,
            linear_memory: 256 << 20,
            table_entries: 100_000,
            handles: 16_384,
            device_bytes: 1 << 30,
            host_calls: 100_000,
            work: 1_000_000_000_000,
            passes: 1_000,
            completions: 4_096,
            sampled_tokens: 1 << 20,
            verdicts: 65_536,
            activation_bytes: 16 << 30,
            graph_depth: 4_096,
            readback_bytes: 64 << 10,
            transfer_bytes: 16 << 20,
            log_lines: 100,
            log_line_bytes: 1_024,
            metrics: 256,
            name_bytes: 64,
            snapshots: 4,
            patches: 256,
            streams: 64,
            state_bytes: 1 << 20,
            component_bytes: 16 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Limits;

    #[test]
    fn a_limit_that_is_not_given_keeps_its_default() {
        let limits: Limits = serde_json::from_str(r#"{"step-seconds": 2.5}"#).unwrap();
        assert_eq!(limits, Limits { step_seconds: 2.5, ..Limits::default() });
    }

    #[test]
    fn a_limit_that_does_not_exist_is_refused() {
        assert!(serde_json::from_str::<Limits>(r#"{"step-second": 2.5}"#).is_err());
    }
}
