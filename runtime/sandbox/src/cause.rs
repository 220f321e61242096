//! What ends a method: a limit, a trap, a broken rule, or a fault of the host, with its message.
//!
//! `fault` adds which call it was and where in the method's source.

use std::borrow::Cow;

use tunebox_compute::error::Error as ComputeError;
use tunebox_foundation::explain::{Explain, Explanation};
use wasmtime::Trap;
use wasmtime::component::ResourceTableError;

use crate::figures::{double_to_fit, format_bytes, group_digits};
use crate::limits::Limits;
use crate::printable::printable;

/// The longest text of the engine in an error, in bytes.
const TEXT_BYTES: usize = 400;

/// What ended a method.
#[derive(Clone, Debug, thiserror::Error, Explain)]
#[explain(category = "sandbox")]
pub(crate) enum Cause {
    #[error("it used up its time")]
    #[explain(location = "after {used:.1} s of {limit} s", why = computed_too_long(*calls))]
    Time { used: f64, limit: f64, calls: u64 },
    #[error("it executed more instructions than it may")]
    #[explain(
        location = format!(
            "{}, after {} calls to the host",
            format_passed_limit(*limit, "instructions"),
            group_digits(*calls)
        ),
        why = "the method itself was computing; it ends at the same instruction on every machine"
    )]
    Instructions { limit: u64, calls: u64 },
    #[error("it took longer than a step may")]
    #[explain(
        location = "after {used:.1} s of {limit} s",
        why = "the method and the host's work for it count together"
    )]
    WallTime { used: f64, limit: f64 },
    #[error("it asked for an operation that may outlast its step")]
    #[explain(
        location = "{seconds:.1} s of work, of {limit} s for the step",
        why = "an operation is not interrupted: its time is estimated for a slow machine before it begins"
    )]
    LongOperation { seconds: f64, limit: f64 },
    #[error("it asked for more memory than it may have")]
    #[explain(
        location = format_use(*wanted, *limit),
        why = "this is the memory for a method's own lists; tensors stay on the host and do not count"
    )]
    LinearMemory { wanted: u64, limit: u64 },
    #[error("it asked for larger tables than it may have")]
    #[explain(location = format!("{} entries of {}", group_digits(*wanted), group_digits(*limit)))]
    Tables { wanted: u64, limit: u64 },
    #[error("it asked for more tensor bytes than it may hold")]
    #[explain(
        location = format!(
            "{} more than the {} held, of {}",
            format_bytes(*wanted),
            format_bytes(*held),
            format_bytes(*limit)
        ),
        why = "a tensor counts until its handle and every graph that leads through it are gone; an operation's \
               temporaries count while it runs"
    )]
    DeviceBytes { wanted: u64, held: u64, limit: u64 },
    #[error("it holds more handles than it may")]
    #[explain(
        location = format_passed_limit(*limit, "handles"),
        why = "a handle counts until the method drops it, or its scope"
    )]
    Handles { limit: u64 },
    #[error("it called the host more often than it may")]
    #[explain(
        location = format_passed_limit(*limit, "calls"),
        why = "every call counts, however small: call one operation on a whole tensor instead of looping over its \
               elements"
    )]
    HostCalls { limit: u64 },
    #[error("it copied more between itself and the host than it may")]
    #[explain(
        location = format!("more than {} in a call", format_bytes(*limit)),
        why = "the lists and texts of a call to the host count together"
    )]
    Transfer { limit: u64 },
    #[error("it asked for more tensor work than it may")]
    #[explain(
        location = format_passed_limit(*limit, "numbers"),
        why = "every number that an operation reads or writes counts, and twice that for each gradient through it"
    )]
    Work { limit: u64 },
    #[error("it asked the model more often than it may")]
    #[explain(
        location = format_passed_limit(*limit, "passes"),
        why = "scoring rows is a pass through the model, and so is a gradient through it"
    )]
    Passes { limit: u64 },
    #[error("it asked the model for more work than it may")]
    #[explain(
        location = format_passed_limit(*limit, "multiply-adds"),
        why = "a pass counts the model's weights times the tokens; a gradient counts twice that"
    )]
    ModelWork { limit: u64 },
    #[error("it let the model write more than it may")]
    #[explain(
        location = format_passed_limit(*limit, "tokens"),
        why = "a call to `generate` counts its completions times `max-tokens` until it knows how many were written"
    )]
    Sampled { limit: u64 },
    #[error("it asked for more verdicts than it may")]
    #[explain(
        location = format_passed_limit(*limit, "verdicts"),
        why = "every completion costs one verdict of every verifier"
    )]
    Verdicts { limit: u64 },
    #[error("it makes the model keep more than it may")]
    #[explain(
        location = format_use(*held, *limit),
        why = "scores for learning keep their pass until `backward` uses it up or the step ends; snapshots and edited \
               matrices stay"
    )]
    Activations { held: u64, limit: u64 },
    #[error("it keeps more state of parameters than it may")]
    #[explain(
        location = format_use(*wanted, *limit),
        why = "every checkpoint saves the state of parameters and the extra parameters that a method keeps"
    )]
    ParameterState { wanted: u64, limit: u64 },
    #[error("it asked the model for more memory than is left for it")]
    #[explain(
        location = format!(
            "{} for activations, copies of weights and tensors, {} are left",
            format_bytes(*wanted),
            format_bytes(*room)
        ),
        why = "scores for learning keep their pass until `backward` uses it up or the step ends; snapshots and edited \
               matrices stay",
        hint = "its author can `backward` scores before asking for more; `tunebox check --fit` says whether the batch fits"
    )]
    Memory { wanted: u64, room: u64 },
    #[error("it built a longer chain of operations than a gradient may walk")]
    #[explain(
        location = format_passed_limit((*limit).into(), "operations"),
        why = "the gradient walks such a chain one operation after another",
        hint = "its author can `detach` what needs no gradient"
    )]
    GraphDepth { limit: u32 },
    #[error("it gave back more state than a checkpoint takes")]
    #[explain(location = format_use(*bytes, *limit))]
    State { bytes: u64, limit: u64 },
    #[error("it used a tensor that its scope had freed")]
    #[explain(
        why = "dropping a scope frees every tensor made since it was opened, but not the kept",
        hint = "its author can `keep` the tensor in the scope"
    )]
    FreedHandle,
    #[error("it broke the contract: {0}")]
    #[explain(why = "the host checks every handle, list and text that a method passes to it")]
    Protocol(String),
    #[error("it ran out of stack")]
    #[explain(why = "its functions call each other too deeply or without end")]
    Stack,
    #[error("it stopped: {0}")]
    Trap(String),
    #[error("the host failed: {0}")]
    #[explain(hint = "please report it, with the method and `run.toml`")]
    Host(String),
    #[error("{what}")]
    #[explain(why = why.clone(), hint = hint.clone())]
    Device { area: Cow<'static, str>, what: String, why: Option<String>, hint: Option<String> },
}

/// Formats a use of bytes as `USED of LIMIT`, both with their unit.
fn format_use(used: u64, limit: u64) -> String {
    format!("{} of {}", format_bytes(used), format_bytes(limit))
}

/// Formats a passed limit of a count as `past LIMIT UNIT`.
fn format_passed_limit(limit: u64, unit: &str) -> String {
    format!("past {} {unit}", group_digits(limit))
}

/// Returns the reason that the error [`Cause::Time`] shows: the method itself was computing. `calls` is its number of
/// calls to the host, whose time does not count.
fn computed_too_long(calls: u64) -> String {
    if calls == 0 {
        return "no call to the host came back in that time: the method itself was computing".into();
    }
    format!("the method itself was computing; the host's work in its {} calls does not count", group_digits(calls))
}

impl Cause {
    /// Converts an error of the tensor library, such as full device memory or a stopped device, into a cause that ends
    /// the method without blaming it. Takes over the error's category, text, reason and hint.
    pub(crate) fn from_compute_error(error: &ComputeError) -> Self {
        Self::Device { area: error.category(), what: error.to_string(), why: error.why(), hint: error.hint() }
    }

    /// Converts an explanation into a cause that ends the method without blaming it. Takes over the explanation's
    /// category, text, reason and hint.
    pub(crate) fn from_explanation(explanation: Explanation) -> Self {
        let Explanation { category, what, why, hint, .. } = explanation;
        Self::Device { area: category, what, why, hint }
    }

    /// Builds the cause for a method that ends because the system did not start a thread for its call.
    pub(crate) fn no_thread(error: &std::io::Error) -> Self {
        Self::Device {
            area: "memory".into(),
            what: format!("no thread could be started for it: {error}"),
            why: Some("this process may take no more memory, or may have no more threads".into()),
            hint: Some(
                "raise the limits of memory and threads that the run was started under; `ulimit -a` lists them".into(),
            ),
        }
    }
}

/// How wasmtime's error begins for a call whose lists and texts take more than `transfer-bytes`.
const TRANSFER_EXHAUSTED: &str = "too much data is being copied between the host and the guest";

impl From<ResourceTableError> for Cause {
    /// A full table becomes [`Cause::Handles`] with a limit of 0, which [`Cause::from_engine_error`] replaces by the
    /// true one; any other error, such as an unknown handle, a broken contract ([`Cause::Protocol`]).
    fn from(error: ResourceTableError) -> Self {
        match error {
            ResourceTableError::Full => Self::Handles { limit: 0 },
            error => Self::Protocol(error.to_string()),
        }
    }
}

impl Cause {
    /// Finds the cause in an engine error: a `Cause` inside it; else its trap; else a broken contract
    /// ([`Cause::Protocol`]) with the engine's message, escaped and cut at 400 bytes. `limits` are those of the method,
    /// and `calls` is its number of calls to the host in this call: the engine's errors carry neither.
    pub(crate) fn from_engine_error(error: &wasmtime::Error, limits: &Limits, calls: u64) -> Self {
        let cause = match (error.downcast_ref::<Self>(), error.downcast_ref::<Trap>()) {
            (Some(cause), _) => cause.clone(),
            (None, Some(Trap::StackOverflow)) => Self::Stack,
            (None, Some(Trap::OutOfFuel)) => Self::Instructions { limit: limits.step_instructions, calls },
            (None, Some(Trap::UnreachableCodeReached)) => {
                Self::Trap("it reached code that it calls unreachable".into())
            }
            (None, Some(trap)) => Self::Trap(trap.to_string()),
            // wasmtime does not export the type of this error.
            (None, None) if error.root_cause().to_string().starts_with(TRANSFER_EXHAUSTED) => {
                Self::Transfer { limit: limits.transfer_bytes }
            }
            // Any other error is that of wasmtime for an invalid handle, list or text.
            (None, None) => Self::Protocol(printable(&error.root_cause().to_string(), TEXT_BYTES)),
        };
        match cause {
            Self::Handles { .. } => Self::Handles { limit: u64::from(limits.handles) },
            cause => cause,
        }
    }

    /// Suggests a setting under which the method would not have passed its limit, such as `limits.step-seconds=120`:
    /// four times a limit in seconds, at least 1; twice the sum of limit and estimate for an operation that was too
    /// long; or another limit doubled until it suffices. `None` for a cause that no such setting changes: tables, the
    /// machine's memory, the depth of a graph, the size of the state, a freed tensor, a broken contract, the stack, a
    /// trap, and faults of the host or its device.
    pub(crate) fn sufficient_setting(&self) -> Option<String> {
        let (name, value) = match self {
            Self::Time { limit, .. } => ("step-seconds", format!("{}", (limit * 4.0).max(1.0))),
            Self::Instructions { limit, .. } => ("step-instructions", double_to_fit(*limit, limit + 1)),
            Self::WallTime { limit, .. } => ("step-wall-seconds", format!("{}", (limit * 4.0).max(1.0))),
            Self::LongOperation { seconds, limit } => {
                ("step-wall-seconds", format!("{}", ((limit + seconds) * 2.0).ceil()))
            }
            Self::LinearMemory { limit, wanted } => ("linear-memory", double_to_fit(*limit, *wanted)),
            Self::DeviceBytes { limit, wanted, held } => {
                ("device-bytes", double_to_fit(*limit, wanted.saturating_add(*held)))
            }
            Self::Handles { limit } => ("handles", double_to_fit(*limit, limit + 1)),
            Self::HostCalls { limit } => ("host-calls", double_to_fit(*limit, limit + 1)),
            Self::Transfer { limit } => ("transfer-bytes", double_to_fit(*limit, limit + 1)),
            Self::Work { limit } => ("work", double_to_fit(*limit, limit + 1)),
            Self::Passes { limit } => ("passes", double_to_fit(*limit, limit + 1)),
            Self::ModelWork { limit } => ("model-work", double_to_fit(*limit, limit.saturating_add(1))),
            Self::Sampled { limit } => ("sampled-tokens", double_to_fit(*limit, limit + 1)),
            Self::Verdicts { limit } => ("verdicts", double_to_fit(*limit, limit + 1)),
            Self::Activations { held, limit } => ("activation-bytes", double_to_fit(*limit, *held)),
            Self::ParameterState { wanted, limit } => ("parameter-state-bytes", double_to_fit(*limit, *wanted)),
            _ => return None,
        };
        Some(format!("limits.{name}={value}"))
    }
}
