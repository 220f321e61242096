//! The errors of tensor operations and devices, each with its message and hint.
//!
//! The sandbox maps the variants to the error codes of `wit/types.wit`. This crate does not know about guests.

use tunebox_foundation::explain::Explain;
pub(crate) use tunebox_foundation::explain::ensure;
use tunebox_foundation::format::bytes as size;

/// The result of tensor work.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a tensor operation or a device.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(category = "tensor")]
pub enum Error {
    /// An argument is outside what the operation allows: an axis, a range, a scalar, an index.
    #[error("{0}")]
    Argument(String),
    /// Shapes that cannot be combined, or a shape that is not allowed.
    #[error("{0}")]
    Shape(String),
    /// An element type that the operation does not take.
    #[error("{0}")]
    Dtype(String),
    /// The result does not fit into the byte budget of the run.
    #[error("{} more than the limit of {} would be held", size(wanted.saturating_add(*held).saturating_sub(*limit)), size(*limit))]
    #[explain(
        category = "memory",
        why = format!("{} asked for, {} held, {} allowed", size(*wanted), size(*held), size(*limit)),
        hint = "a smaller batch, or a larger memory limit"
    )]
    OutOfMemory {
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes that were held already.
        held: u64,
        /// The most bytes that may be held.
        limit: u64,
    },
    /// The operation would do more work than the limit leaves.
    #[error("{work} numbers would be touched, which is more than is left of {limit}")]
    OutOfWork {
        /// Units of work of the operation: numbers read and written, multiply-adds.
        work: u64,
        /// The limit of the work, in the same units.
        limit: u64,
    },
    /// The operation may last longer than the time limit leaves.
    #[error("up to {seconds:.1} s would be needed, which is more than is left of {limit} s")]
    OutOfTime {
        /// Seconds that the operation takes on a slow machine.
        seconds: f64,
        /// The time limit, in seconds.
        limit: f64,
    },
    /// The deadline of the work has passed.
    #[error("the time for it is up")]
    PastDeadline,
    /// A device that this build or machine does not have.
    #[error("device `{device}` is not available")]
    #[explain(
        category = "device",
        why = why.clone(),
        hint = String::from(if why.starts_with("this machine has") { "name one that it has" } else { "`cpu` works everywhere" })
    )]
    Unavailable {
        /// The device, as the user wrote it.
        device: String,
        /// Why it cannot be used.
        why: String,
    },
    /// A device has too little free memory.
    #[error("`{device}` has no memory for {} more", size(*wanted))]
    #[explain(
        category = "memory",
        why = format!("{} of {} are free", size(*free), size(*total)),
        hint = "fewer tokens at a time, or a smaller model; `tunebox check --fit` says what a run needs"
    )]
    Full {
        /// The device, as `cuda:0`.
        device: String,
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes that are free, in pieces that may each be too small.
        free: u64,
        /// Bytes of memory of the device.
        total: u64,
    },
    /// The device or its driver reported an error, or does not answer.
    #[error("`{device}` stopped: {why}")]
    #[explain(category = "device")]
    Stopped {
        /// The device, as `cuda:0`.
        device: String,
        /// What the device or its driver reported.
        why: String,
    },
    /// A number that had to be finite is not.
    #[error("{0}")]
    NonFinite(String),
    /// The tensor library or the device failed.
    #[error("the tensor library stopped: {0}")]
    Candle(#[from] candle_core::Error),
}

impl Error {
    /// Creates [`Error::Argument`], for an argument outside what the operation allows.
    pub fn argument(message: impl Into<String>) -> Self {
        Self::Argument(message.into())
    }

    /// Creates [`Error::Shape`], for shapes that are not allowed or do not fit together.
    pub fn shape(message: impl Into<String>) -> Self {
        Self::Shape(message.into())
    }

    /// Creates [`Error::Dtype`], for an element type that the operation does not take.
    pub fn dtype(message: impl Into<String>) -> Self {
        Self::Dtype(message.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_budget_says_how_much_was_asked_held_and_allowed() {
        let error = Error::OutOfMemory { wanted: 3 << 20, held: 2 << 20, limit: 4 << 20 };
        assert_eq!(error.to_string(), "1.0 MiB more than the limit of 4.0 MiB would be held");
        assert_eq!(error.why().as_deref(), Some("3.0 MiB asked for, 2.0 MiB held, 4.0 MiB allowed"));
    }

    #[test]
    fn a_full_device_says_what_was_asked_and_what_is_free() {
        let error = Error::Full { device: "cuda:0".into(), wanted: 3 << 30, free: 1 << 30, total: 16 << 30 };
        assert_eq!(error.to_string(), "`cuda:0` has no memory for 3.0 GiB more");
        assert_eq!(
            (error.category().as_ref(), error.why().as_deref()),
            ("memory", Some("1.0 GiB of 16.0 GiB are free"))
        );
    }
}
