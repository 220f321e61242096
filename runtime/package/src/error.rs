//! Why a package cannot be found, read, trusted, configured or built.
//!
//! An error that a caller tells apart is a variant or has a [`Reason`]. Every other error is an [`Error::Explained`]:
//! the finished [`Explanation`], written where it happens.

use std::io;
use std::path::PathBuf;

use tunebox_foundation::explain::{Exit, Explain, Explanation};
use tunebox_foundation::files::FileError;
use tunebox_foundation::printable::printable;

use crate::builtin::{self, Builtin};
use crate::counterpart::find_counterpart;

const NOT_FOUND: &str = "it is neither built in, nor in the store, nor the path of a folder or a `.wasm` file";
const BUILD_FOLDER: &str = "`tunebox build FOLDER` makes a component with a manifest";

/// Why a package cannot be found, read, trusted, configured or built.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(category = "package")]
pub enum Error {
    /// A failed operation on a file or folder.
    #[error(transparent)]
    #[explain(source)]
    File(#[from] FileError),
    /// A lock that another program holds for too long.
    #[error("another program holds the lock of `{path}` and does not release it", path = path.display())]
    #[explain(hint = "end that program; `fuser` or `lsof` with that path says which it is")]
    Held {
        /// The file or folder.
        path: PathBuf,
    },
    /// A name that is neither built in, nor in the store, nor a path.
    #[error("there is no {kind} `{name}`")]
    #[explain(why = NOT_FOUND.to_owned(), hint = suggest_name(name, nearest.as_deref(), kind))]
    NoMethod {
        /// What was looked for: `method`, `verifier` or `environment`.
        kind: &'static str,
        /// The name.
        name: String,
        /// A known name that resembles it.
        nearest: Option<String>,
    },
    /// A method folder that was not built.
    #[error("the method in `{folder}` is not built", folder = folder.display())]
    #[explain(hint = format!("`tunebox build {}`", folder.display()))]
    NotBuilt {
        /// The folder.
        folder: PathBuf,
    },
    /// A method folder whose source differs from the one its component was built from.
    #[error("the method in `{folder}` has changed since it was built", folder = folder.display())]
    #[explain(hint = format!("`tunebox build {}`", folder.display()))]
    Stale {
        /// The folder.
        folder: PathBuf,
    },
    /// Machine code that an engine compiled from a component. It is never loaded from a package.
    #[error("this is code that was compiled beforehand, not a component")]
    #[explain(
        why = "such code could do anything, so it is only ever taken from this user's own cache",
        hint = "ask for the component that it was made from",
        exit = Sandbox
    )]
    Precompiled,
    /// A component without a manifest, or with an invalid one.
    #[error("the method's manifest is not usable: {problem}")]
    #[explain(hint = BUILD_FOLDER.to_owned())]
    Manifest {
        /// What is wrong with it.
        problem: String,
    },
    /// Any other error, ready to show.
    #[error("{source}")]
    #[explain(source, exit = reason.exit())]
    Explained {
        /// What to show.
        source: Box<Explanation>,
        /// What callers tell apart.
        reason: Reason,
    },
}

/// The part of an [`Error::Explained`] that callers tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The store has no package of that name, version and source.
    NoPackage,
    /// An OCI artifact is of another kind than a package, such as a container image.
    OtherKind,
    /// The package is intact, and its signer was not accepted on this machine.
    UnknownSigner,
    /// A digest, signature, name or version does not match.
    Untrusted,
    /// The package needs another version of the contract, or is no code for the sandbox.
    Sandbox,
    /// A registry does not answer, or the connection breaks: it may succeed later.
    Unreachable,
    /// This machine has no `componentize-py`.
    NoCompiler,
    /// Anything else.
    Other,
}

impl Reason {
    /// Returns the exit code of the program for an error of this reason: `No` for a registry that does not answer,
    /// `Trust` for an unknown signer and for a mismatch, `Sandbox` for [`Reason::Sandbox`], `Usage` for all others.
    fn exit(self) -> Exit {
        match self {
            Self::Unreachable => Exit::No,
            Self::UnknownSigner | Self::Untrusted => Exit::Trust,
            Self::Sandbox => Exit::Sandbox,
            Self::NoPackage | Self::OtherKind | Self::NoCompiler | Self::Other => Exit::Usage,
        }
    }

    /// Makes an [`Error::Explained`] with this reason.
    pub(crate) fn error(self, explanation: Explanation) -> Error {
        Error::Explained { source: Box::new(explanation), reason: self }
    }
}

impl From<wasmparser::BinaryReaderError> for Error {
    /// Makes the error for bytes that are no WebAssembly component.
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::not_component(error.message())
    }
}

impl From<Explanation> for Error {
    /// Makes an [`Error::Explained`] with [`Reason::Other`].
    fn from(explanation: Explanation) -> Self {
        Reason::Other.error(explanation)
    }
}

impl Error {
    /// Returns a function for `map_err` that turns an error of the file system into an [`Error::File`]. `action` is the
    /// operation as a participle, such as `written`; `path` is the file or folder.
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| FileError { action, path, source }.into()
    }

    /// Makes the error for a manifest that cannot be used; `problem` says why.
    pub(crate) fn manifest(problem: impl Into<String>) -> Self {
        Self::Manifest { problem: problem.into() }
    }

    /// Makes the error for bytes that are no WebAssembly component; `problem` says what is wrong with them.
    pub(crate) fn not_component(problem: impl std::fmt::Display) -> Self {
        let what = format!("this is not a WebAssembly component: {problem}");
        Explanation::new("package", what).with_hint(BUILD_FOLDER).into()
    }

    /// Makes the error for a provenance document (the list of what a package was built from) that cannot be made or
    /// read. `problem` says why; its control characters are escaped, and it is cut to about 400 bytes.
    pub(crate) fn provenance(problem: &str) -> Self {
        let what = format!("the list of what the package was built from is not usable: {}", printable(problem, 400));
        Explanation::new("package", what).with_hint("its author can build and pack it again").into()
    }

    /// Whether this error says that the store has no package of the wanted name, version and source.
    pub(crate) fn is_no_package(&self) -> bool {
        matches!(self, Self::Explained { reason: Reason::NoPackage, .. })
    }
}

/// Returns the hint for an unknown `name`: what does the same as a training algorithm of that name, else the nearest
/// known name, else the names of what is built in of that `kind`.
fn suggest_name(name: &str, nearest: Option<&str>, kind: &str) -> String {
    if let Some(counterpart) = find_counterpart(name).filter(|_| kind == "method") {
        return counterpart;
    }
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None if kind == "environment" => "none is built in; a path starts with `./`, `../` or `/`".to_owned(),
        None => {
            let list: &[Builtin] = if kind == "method" { builtin::list() } else { builtin::verifiers() };
            let names: Vec<_> = list.iter().map(|builtin| builtin.name).collect();
            format!("built in: {}; a path starts with `./`, `../` or `/`", names.join(", "))
        }
    }
}
