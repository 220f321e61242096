//! What can go wrong between a component and its last step, each with its message for people.
//!
//! Most errors come before anything of the method ran. [`Error::Stopped`] comes while it ran: its store is gone then,
//! and the train state is intact.

use tunebox_foundation::explain::{Explain, Explanation};
use tunebox_foundation::printable::printable;

use crate::fault::Stop;
use crate::figures::{double_to_fit, format_bytes};
use crate::grants::interface_of;
use crate::limits::Limits;
use crate::refusal::host_refused;

/// The location that errors of admission show.
pub(crate) const BEFORE: &str = "found before anything ran";

/// The longest text of an engine or compiler in an error, in bytes.
const TEXT_BYTES: usize = 400;

/// Why a method is not admitted, or did not go on.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(category = "sandbox", exit = Sandbox)]
pub enum Error {
    /// The file is larger than a component may be.
    #[error("`{method}` is larger than a method may be")]
    #[explain(
        location = format!("{} of {}", format_bytes(*size), format_bytes(*limit)),
        hint = format!(
            "if you trust it: `--set limits.component-bytes={} --set limits.compile-seconds={}`; one in Python holds an \
             interpreter and is never smaller, one in Rust is small without `--debug`",
            double_to_fit(*limit, *size),
            Limits::INTERPRETER_SECONDS
        )
    )]
    TooLarge {
        /// The method's name.
        method: String,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The bytes are no component that this host accepts.
    #[error("`{method}` is not a component that this host runs: {problem}")]
    #[explain(location = BEFORE.to_owned(), hint = "`tunebox build` makes a component from a method's folder")]
    Malformed {
        /// The method's name.
        method: String,
        /// What is wrong with the bytes, safe to show.
        problem: String,
    },
    /// An import that this run does not grant.
    #[error("`{method}` asks for something this run does not grant")]
    #[explain(
        location = "import `{import}`, found before anything ran",
        why = reason_not_granted(*by_name).to_owned(),
        hint = how_to_grant(method, import, *by_name)
    )]
    NotGranted {
        /// The method's name.
        method: String,
        /// The full name of the import.
        import: String,
        /// Whether the run can grant it by name.
        by_name: bool,
    },
    /// Names agree, but a function has other types than the contract, or is not in this version.
    #[error("`{method}` was built for another version of the contract")]
    #[explain(why = difference.clone(), hint = "build it again with the SDK of this version")]
    Mismatch {
        /// The method's name.
        method: String,
        /// The first difference.
        difference: String,
    },
    /// A verifier or an environment that imports something.
    #[error("the {world} `{component}` asks for `{import}`")]
    #[explain(
        location = BEFORE.to_owned(),
        why = format!("the texts that the {world} gets are all it sees: it may import nothing, not even what a method may"),
        hint = format!("its author can build it with the SDK's `{world}!` and without host calls")
    )]
    IsolatedImports {
        /// What it is: `verifier` or `environment`.
        world: &'static str,
        /// The component's name.
        component: String,
        /// The full name of the import.
        import: String,
    },
    /// Any other refusal before a component runs.
    #[error("{0}")]
    #[explain(source, exit = Sandbox)]
    NotAdmitted(Box<Explanation>),
    /// The method ended a call with an error message.
    #[error("{}", refused_message(method, moment, message, denied.as_deref()))]
    #[explain(location = denied.as_ref().map(|call| call.place.clone()))]
    Refused {
        /// The method's name.
        method: String,
        /// In which call, as in "at step 3", or "for its settings".
        moment: String,
        /// Its message, safe to show.
        message: String,
        /// The call to the host that returned this error, if the message is the host's.
        denied: Option<Box<DeniedCall>>,
    },
    /// The method ended: a limit, a trap, or the host's own fault.
    #[error(transparent)]
    #[explain(source)]
    Stopped(Box<Stop>),
    /// The session ended before; the method cannot be called again.
    #[error("`{method}` has ended and cannot go on")]
    Over {
        /// The method's name.
        method: String,
    },
    /// The engine cannot be created.
    #[error("the sandbox cannot run on this machine: {0}")]
    Engine(String),
}

impl From<Explanation> for Error {
    /// Wraps an explanation as [`Error::NotAdmitted`].
    fn from(refusal: Explanation) -> Self {
        Self::NotAdmitted(Box::new(refusal))
    }
}

impl Error {
    /// Builds the error for bytes that a parser, validator or compiler rejected; `problem` is its message, which is
    /// escaped and cut at 400 bytes.
    pub(crate) fn malformed(method: &str, problem: impl AsRef<str>) -> Self {
        Self::Malformed { method: method.to_owned(), problem: printable(problem.as_ref(), TEXT_BYTES) }
    }

    /// Builds the error for a component whose types differ from the contract's; `error` comes from the linker, and is
    /// escaped and cut at 400 bytes.
    pub(crate) fn mismatch(method: &str, error: &wasmtime::Error) -> Self {
        Self::Mismatch { method: method.to_owned(), difference: printable(&format!("{error:#}"), TEXT_BYTES) }
    }
}

/// A call to the host that returned the error with which the method ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedCall {
    /// The function, as in `learn.backward`.
    pub function: &'static str,
    /// Where in the method's source, and in which of its functions; escaped.
    pub place: String,
}

/// Formats the message of [`Error::Refused`]. With `denied`, the call to the host whose error the method returned, says
/// that the host refused that function; without, that the method returned an error. `moment` is such as `at step 3`.
fn refused_message(method: &str, moment: &str, message: &str, denied: Option<&DeniedCall>) -> String {
    match denied {
        Some(call) => host_refused(call.function, method, moment, message),
        None if message.trim().is_empty() => format!("`{method}` returned an error {moment}, and gave no message"),
        None => format!("`{method}` returned an error {moment}: {message}"),
    }
}

/// Returns why an import is not granted. `by_name`: whether a run can grant it by name, which is so for the interfaces
/// of the contract.
fn reason_not_granted(by_name: bool) -> &'static str {
    if by_name {
        "it would see or change more than a training method needs, so a run grants it by name"
    } else {
        "a method gets tensors, the model, its batch and metrics; never files, network, clock or environment"
    }
}

/// Advises what to do about an import that is not granted: list it in `grants` of the run file if a run can grant it by
/// name (`by_name`), else build the method without it. `import` is its full name.
fn how_to_grant(method: &str, import: &str, by_name: bool) -> String {
    if by_name {
        let interface = interface_of(import).unwrap_or("it");
        return format!(
            "if you trust `{method}`, put `{interface}` into `grants` of `[method]`, as in `grants = [\"{interface}\"]`; \
             `tunebox inspect {method}` shows all it asks for"
        );
    }
    let without = if import.starts_with("wasi:filesystem") { "the file system" } else { "it" };
    format!("`tunebox inspect {method}` shows all it asks for; its author can build without {without}")
}
