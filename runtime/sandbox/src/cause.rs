//! What ends a method: a limit, a trap, a broken rule, or a fault of the host's own, with the words for it.
//!
//! Which call it was and where in the method's source, `fault` adds.

use tunebox_compute::error::Error as ComputeError;
use tunebox_foundation::explain::Explain as _;
use wasmtime::Trap;
use wasmtime::component::ResourceTableError;

use crate::figures::{bytes, doubled, grouped};
use crate::printable::printable;

/// The longest text of the engine in an error, in bytes.
const TEXT_BYTES: usize = 400;

/// What ended a method.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error("it used up its time")]
    Time { used: f64, limit: f64, calls: u64 },
    #[error("it took longer than a step may")]
    WallTime { used: f64, limit: f64 },
    #[error("it asked for more memory than it may have")]
    LinearMemory { wanted: u64, limit: u64 },
    #[error("it asked for larger tables than it may have")]
    Tables { wanted: u64, limit: u64 },
    #[error("it asked for more tensor bytes than it may hold")]
    DeviceBytes { wanted: u64, held: u64, limit: u64 },
    #[error("it holds more handles than it may")]
    Handles { limit: u64 },
    #[error("it called the host more often than it may")]
    HostCalls { limit: u64 },
    #[error("it asked for more tensor work than it may")]
    Work { limit: u64 },
    #[error("it asked the model more often than it may")]
    Passes { limit: u64 },
    #[error("it asked the model for more work than it may")]
    ModelWork { limit: u64 },
    #[error("it let the model write more than it may")]
    Sampled { limit: u64 },
    #[error("it asked for more verdicts than it may")]
    Verdicts { limit: u64 },
    #[error("it keeps more of the model's work for learning than it may")]
    Activations { held: u64, limit: u64 },
    #[error("it built a longer chain of operations than a gradient may walk")]
    GraphDepth { limit: u32 },
    #[error("it gave back more state than a checkpoint takes")]
    State { bytes: u64, limit: u64 },
    #[error("it used a tensor that its scope had freed")]
    FreedHandle,
    #[error("it broke the contract: {0}")]
    Protocol(String),
    #[error("it ran out of stack")]
    Stack,
    #[error("it stopped: {0}")]
    Trap(String),
    #[error("the host failed: {0}")]
    Host(String),
    #[error("{what}")]
    Device { area: &'static str, what: String, why: Option<String>, hint: Option<String> },
}

impl Cause {
    /// A device that is full or broke off: nothing that the method did, and nothing that it can go on after.
    pub(crate) fn device(error: &ComputeError) -> Self {
        Self::Device { area: error.category(), what: error.to_string(), why: error.why(), hint: error.hint() }
    }
}

impl From<ResourceTableError> for Cause {
    fn from(error: ResourceTableError) -> Self {
        match error {
            ResourceTableError::Full => Self::Handles { limit: 0 },
            error => Self::Protocol(error.to_string()),
        }
    }
}

impl Cause {
    /// The cause behind an error of the engine. `handles` is the limit that the engine does not tell.
    pub(crate) fn of(error: &wasmtime::Error, handles: u32) -> Self {
        let cause = match (error.downcast_ref::<Self>(), error.downcast_ref::<Trap>()) {
            (Some(cause), _) => cause.clone(),
            (None, Some(Trap::StackOverflow)) => Self::Stack,
            (None, Some(Trap::UnreachableCodeReached)) => {
                Self::Trap("it reached code that it calls unreachable".into())
            }
            (None, Some(trap)) => Self::Trap(trap.to_string()),
            // What is neither ours nor a trap of the code is the engine refusing a handle, list or text.
            (None, None) => Self::Protocol(printable(&error.root_cause().to_string(), TEXT_BYTES)),
        };
        match cause {
            Self::Handles { .. } => Self::Handles { limit: u64::from(handles) },
            cause => cause,
        }
    }

    /// What was used of what, where that can be said in numbers.
    pub(crate) fn used(&self) -> Option<String> {
        match self {
            Self::Time { used, limit, .. } => Some(format!("after {used:.1} s of {limit} s")),
            Self::WallTime { used, limit } => Some(format!("after {used:.1} s of {limit} s")),
            Self::LinearMemory { wanted, limit } => Some(format!("{} of {}", bytes(*wanted), bytes(*limit))),
            Self::DeviceBytes { wanted, held, limit } => {
                Some(format!("{} more than the {} held, of {}", bytes(*wanted), bytes(*held), bytes(*limit)))
            }
            Self::State { bytes: used, limit } => Some(format!("{} of {}", bytes(*used), bytes(*limit))),
            Self::Tables { wanted, limit } => Some(format!("{} entries of {}", grouped(*wanted), grouped(*limit))),
            Self::Handles { limit } => Some(format!("past {} handles", grouped(*limit))),
            Self::HostCalls { limit } => Some(format!("past {} calls", grouped(*limit))),
            Self::Work { limit } => Some(format!("past {} numbers", grouped(*limit))),
            Self::Passes { limit } => Some(format!("past {} passes", grouped(*limit))),
            Self::ModelWork { limit } => Some(format!("past {} multiply-adds", grouped(*limit))),
            Self::Sampled { limit } => Some(format!("past {} tokens", grouped(*limit))),
            Self::Verdicts { limit } => Some(format!("past {} verdicts", grouped(*limit))),
            Self::Activations { held, limit } => Some(format!("{} of {}", bytes(*held), bytes(*limit))),
            Self::GraphDepth { limit } => Some(format!("past {} operations", grouped(u64::from(*limit)))),
            _ => None,
        }
    }

    /// The setting that would have been enough, where a limit was passed: `limits.step-seconds=120`.
    pub(crate) fn enough(&self) -> Option<String> {
        let (name, value) = match self {
            Self::Time { limit, .. } => ("step-seconds", format!("{}", (limit * 4.0).max(1.0))),
            Self::WallTime { limit, .. } => ("step-wall-seconds", format!("{}", (limit * 4.0).max(1.0))),
            Self::LinearMemory { limit, wanted } => ("linear-memory", doubled(*limit, *wanted)),
            Self::DeviceBytes { limit, wanted, held } => {
                ("device-bytes", doubled(*limit, wanted.saturating_add(*held)))
            }
            Self::Handles { limit } => ("handles", doubled(*limit, limit + 1)),
            Self::HostCalls { limit } => ("host-calls", doubled(*limit, limit + 1)),
            Self::Work { limit } => ("work", doubled(*limit, limit + 1)),
            Self::Passes { limit } => ("passes", doubled(*limit, limit + 1)),
            Self::ModelWork { limit } => ("model-work", doubled(*limit, limit.saturating_add(1))),
            Self::Sampled { limit } => ("sampled-tokens", doubled(*limit, limit + 1)),
            Self::Verdicts { limit } => ("verdicts", doubled(*limit, limit + 1)),
            Self::Activations { held, limit } => ("activation-bytes", doubled(*limit, *held)),
            _ => return None,
        };
        Some(format!("limits.{name}={value}"))
    }

    /// The reason behind it, in one sentence.
    pub(crate) fn why(&self, last: Option<&'static str>) -> Option<String> {
        Some(match self {
            Self::Time { calls: 0, .. } => {
                "no call to the host came back in that time: the method itself was computing".into()
            }
            Self::Time { calls, .. } => {
                format!("the method itself was computing; the host's work in its {} calls does not count", grouped(*calls))
            }
            Self::LinearMemory { .. } => {
                "this is the memory for a method's own lists; tensors stay on the host and do not count".into()
            }
            Self::DeviceBytes { .. } => {
                "a tensor counts until its handle and every graph that leads through it are gone; an operation's temporaries count while it runs".into()
            }
            Self::Handles { .. } => "a handle counts until the method drops it, or its scope".into(),
            Self::HostCalls { .. } => "every call counts, however small; whole steps cross the wall, not loops".into(),
            Self::WallTime { .. } => "the method and the host's work for it count together".into(),
            Self::Work { .. } => "every number that an operation reads or writes counts".into(),
            Self::Passes { .. } => "scoring rows is a pass through the model, and so is a gradient through it".into(),
            Self::ModelWork { .. } => "a pass counts the model's weights times the tokens; a gradient counts twice that".into(),
            Self::Sampled { .. } => {
                "a call to `generate` counts its completions times `max-tokens` until it knows how many were written".into()
            }
            Self::Verdicts { .. } => "every completion costs one verdict of every verifier".into(),
            Self::Activations { .. } => {
                "scores for learning keep their pass until `minimise` uses it up or the step ends".into()
            }
            Self::GraphDepth { .. } => "the gradient walks such a chain one operation after another".into(),
            Self::FreedHandle => "dropping a scope frees every tensor made since it was opened, but not the kept".into(),
            Self::Protocol(_) => "every handle, list and text that crosses the wall is checked".into(),
            Self::Stack => "functions that call one another too deeply, or for ever".into(),
            Self::Device { why, .. } => return why.clone(),
            Self::Host(_) => format!("this is a fault of tunebox, not of the method; it was in `{}`", last.unwrap_or("start")),
            _ => return None,
        })
    }

    /// What to do about it, where no limit was passed.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::GraphDepth { .. } => Some("its author can `detach` what needs no gradient".into()),
            Self::FreedHandle => Some("its author can `keep` the tensor in the scope".into()),
            Self::Device { hint, .. } => hint.clone(),
            Self::Host(_) => Some("please report it, with the method and `run.toml`".into()),
            _ => None,
        }
    }
}
