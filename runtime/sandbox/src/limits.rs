//! What a method may use up: one list, from which the structure, the keys of `[limits]` and what is shown of them come.
//! The defaults are safe for an untrusted method on a laptop.
//!
//! A run may raise or lower each one by name; a method never sees them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Number;

use crate::figures;

/// How often a running method is interrupted to check its time.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// How [`Unit::show`] shows that instructions are not limited.
pub const NOT_COUNTED: &str = "not counted";

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds, and parts of them.
    Seconds,
    /// Bytes.
    Bytes,
    /// Things: calls, tokens, handles.
    Count,
    /// Numbers read or written, and multiply-adds.
    Operations,
    /// Instructions of WebAssembly; 0 for no limit of them.
    Instructions,
}

impl Unit {
    /// Formats a number of this unit for people, as in `1 h 30 min`, `1.0 MiB` or `16,384`. Except for seconds, numbers
    /// that are negative or not whole stay as they are. 0 instructions become [`NOT_COUNTED`].
    #[must_use]
    pub fn show(self, number: &Number) -> String {
        match (self, number.as_u64()) {
            (Self::Seconds, _) => figures::format_seconds(number.as_f64().unwrap_or(0.0)),
            (Self::Bytes, Some(count)) => figures::format_bytes(count),
            (Self::Instructions, Some(0)) => NOT_COUNTED.to_owned(),
            (Self::Count | Self::Instructions, Some(count)) => figures::group_digits(count),
            (Self::Operations, Some(count)) => figures::format_operations(count),
            (_, None) => number.to_string(),
        }
    }
}

/// The description of a limit.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Its key in `[limits]`.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// What it bounds, in a sentence.
    pub text: &'static str,
    /// The least that a run may set.
    pub low: f64,
    /// The most that a run may set.
    pub high: f64,
}

macro_rules! limits {
    ($($(#[doc = $text:literal])+ $field:ident: $kind:ty = $default:expr, $name:literal, $unit:ident, $low:literal to $high:literal;)+) => {
        /// The limits of one session, and of the verifiers and the environment that it asks. Passing one ends the
        /// method unless its text says otherwise.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Limits {
            $($(#[doc = $text])+ pub $field: $kind,)+
        }

        impl Default for Limits {
            /// Returns every limit at its default, which is safe for an untrusted method on a laptop.
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        /// Every limit, in the order of [`Limits`].
        pub const LIMITS: &[Limit] = &[
            $(Limit { name: $name, unit: Unit::$unit, text: concat!($($text),+), low: $low as f64, high: $high as f64 },)+
        ];
    };
}

limits! {
    /// Seconds that the method itself may compute in one call of `step` or `finish`; the host's work does not count.
    step_seconds: f64 = 30.0, "step-seconds", Seconds, 0 to 86_400;
    /// The same for starting, `init`, `save-state` and `load-state`.
    init_seconds: f64 = 10.0, "init-seconds", Seconds, 0 to 86_400;
    /// Instructions of WebAssembly that the method itself may execute in one call; the host's work does not count.
    /// Other than 0, it takes the place of `step-seconds` and `init-seconds`, and ends the method at the same
    /// instruction on every machine.
    step_instructions: u64 = 0, "step-instructions", Instructions, 0 to 1_000_000_000_000_000_000_u64;
    /// Seconds that one call of the method may last, the host's work and verifiers included. Looked at between host
    /// operations, between verdicts and between the blocks of the model; a tensor operation that may outlast it is
    /// refused.
    step_wall_seconds: f64 = 86_400.0, "step-wall-seconds", Seconds, 0 to 31_536_000;
    /// Seconds that the ranks of a run wait for one of them; past it the run ends on all of them.
    rank_seconds: f64 = 3_600.0, "rank-seconds", Seconds, 1 to 31_536_000;
    /// Seconds that one host operation may last before the run says so; it is not ended, and the next one is allowed.
    operation_seconds: f64 = 3_600.0, "operation-seconds", Seconds, 0 to 31_536_000;
    /// Seconds that compiling the component may take, if it is not built in.
    compile_seconds: f64 = 8.0, "compile-seconds", Seconds, 0 to 86_400;
    /// Bytes of memory that compiling it may take.
    compile_memory: u64 = 2 << 30, "compile-memory", Bytes, 67_108_864 to 1_099_511_627_776_u64;
    /// Bytes of memory of the method itself: all memories, tables and instances of the component together.
    linear_memory: u64 = 256 << 20, "linear-memory", Bytes, 65_536 to 4_294_967_296_u64;
    /// Entries of tables, all tables of the component together.
    table_entries: u64 = 100_000, "table-entries", Count, 16 to 10_000_000;
    /// Linear memories of the component together.
    memories: usize = 4, "memories", Count, 0 to 1_000;
    /// Tables of the component together.
    tables: usize = 16, "tables", Count, 0 to 1_000;
    /// Instances of the component's parts.
    instances: usize = 64, "instances", Count, 1 to 256;
    /// Live handles of all kinds.
    handles: u32 = 16_384, "handles", Count, 16 to 10_000_000;
    /// Bytes of tensors that a method holds, taps and graphs included.
    device_bytes: u64 = 1 << 30, "device-bytes", Bytes, 65_536 to 1_099_511_627_776_u64;
    /// Calls to the host in one call of the method; dropping a handle is free.
    host_calls: u64 = 100_000, "host-calls", Count, 1 to 1_000_000_000;
    /// Work of tensor operations in one call of the method, by the table of costs: numbers read or written,
    /// multiply-adds of products.
    work: u64 = 1_000_000_000_000, "work", Operations, 1 to 1_000_000_000_000_000_u64;
    /// Passes through the model, forward or back, in one call of the method; an update and a snapshot count as one
    /// each.
    passes: u64 = 1_000, "passes", Count, 1 to 1_000_000_000;
    /// Multiply-adds of those passes and of what the model writes, estimated from its size and the tokens.
    model_work: u64 = 1_000_000_000_000_000_000, "model-work", Operations, 1 to 1_000_000_000_000_000_000_u64;
    /// Completions of one call of `generate`, and of one prompt; past it the method gets an error.
    completions: u32 = 4_096, "completions", Count, 1 to 1_000_000;
    /// Tokens that the model may write in one call of the method.
    sampled_tokens: u64 = 1 << 20, "sampled-tokens", Count, 1 to 1_000_000_000_000_u64;
    /// Verdicts of verifiers and answers of the environment in one call of the method.
    verdicts: u64 = 65_536, "verdicts", Count, 1 to 1_000_000_000;
    /// Bytes that the model keeps for a method at once: activations of scores for learning, caches that it writes with,
    /// snapshots, edited matrices, state and extra parameters of the method. All are counted before they are made. What
    /// the machine has is a limit as well.
    activation_bytes: u64 = 16 << 30, "activation-bytes", Bytes, 65_536 to 1_099_511_627_776_u64;
    /// The longest chain of operations that a gradient may walk.
    graph_depth: u32 = 4_096, "graph-depth", Count, 1 to 20_000;
    /// Bytes of tensors and text that a step may read back; past it the method gets an error.
    readback_bytes: u64 = 64 << 10, "readback-bytes", Bytes, 4 to 1_073_741_824;
    /// Bytes that one call may hand to the host: lists, text.
    transfer_bytes: u64 = 16 << 20, "transfer-bytes", Bytes, 4_096 to 268_435_456;
    /// Log lines in one call of the method; more are counted and dropped.
    log_lines: u32 = 100, "log-lines", Count, 0 to 100_000;
    /// Bytes of a log line; longer ones are counted and dropped.
    log_line_bytes: usize = 1_024, "log-line-bytes", Bytes, 0 to 65_536;
    /// Bytes of log lines in one sitting of a run; more are counted and dropped.
    run_log_bytes: u64 = 4 << 20, "run-log-bytes", Bytes, 0 to 1_073_741_824;
    /// Metric values in one call of the method; past it the method gets an error.
    metrics: u32 = 256, "metrics", Count, 0 to 100_000;
    /// Bytes of the name of a snapshot or a random sequence.
    name_bytes: usize = 64, "name-bytes", Bytes, 1 to 1_024;
    /// Snapshots of a run.
    snapshots: usize = 4, "snapshots", Count, 0 to 1_000;
    /// Active patches of a run; past it the method gets an error.
    patches: usize = 256, "patches", Count, 0 to 100_000;
    /// Named random sequences of a run.
    streams: usize = 64, "streams", Count, 0 to 10_000;
    /// Bytes of the method's own state in a checkpoint.
    state_bytes: usize = 1 << 20, "state-bytes", Bytes, 0 to 268_435_456;
    /// Bytes of the state of parameters and of the extra parameters that a method keeps: every checkpoint saves them.
    parameter_state_bytes: u64 = 1 << 30, "parameter-state-bytes", Bytes, 0 to 1_099_511_627_776_u64;
    /// Bytes of a component.
    component_bytes: usize = 16 << 20, "component-bytes", Bytes, 1_024 to 268_435_456;
    /// Seconds of one verdict of a verifier, as a clock on the wall has them and with the start of its instance; past
    /// it the verifier could not judge.
    verifier_seconds: f64 = 1.0, "verifier-seconds", Seconds, 0 to 3_600;
    /// Instructions of WebAssembly that a verifier may execute for one verdict, with the start of its instance. Other
    /// than 0, it takes the place of `verifier-seconds`; the same verdicts fail on every machine.
    verifier_instructions: u64 = 0, "verifier-instructions", Instructions, 0 to 1_000_000_000_000_000_000_u64;
    /// Bytes of a verifier's memory: all its memories, tables and instances together.
    verifier_memory: usize = 64 << 20, "verifier-memory", Bytes, 65_536 to 4_294_967_296_u64;
    /// Bytes of a verifier's component.
    verifier_component_bytes: usize = 16 << 20, "verifier-component-bytes", Bytes, 1_024 to 268_435_456;
    /// Seconds of one answer of the environment, as a clock on the wall has them and with the start of its instance;
    /// past it the environment gives no answer, and the episode ends without a reward.
    environment_seconds: f64 = 1.0, "environment-seconds", Seconds, 0 to 3_600;
    /// Instructions of WebAssembly that the environment may execute for one answer, with the start of its instance.
    /// Other than 0, it takes the place of `environment-seconds`; the same answers fail on every machine.
    environment_instructions: u64 = 0, "environment-instructions", Instructions, 0 to 1_000_000_000_000_000_000_u64;
    /// Bytes of the environment's memory: all its memories, tables and instances together.
    environment_memory: usize = 64 << 20, "environment-memory", Bytes, 65_536 to 4_294_967_296_u64;
    /// Bytes of one message of the environment; past it the environment gives no answer.
    environment_message_bytes: usize = 8 << 10, "environment-message-bytes", Bytes, 1 to 1_000_000;
    /// Bytes of the environment's component.
    environment_component_bytes: usize = 16 << 20, "environment-component-bytes", Bytes, 1_024 to 268_435_456;
}

impl Limits {
    /// What `compile_seconds` is raised to for a component with an interpreter in it: one in Python takes half a minute
    /// on a laptop, and a slow machine several times that.
    pub const INTERPRETER_SECONDS: f64 = 120.0;

    /// Returns every limit with its value, in the order of [`LIMITS`]. Leaves out a value that JSON has no number for,
    /// such as infinity.
    pub fn entries(&self) -> impl Iterator<Item = (&'static Limit, Number)> + use<> {
        let values = serde_json::to_value(self).unwrap_or_default();
        LIMITS.iter().filter_map(move |limit| Some((limit, values.get(limit.name)?.as_number()?.clone())))
    }

    /// Returns the limits whose values differ from the defaults, each with its value and its default, in the order of
    /// the list.
    pub fn changed(&self) -> impl Iterator<Item = (&'static Limit, Number, Number)> + use<> {
        let all = self.entries().zip(Self::default().entries());
        all.filter(|((_, value), (_, usual))| value != usual).map(|((limit, value), (_, usual))| (limit, value, usual))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_that_is_not_given_keeps_its_default() {
        let limits: Limits = serde_json::from_str(r#"{"step-seconds": 2.5}"#).unwrap();
        assert_eq!(limits, Limits { step_seconds: 2.5, ..Limits::default() });
    }

    #[test]
    fn a_limit_that_does_not_exist_is_refused() {
        assert!(serde_json::from_str::<Limits>(r#"{"step-second": 2.5}"#).is_err());
    }

    #[test]
    fn the_list_is_the_structure_and_every_default_is_in_its_range() {
        let written = serde_json::to_value(Limits::default()).unwrap();
        let names: Vec<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, LIMITS.iter().map(|limit| limit.name).collect::<Vec<_>>());
        for (limit, value) in Limits::default().entries() {
            let value = value.as_f64().unwrap();
            assert!((limit.low..=limit.high).contains(&value), "{} is {value}", limit.name);
            assert!(limit.text.trim_end().ends_with('.'), "{}", limit.text);
        }
    }

    #[test]
    fn what_a_run_changes_is_known_and_shown_with_its_unit() {
        let table =
            json!({"linear-memory": 1 << 20, "step-seconds": 2.5, "handles": 16_384, "work": 2_500_000_000_000_u64});
        let limits: Limits = serde_json::from_value(table).unwrap();
        let shown: Vec<String> =
            limits.changed().map(|(limit, value, _)| format!("{} {}", limit.name, limit.unit.show(&value))).collect();
        assert_eq!(shown, ["step-seconds 2.5 s", "linear-memory 1.0 MiB", "work 2.5 trillion operations"]);
    }
}
