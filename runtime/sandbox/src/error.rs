//! What can go wrong between a component and its last step, each with what to tell a person.
//!
//! Refusals happen before anything of the method ran; stops while it ran, with its store gone
//! and the train state whole.

use tunebox_foundation::explain::{Exit, Explain, Trace};

use crate::compile::CompileStop;
use crate::fault::Stop;
use crate::figures::{bytes, doubled};
use crate::grants::{CONTRACT, Version, interface_of};
use crate::limits::Limits;
use crate::refusal::{advice, ended_with};

/// Why a method is not admitted, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is larger than a component may be.
    #[error("`{method}` is larger than a method may be")]
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
    Malformed {
        /// The method's name.
        method: String,
        /// What is wrong with the bytes.
        problem: String,
    },
    /// The component is built in a way that the contract leaves out.
    #[error("`{method}` uses {what}, which the contract leaves out")]
    LeftOut {
        /// The method's name.
        method: String,
        /// The feature.
        what: &'static str,
    },
    /// The component took too much to compile.
    #[error("`{method}` {}", stop.what())]
    NotCompiled {
        /// The method's name.
        method: String,
        /// Why.
        stop: CompileStop,
    },
    /// An import that this run does not grant.
    #[error("`{method}` asks for something this run does not grant")]
    NotGranted {
        /// The method's name.
        method: String,
        /// The full name of the import.
        import: String,
        /// Whether the run can grant it by name.
        by_name: bool,
    },
    /// An import of the contract that this host does not keep yet.
    #[error("`{method}` asks for something this host does not offer yet")]
    NotOffered {
        /// The method's name.
        method: String,
        /// The full name of the import.
        import: String,
    },
    /// The component was built for a version of the contract that this host does not keep.
    #[error("`{method}` needs `tunebox:method@{wants}`, this program keeps {}", CONTRACT)]
    OtherVersion {
        /// The component's name.
        method: String,
        /// The version.
        wants: Version,
        /// Where that shows.
        sign: Sign,
    },
    /// The component does not offer what a method must.
    #[error("`{method}` does not offer what a method must")]
    NoTraining {
        /// The method's name.
        method: String,
        /// What is missing.
        missing: String,
    },
    /// Names agree, but a function has other types than the contract, or is not in this version.
    #[error("`{method}` was built for another version of the contract")]
    Mismatch {
        /// The method's name.
        method: String,
        /// The first difference.
        difference: String,
    },
    /// The method said no, in words.
    #[error("`{method}` refuses {moment}: {message}")]
    Refused {
        /// The method's name.
        method: String,
        /// In which call, as in "at step 3".
        moment: String,
        /// Its words, safe to show.
        message: String,
        /// The call that got it this error, if it ended with one of the host's.
        denied: Option<Box<DeniedCall>>,
    },
    /// The method ended: a limit, a trap, or the host's own fault.
    #[error("{}", .0.what())]
    Stopped(Box<Stop>),
    /// A verifier that wants something of the host.
    #[error("the verifier `{verifier}` asks for `{import}`")]
    VerifierImports {
        /// The verifier's name.
        verifier: String,
        /// The full name of the import.
        import: String,
    },
    /// The component does not offer what a verifier must.
    #[error("`{verifier}` is no verifier")]
    NoVerify {
        /// The component's name.
        verifier: String,
        /// What is missing.
        missing: String,
    },
    /// A verifier that does not come up.
    #[error("the verifier `{verifier}` does not start: {reason}")]
    VerifierFailed {
        /// The verifier's name.
        verifier: String,
        /// Why, safe to show.
        reason: String,
    },
    /// The session ended before; nothing enters the method any more.
    #[error("`{method}` has ended and cannot go on")]
    Over {
        /// The method's name.
        method: String,
    },
    /// The engine could not be made.
    #[error("the sandbox cannot run on this machine: {0}")]
    Engine(String),
}

impl Error {
    /// The setting that would have been enough for a method that passed a limit: `limits.step-seconds=120`.
    pub fn enough(&self) -> Option<String> {
        if let Self::Stopped(stop) = self { stop.enough() } else { None }
    }
}

/// A call to the host that got an error with which the method ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedCall {
    /// The function, as in `learn.minimise`.
    pub function: &'static str,
    /// Where in the method's source, and in which of its functions, safe to show.
    pub place: String,
}

/// What shows for which version of the contract a component was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The full name of an import.
    Import(String),
    /// The full name of an import, and the function in it that came later.
    Function(String, String),
    /// The full name of an export.
    Export(String),
}

impl Sign {
    fn place(&self) -> String {
        let (kind, name) = match self {
            Self::Import(name) | Self::Function(name, _) => ("import", name),
            Self::Export(name) => ("export", name),
        };
        format!("{kind} `{name}`, found before anything ran")
    }

    fn why(&self, wants: Version) -> String {
        if !wants.is_of_track(CONTRACT) {
            let (major, minor) = (CONTRACT.major, CONTRACT.minor);
            return format!("a version that is not {major}.{minor}.x is another contract, with functions of its own");
        }
        match self {
            Self::Function(_, function) => format!("`{function}` is newer than {CONTRACT}"),
            Self::Import(name) | Self::Export(name) => {
                format!("`{}` is newer than {CONTRACT}", interface_of(name).unwrap_or(name))
            }
        }
    }
}

impl Explain for Error {
    fn category(&self) -> &'static str {
        if let Self::Stopped(stop) = self { stop.category() } else { "sandbox" }
    }

    fn location(&self) -> Option<String> {
        match self {
            Self::TooLarge { size, limit, .. } => Some(format!("{} of {}", bytes(*size), bytes(*limit))),
            Self::NotGranted { import, .. } | Self::NotOffered { import, .. } => {
                Some(format!("import `{import}`, found before anything ran"))
            }
            Self::OtherVersion { sign, .. } => Some(sign.place()),
            Self::NoTraining { missing, .. } => Some(format!("export `{missing}`, missed before anything ran")),
            Self::NoVerify { missing, .. } => Some(format!("export `{missing}`, missed before anything ran")),
            Self::LeftOut { .. } | Self::Malformed { .. } | Self::VerifierImports { .. } => {
                Some("found before anything ran".into())
            }
            Self::NotCompiled { stop, .. } => Some(stop.place()),
            Self::Stopped(stop) => Some(stop.place()),
            Self::Refused { denied, .. } => denied.as_ref().map(|call| call.place.clone()),
            _ => None,
        }
    }

    fn why(&self) -> Option<String> {
        Some(match self {
            Self::NotGranted { by_name: false, .. } => {
                "a method gets tensors, the model, its batch and metrics; never files, network, clock or environment"
                    .into()
            }
            Self::NotGranted { by_name: true, .. } => {
                "it would see or change more than a training method needs, so a run grants it by name".into()
            }
            Self::NotOffered { .. } => "the contract has it, but this version of tunebox does not keep it".into(),
            Self::OtherVersion { sign, wants, .. } => sign.why(*wants),
            Self::VerifierImports { .. } => {
                "a verifier gets three texts and gives a number; it may import nothing, not even what a method may"
                    .into()
            }
            Self::NoVerify { .. } => "the host calls `init` and `verify`; a training method goes to `[method]`".into(),
            Self::NoTraining { .. } => {
                "the host calls `init`, `step` and `finish`; without them there is nothing to run".into()
            }
            Self::Mismatch { difference, .. } => difference.clone(),
            Self::NotCompiled { stop, .. } => stop.why(),
            Self::Stopped(stop) => return stop.why(),
            Self::Refused { denied: Some(call), .. } => ended_with(call.function),
            _ => return None,
        })
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::TooLarge { size, limit, .. } => format!(
                "if you trust it: `--set limits.component-bytes={} --set limits.compile-seconds={}`; one in Python holds \
                 an interpreter and is never smaller, one in Rust is small without `--debug`",
                doubled(*limit, *size),
                Limits::INTERPRETER_SECONDS
            ),
            Self::Malformed { .. } => "`tunebox build` makes a component from a method's folder".into(),
            Self::LeftOut { method, .. } => format!("`{method}` must be built without it; `tunebox build` does that"),
            Self::NotGranted { method, by_name: false, import } => {
                let without = if import.starts_with("wasi:filesystem") { "the file system" } else { "it" };
                format!("`tunebox inspect {method}` shows all it asks for; its author can build without {without}")
            }
            Self::NotGranted { method, by_name: true, import } => {
                let interface = interface_of(import).unwrap_or("it");
                format!(
                    "if you trust `{method}`, put `{interface}` into `grants` of `[method]`, as in `grants = [\"{interface}\"]`; \
                     `tunebox inspect {method}` shows all it asks for"
                )
            }
            Self::NotOffered { .. } => "a later version of tunebox may".into(),
            Self::OtherVersion { wants, .. } if *wants > CONTRACT => format!(
                "a newer tunebox may keep it, `tunebox --version` tells which this is; or its author builds it for {CONTRACT}"
            ),
            Self::OtherVersion { .. } => "its author can build it again with the SDK of this version".into(),
            Self::VerifierImports { .. } => {
                "its author can build it with the SDK's `verifier!` and without host calls".into()
            }
            Self::NoVerify { verifier, .. } => format!("`tunebox inspect {verifier}` shows what it offers"),
            Self::NoTraining { .. } => "`tunebox new NAME` writes a method that has all of it".into(),
            Self::Mismatch { .. } => "build it again with the SDK of this version".into(),
            Self::NotCompiled { stop, .. } => stop.hint(),
            Self::Stopped(stop) => return stop.hint(),
            Self::Refused { denied: Some(call), .. } => return advice(call.function),
            _ => return None,
        })
    }

    fn trace(&self) -> Option<Trace> {
        if let Self::Stopped(stop) = self { stop.trace() } else { None }
    }

    fn exit(&self) -> Exit {
        // A machine that cannot do it is no matter of trust.
        if self.category() == "sandbox" { Exit::Sandbox } else { Exit::Usage }
    }
}
