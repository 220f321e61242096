//! What a host function returns when it cannot do what a method asked.
//!
//! Two kinds: an error that the method may act on (`result<_, error>` in WIT), and the end of
//! the method (a trap). `?` converts the errors of the crates below into the right kind; `fault`
//! formats the end of a method for people.

use tunebox_compute::error::Error as ComputeError;
pub(crate) use tunebox_foundation::explain::ensure;
use tunebox_model::error::Error as ModelError;
use wasmtime::component::ResourceTableError;

use crate::bindings::types;
use crate::cause::Cause;
use crate::printable::printable;

/// The longest message that a method gets with an error, in bytes.
const MESSAGE_BYTES: usize = 500;

/// An error that the host returned to a method, and the host function that returned it.
#[derive(Clone, Debug)]
pub(crate) struct Denied {
    /// The function, as in `learn.backward`.
    pub(crate) function: &'static str,
    /// The host's message.
    pub(crate) message: String,
}

impl Denied {
    /// Reads where the refused call stands from `last`, the method's final message. The SDK ends with the host's
    /// message and `, called at FILE:LINE`: then returns `FILE:LINE`. Returns an empty text if `last` is the host's
    /// message alone, and `None` if it is any other text, so that the method ended for another reason.
    pub(crate) fn source_line_in<'a>(&self, last: &'a str) -> Option<&'a str> {
        let rest = last.strip_prefix(self.message.as_str())?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix(", called at ") }
    }

    /// Whether the refused call was to compute a gradient of the model: `learn.backward` or `learn.backward-from`.
    pub(crate) fn is_gradient_call(&self) -> bool {
        matches!(self.function, "learn.backward" | "learn.backward-from")
    }
}

/// Formats the error of a method that ended with an error of the host: `function` is the host function that returned
/// it, `moment` the call, such as `at step 3`, and `message` the host's text.
pub(crate) fn host_refused(function: &str, method: &str, moment: &str, message: &str) -> String {
    format!("the host refused `{function}` to `{method}` {moment}: {message}")
}

/// The codes of errors that a method gets, as `wit/types.wit` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    /// An argument is outside what the function's text allows.
    InvalidArgument,
    /// Shapes cannot be combined.
    ShapeMismatch,
    /// The element type is not one that the function takes.
    DtypeMismatch,
    /// This host, run, model or device does not offer it.
    Unsupported,
    /// It would pass a limit that the method can stay below.
    OutOfBudget,
    /// The device failed.
    DeviceError,
    /// A fault of the host.
    Internal,
}

impl ErrorCode {
    /// Returns the code as the method gets it, such as `invalid-argument`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid-argument",
            Self::ShapeMismatch => "shape-mismatch",
            Self::DtypeMismatch => "dtype-mismatch",
            Self::Unsupported => "unsupported",
            Self::OutOfBudget => "out-of-budget",
            Self::DeviceError => "device-error",
            Self::Internal => "internal",
        }
    }
}

/// Why a host function did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The method gets this error and goes on.
    Error(types::Error),
    /// The method ends here.
    Trap(wasmtime::Error),
}

/// The result of a host function.
pub(crate) type Result<T, E = Refusal> = std::result::Result<T, E>;

impl Refusal {
    /// Builds an error that the method gets and can act on. Escapes the message and cuts it at 500 bytes.
    pub(crate) fn new(code: ErrorCode, message: impl AsRef<str>) -> Self {
        Self::Error(types::Error { code: code.name().to_owned(), message: printable(message.as_ref(), MESSAGE_BYTES) })
    }

    /// Builds an `invalid-argument` error: an argument is outside what WIT allows.
    pub(crate) fn argument(message: impl AsRef<str>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }
}

impl From<Cause> for Refusal {
    /// Converts a cause into a trap, which ends the method.
    fn from(cause: Cause) -> Self {
        Self::Trap(cause.into())
    }
}

/// Functions without a `result` in WIT can only trap.
impl From<Refusal> for wasmtime::Error {
    /// Converts a refusal into a trap, for functions without a `result` in WIT: an error becomes a broken contract.
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Error(error) => Cause::Protocol(error.message).into(),
            Refusal::Trap(error) => error,
        }
    }
}

impl From<ResourceTableError> for Refusal {
    /// Converts a full table or an invalid handle into a trap.
    fn from(error: ResourceTableError) -> Self {
        Cause::from(error).into()
    }
}

impl From<ComputeError> for Refusal {
    /// Converts an error of the tensor library: exhausted bytes, work or time, and a full or stopped device, end the
    /// method. Any other becomes an error that the method gets: `invalid-argument` for a bad argument or a number that
    /// is not finite, `shape-mismatch`, `dtype-mismatch`, `unsupported` for what a device lacks, else `device-error`.
    fn from(error: ComputeError) -> Self {
        let code = match &error {
            ComputeError::Argument(_) | ComputeError::NonFinite(_) => ErrorCode::InvalidArgument,
            ComputeError::Shape(_) => ErrorCode::ShapeMismatch,
            ComputeError::Dtype(_) => ErrorCode::DtypeMismatch,
            ComputeError::Unavailable { .. } => ErrorCode::Unsupported,
            ComputeError::OutOfMemory { wanted, held, limit } => {
                return Cause::DeviceBytes { wanted: *wanted, held: *held, limit: *limit }.into();
            }
            // A guest could catch an error and go on over a device that computes nothing any more.
            ComputeError::Full { .. } | ComputeError::Stopped { .. } => {
                return Cause::from_compute_error(&error).into();
            }
            ComputeError::OutOfWork { limit, .. } => return Cause::Work { limit: *limit }.into(),
            ComputeError::OutOfTime { seconds, limit } => {
                return Cause::LongOperation { seconds: *seconds, limit: *limit }.into();
            }
            _ => ErrorCode::DeviceError,
        };
        Self::new(code, error.to_string())
    }
}

impl From<candle_core::Error> for Refusal {
    /// Converts an error of candle to one of the tensor library, and that to a refusal.
    fn from(error: candle_core::Error) -> Self {
        ComputeError::from(error).into()
    }
}

impl From<ModelError> for Refusal {
    /// Converts an error of the model crate: arguments and unsupported operations become errors that the method gets;
    /// errors of the tensor library are converted as such; a failure of another process of the run ends the method; any
    /// other is a `device-error`.
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Argument(message) => Self::argument(message),
            ModelError::Unsupported(message) => Self::new(ErrorCode::Unsupported, message),
            ModelError::Compute(error) => error.into(),
            ModelError::Candle(error) => error.into(),
            // The processes of a run must do the same: a method that went on here would not go on there.
            ModelError::Ranks(explanation) => Cause::from_explanation(*explanation).into(),
            error => Self::new(ErrorCode::DeviceError, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain as _;

    use super::*;
    use crate::limits::Limits;

    #[test]
    fn the_line_of_a_refused_call_is_known_where_a_method_ends_with_the_words_of_the_host() {
        let denied = Denied { function: "learn.backward", message: "the loss is `NaN`".into() };
        assert_eq!(denied.source_line_in("the loss is `NaN`, called at src/lib.rs:38:9"), Some("src/lib.rs:38:9"));
        assert_eq!(denied.source_line_in("the loss is `NaN`"), Some(""));
        for other in ["the loss is `NaN`!", "no loss, called at src/lib.rs:38:9", ""] {
            assert_eq!(denied.source_line_in(other), None, "{other}");
        }
    }

    #[test]
    fn a_device_that_is_full_or_broke_off_ends_the_method_and_is_not_its_fault() {
        let full = ComputeError::Full { device: "cuda:0".into(), wanted: 3 << 30, free: 1 << 30, total: 16 << 30 };
        let stopped = ComputeError::Stopped { device: "cuda:0".into(), why: "an illegal address".into() };
        for (error, found) in [(full, "memory"), (stopped, "device")] {
            let (what, why, hint) = (error.to_string(), error.why(), error.hint());
            let Refusal::Trap(trap) = Refusal::from(error) else { panic!("a method may go on after `{what}`") };
            let cause = Cause::from_engine_error(&trap, &Limits::default(), 0);
            let Cause::Device { area, .. } = &cause else { panic!("{cause:?}") };
            assert_eq!((area.as_ref(), cause.to_string()), (found, what));
            assert_eq!((cause.why(), cause.hint()), (why, hint));
        }
    }
}
