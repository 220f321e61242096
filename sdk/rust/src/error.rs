//! A call that the host could not do, and the line of the method that made it.

use std::fmt;
use std::panic::Location;

use crate::bindings::tunebox::method::types;

pub use crate::bindings::tunebox::method::types::ErrorCode;

/// The result of a call that a run may refuse.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Why a call could not be done, or why the method stops.
#[derive(Debug, Clone)]
pub struct Error {
    code: Option<ErrorCode>,
    message: String,
    place: &'static Location<'static>,
}

impl Error {
    /// The method's own reason to stop: lower case, no full stop, values in backticks.
    #[track_caller]
    pub fn new(message: impl Into<String>) -> Self {
        Self { code: None, message: message.into(), place: Location::caller() }
    }

    /// The host's code, to act on; `None` for the method's own reasons.
    pub fn code(&self) -> Option<ErrorCode> {
        self.code
    }

    /// The message for the host: of a refused call with its line, of the method's own error alone.
    pub(crate) fn report(&self) -> String {
        match self.code {
            Some(_) => format!("{}, called at {}", self.message, self.place),
            None => self.message.clone(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// A host's answer as a result that remembers the caller's line.
#[track_caller]
pub(crate) fn checked<T>(answer: std::result::Result<T, types::Error>) -> Result<T> {
    match answer {
        Ok(value) => Ok(value),
        Err(types::Error { code, message }) => Err(Error { code: Some(code), message, place: Location::caller() }),
    }
}

/// A host's answer where only a mistake in the method can fail: panics on the caller's line.
#[track_caller]
pub(crate) fn certain<T>(answer: std::result::Result<T, types::Error>) -> T {
    match answer {
        Ok(value) => value,
        Err(error) => panic!("{}", error.message),
    }
}
