//! What a method used of its limits since the run was started or resumed: in all, at most in one call, and at most at
//! once.

use serde::{Deserialize, Serialize};

/// Counters that start from 0 in every call of the method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Counts {
    /// Calls to the host.
    pub host_calls: u64,
    /// Work of host functions, in the units of the table of costs.
    pub work: u64,
    /// Passes through the model.
    pub passes: u64,
    /// Multiply-adds of those passes and of sampling, estimated.
    pub model_work: u64,
    /// Tokens that the model sampled.
    pub sampled_tokens: u64,
    /// Verdicts of verifiers.
    pub verdicts: u64,
    /// Bytes of tensors and text that the method read back.
    pub readback_bytes: u64,
    /// Instructions that the method itself executed; 0 without `step-instructions`.
    pub instructions: u64,
    /// Seconds that the method itself computed.
    pub guest_seconds: f64,
    /// Seconds that the host worked in calls of the method.
    pub host_seconds: f64,
}

impl Counts {
    /// Combines each count with its counterpart in `other`: integers with `whole`, seconds with `seconds`.
    fn combine(&self, other: &Self, whole: fn(u64, u64) -> u64, seconds: fn(f64, f64) -> f64) -> Self {
        Self {
            host_calls: whole(self.host_calls, other.host_calls),
            work: whole(self.work, other.work),
            passes: whole(self.passes, other.passes),
            model_work: whole(self.model_work, other.model_work),
            sampled_tokens: whole(self.sampled_tokens, other.sampled_tokens),
            verdicts: whole(self.verdicts, other.verdicts),
            readback_bytes: whole(self.readback_bytes, other.readback_bytes),
            instructions: whole(self.instructions, other.instructions),
            guest_seconds: seconds(self.guest_seconds, other.guest_seconds),
            host_seconds: seconds(self.host_seconds, other.host_seconds),
        }
    }

    /// Returns the sum of each count; integers saturate.
    fn plus(&self, other: &Self) -> Self {
        self.combine(other, u64::saturating_add, |one, other| one + other)
    }

    /// Returns the larger of each count.
    fn max(&self, other: &Self) -> Self {
        self.combine(other, u64::max, f64::max)
    }
}

/// A host operation and its duration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slowest {
    /// The name of the host function.
    pub operation: String,
    /// How long it took.
    pub seconds: f64,
}

/// What a method used in all its calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Usage {
    /// Calls of the method that returned, with an error or without.
    pub calls: u64,
    /// The sum of each counter over these calls.
    pub total: Counts,
    /// The maximum of each counter in one call.
    pub most: Counts,
    /// The most tensors held at once.
    pub peak_tensors: u64,
    /// The most bytes of tensors held at once.
    pub peak_device_bytes: u64,
    /// The most bytes of the method's own memory.
    pub linear_memory: u64,
    /// The most entries of its WebAssembly tables.
    pub table_entries: u64,
    /// Log lines kept.
    pub log_lines: u64,
    /// Bytes of those lines as the method wrote them, plus one for the end of each.
    pub log_bytes: u64,
    /// Log lines dropped.
    pub dropped_lines: u64,
    /// Number of metric values that it reported.
    pub metrics: u64,
    /// The host operation that took longest.
    pub slowest: Slowest,
}

impl Usage {
    /// Adds one call: increments `calls`, adds `counts`, what the call used, to `total`, and raises each maximum in
    /// `most` to it. Leaves the other fields as they are.
    pub(crate) fn add(&mut self, counts: &Counts) {
        self.calls += 1;
        self.total = self.total.plus(counts);
        self.most = self.most.max(counts);
    }

    /// Combines this usage with `before`, that of an earlier version of the method since the run was started or
    /// resumed: calls, totals, log lines and metrics add up; peaks and the slowest operation are the larger ones, of
    /// two equally slow operations the one of `before`.
    #[must_use]
    pub fn after(&self, before: &Self) -> Self {
        let slower = if self.slowest.seconds > before.slowest.seconds { self } else { before };
        Self {
            calls: before.calls + self.calls,
            total: before.total.plus(&self.total),
            most: before.most.max(&self.most),
            peak_tensors: before.peak_tensors.max(self.peak_tensors),
            peak_device_bytes: before.peak_device_bytes.max(self.peak_device_bytes),
            linear_memory: before.linear_memory.max(self.linear_memory),
            table_entries: before.table_entries.max(self.table_entries),
            log_lines: before.log_lines + self.log_lines,
            log_bytes: before.log_bytes + self.log_bytes,
            dropped_lines: before.dropped_lines + self.dropped_lines,
            metrics: before.metrics + self.metrics,
            slowest: slower.slowest.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_add_up_and_the_largest_is_remembered() {
        let mut usage = Usage::default();
        for host_calls in [3, 9, 2] {
            usage.add(&Counts { host_calls, guest_seconds: 0.5, ..Counts::default() });
        }
        assert_eq!((usage.calls, usage.total.host_calls, usage.most.host_calls), (3, 14, 9));
        assert_eq!((usage.total.guest_seconds, usage.most.guest_seconds), (1.5, 0.5));
    }

    #[test]
    fn what_another_version_used_before_counts_as_well() {
        let used = |host_calls, peak_tensors, seconds| {
            let slowest = Slowest { operation: format!("of {seconds} s"), seconds };
            let mut usage = Usage { peak_tensors, slowest, ..Usage::default() };
            usage.add(&Counts { host_calls, ..Counts::default() });
            usage
        };
        let all = used(2, 5, 0.5).after(&used(9, 3, 1.5));
        assert_eq!((all.calls, all.total.host_calls, all.most.host_calls, all.peak_tensors), (2, 11, 9, 5));
        assert_eq!(all.slowest.operation, "of 1.5 s");
    }
}
