//! A call that the host could not do, and the line of the method that made it.
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn read(values: &Tensor) -> Result<()> {
//! let numbers = match values.copy_to_list() {
//!     Err(error) if error.code() == Some("out-of-budget") => vec![values.mean(All).item()?],
//!     other => other?,
//! };
//! if numbers.iter().any(|number| number.is_nan()) {
//!     return Err(Error::new("`weight` has a record without a number"));
//! }
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::panic::Location;

use crate::bindings::tunebox::method::types;

/// The result of a call that a run may refuse.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Why a call could not be done, or why the method stops.
#[derive(Debug, Clone)]
pub struct Error {
    code: Option<String>,
    message: String,
    place: &'static Location<'static>,
}

impl Error {
    /// An error with the method's own reason to stop: lower case, no full stop, values in backticks.
    #[track_caller]
    pub fn new(message: impl Into<String>) -> Self {
        Self { code: None, message: message.into(), place: Location::caller() }
    }

    /// The host's error code, to act on, such as `out-of-budget`; `None` for an error made by [`new`](Self::new). The codes
    /// are those of `wit/types.wit`; a later host may return others.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// The text for the host: the message, and for a call that the host refused also its source location.
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

/// Converts the host's answer to this crate's result. An error keeps the source location of the caller.
#[track_caller]
pub(crate) fn checked<T>(answer: std::result::Result<T, types::Error>) -> Result<T> {
    match answer {
        Ok(value) => Ok(value),
        Err(types::Error { code, message }) => Err(Error { code: Some(code), message, place: Location::caller() }),
    }
}

/// Returns the value of the host's answer. Panics at the caller's line on an error, which is a mistake of the method.
#[track_caller]
pub(crate) fn certain<T>(answer: std::result::Result<T, types::Error>) -> T {
    match answer {
        Ok(value) => value,
        Err(error) => panic!("{}", error.message),
    }
}
