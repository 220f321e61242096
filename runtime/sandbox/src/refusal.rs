//! What a host function answers when it cannot do what a method asked.
//!
//! Two kinds: an error that the method may act on (`result<_, error>` in WIT), and the end of
//! the method (a trap). `?` turns the errors of the rooms below into the right kind; what the
//! end looks like to a person is written in `fault`.

use tunebox_compute::error::Error as ComputeError;
use tunebox_model::error::Error as ModelError;
use wasmtime::component::ResourceTableError;

use crate::bindings::types::{self, ErrorCode};
use crate::cause::Cause;
use crate::printable::printable;

/// The longest message that a method gets with an error, in bytes.
const MESSAGE_BYTES: usize = 500;

/// Why a host function did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The method gets this error and goes on.
    Error(types::Error),
    /// The method ends here.
    Trap(wasmtime::Error),
}

impl Refusal {
    /// An error of this code that the method can act on.
    pub(crate) fn new(code: ErrorCode, message: impl AsRef<str>) -> Self {
        Self::Error(types::Error { code, message: printable(message.as_ref(), MESSAGE_BYTES) })
    }

    /// An argument is outside what the function's text allows.
    pub(crate) fn argument(message: impl AsRef<str>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }
}

impl From<Cause> for Refusal {
    fn from(cause: Cause) -> Self {
        Self::Trap(cause.into())
    }
}

/// Functions without a `result` in WIT can only trap.
impl From<Refusal> for wasmtime::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Error(error) => Cause::Protocol(error.message).into(),
            Refusal::Trap(error) => error,
        }
    }
}

impl From<ResourceTableError> for Refusal {
    fn from(error: ResourceTableError) -> Self {
        Cause::from(error).into()
    }
}

impl From<ComputeError> for Refusal {
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
            ComputeError::Full { .. } | ComputeError::Stopped { .. } => return Cause::device(&error).into(),
            ComputeError::OutOfWork { limit, .. } => return Cause::Work { limit: *limit }.into(),
            _ => ErrorCode::DeviceError,
        };
        Self::new(code, error.to_string())
    }
}

impl From<candle_core::Error> for Refusal {
    fn from(error: candle_core::Error) -> Self {
        ComputeError::from(error).into()
    }
}

impl From<ModelError> for Refusal {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Argument(message) => Self::argument(message),
            ModelError::Unsupported(message) => Self::new(ErrorCode::Unsupported, message),
            ModelError::Compute(error) => error.into(),
            ModelError::Candle(error) => error.into(),
            error => Self::new(ErrorCode::DeviceError, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tunebox_compute::explain::Explain as _;

    use super::*;

    #[test]
    fn a_device_that_is_full_or_broke_off_ends_the_method_and_is_not_its_fault() {
        let full = ComputeError::Full { device: "cuda:0".into(), wanted: 3 << 30, free: 1 << 30, total: 16 << 30 };
        let stopped = ComputeError::Stopped { device: "cuda:0".into(), why: "an illegal address".into() };
        for (error, found) in [(full, "memory"), (stopped, "device")] {
            let (what, why, hint) = (error.to_string(), error.why(), error.hint());
            let Refusal::Trap(trap) = Refusal::from(error) else { panic!("a method may go on after `{what}`") };
            let cause = Cause::of(&trap, 0);
            let Cause::Device { area, .. } = cause else { panic!("{cause:?}") };
            assert_eq!((area, cause.to_string()), (found, what));
            assert_eq!((cause.why(None), cause.hint()), (why, hint));
        }
    }
}
