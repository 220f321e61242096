//! What can be wrong with a package, each with what to tell a person.

use std::io;
use std::path::PathBuf;

use semver::Version;
use tunebox_foundation::explain::Explain;
use tunebox_foundation::paths;

use crate::artifact::ArtifactError;
use crate::build::BuildError;
use crate::build::python::PythonError;
use crate::builtin::{self, Builtin};
use crate::home::HomeError;
use crate::manifest::CONTRACT;
use crate::pack::PackError;
use crate::reference::NotPulled;
use crate::registry::RegistryError;
use crate::settings::SettingError;
use crate::signature::KeyError;
use crate::store::StoreError;
use crate::template::TemplateError;
use crate::toolchain::ToolchainError;
use crate::trust::{TrustError, TrustFileError};

const NOT_FOUND: &str = "it is neither built in, nor in the store, nor the path of a folder or a `.wasm` file";
const BUILD_FOLDER: &str = "`tunebox build FOLDER` makes a component with a manifest";

/// Why a package cannot be found, read, set up or built.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(category = "package")]
pub enum Error {
    /// A file or folder that the system refuses.
    #[error("cannot {act} `{path}`", path = path.display())]
    #[explain(why = paths::describe_io_error(source), hint = paths::hint_for_io_error(path, source))]
    File {
        /// What was tried, as in "read".
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A lock that another program keeps.
    #[error("another program holds the lock of `{path}` and does not give it free", path = path.display())]
    #[explain(hint = "end that program; `fuser` or `lsof` with that path says which it is")]
    Held {
        /// The file or folder.
        path: PathBuf,
    },
    /// A name that is no built-in method and no path.
    #[error("there is no method `{name}`")]
    #[explain(why = NOT_FOUND.to_owned(), hint = other_name(nearest.as_deref(), builtin::list()))]
    NoMethod {
        /// What was asked for.
        name: String,
        /// The built-in method that it resembles.
        nearest: Option<String>,
    },
    /// A name that is no built-in verifier and no path.
    #[error("there is no verifier `{name}`")]
    #[explain(why = NOT_FOUND.to_owned(), hint = other_name(nearest.as_deref(), builtin::verifiers()))]
    NoVerifier {
        /// What was asked for.
        name: String,
        /// The built-in verifier that it resembles.
        nearest: Option<String>,
    },
    /// A component of the other world.
    #[error("`{name}` is a {found}, a {wanted} is wanted here")]
    #[explain(hint = match *wanted {
            "method" => "a verifier is listed in a `[[verifier]]` of the run file; `[method]` names what trains".to_owned(),
            _ => "a method is named in `[method]`; `[[verifier]]` names a verifier".to_owned(),
        })]
    OtherWorld {
        /// The component's name.
        name: String,
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// A folder of a method that was not built.
    #[error("the method in `{folder}` is not built", folder = folder.display())]
    #[explain(hint = format!("`tunebox build {}`", folder.display()))]
    NotBuilt {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder of a method whose source is newer than its component.
    #[error("the method in `{folder}` has changed since it was built", folder = folder.display())]
    #[explain(hint = format!("`tunebox build {}`", folder.display()))]
    Stale {
        /// The folder.
        folder: PathBuf,
    },
    /// Bytes that are no WebAssembly component.
    #[error("this is not a WebAssembly component: {problem}")]
    #[explain(hint = BUILD_FOLDER.to_owned())]
    NotComponent {
        /// What is wrong with the bytes.
        problem: String,
    },
    /// Code that an engine made of a component: no package may hold it.
    #[error("this is code that was compiled beforehand, not a component")]
    #[explain(why = "such code could do anything, so it is only ever taken from this user's own cache", hint = "ask for the component that it was made from", exit = Sandbox)]
    Precompiled,
    /// A component without a manifest, or with one that cannot be used.
    #[error("the method's manifest is not usable: {problem}")]
    #[explain(hint = BUILD_FOLDER.to_owned())]
    Manifest {
        /// What is wrong with it.
        problem: String,
    },
    /// A component for a version of the contract that this program does not keep.
    #[error("`{name}` needs `tunebox:method@{wants}`, this program keeps {}", CONTRACT)]
    #[explain(category = "sandbox",
        location = "`interface` of its manifest, found before anything ran",
        why = match problem {
            Some(problem) => format!("its manifest says more: {problem}"),
            None => format!("a version that is not {}.{}.x is another contract, with functions of its own", CONTRACT.major, CONTRACT.minor),
        },
        hint = match *wants > CONTRACT {
            true => format!("a newer tunebox may keep it, `tunebox --version` tells which this is; or its author builds it for {CONTRACT}"),
            false => "its author can build it again with the SDK of this version".to_owned(),
        },
        exit = Sandbox)]
    OtherVersion {
        /// The component's name.
        name: String,
        /// The version.
        wants: Version,
        /// What this program does not understand, where the version alone would do.
        problem: Option<String>,
    },
    /// A value that a setting cannot take.
    #[error(transparent)]
    #[explain(source)]
    Setting(#[from] SettingError),
    /// A method folder that cannot be built.
    #[error(transparent)]
    #[explain(source)]
    Build(#[from] BuildError),
    /// A method in Python that does not become a component.
    #[error(transparent)]
    #[explain(source)]
    Python(#[from] PythonError),
    /// A new method that cannot be begun.
    #[error(transparent)]
    #[explain(source)]
    Template(#[from] TemplateError),
    /// No way to compile methods here.
    #[error(transparent)]
    #[explain(source)]
    Toolchain(#[from] ToolchainError),
    /// An artifact that is no package, or another one.
    #[error(transparent)]
    #[explain(source)]
    Artifact(#[from] ArtifactError),
    /// A store without the package, or with a damaged one.
    #[error(transparent)]
    #[explain(source)]
    Store(#[from] StoreError),
    /// A registry that gives or takes nothing.
    #[error(transparent)]
    #[explain(source)]
    Registry(#[from] RegistryError),
    /// A component that makes no package.
    #[error(transparent)]
    #[explain(source)]
    Pack(#[from] PackError),
    /// A key that cannot be made or used.
    #[error(transparent)]
    #[explain(source)]
    Key(#[from] KeyError),
    /// A package that is not to be trusted.
    #[error(transparent)]
    #[explain(source)]
    Trust(#[from] TrustError),
    /// What says who is to be trusted, and cannot be read.
    #[error(transparent)]
    #[explain(source)]
    TrustFile(#[from] TrustFileError),
    /// A package of a registry that was not pulled.
    #[error(transparent)]
    #[explain(source)]
    NotPulled(#[from] NotPulled),
    /// No folder to keep packages in.
    #[error(transparent)]
    #[explain(source)]
    Home(#[from] HomeError),
}

impl Error {
    /// An error of the file system, for `map_err`.
    pub(crate) fn file(act: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { act, path, source }
    }

    /// A manifest that cannot be used.
    pub(crate) fn manifest(problem: impl Into<String>) -> Self {
        Self::Manifest { problem: problem.into() }
    }
}

/// A built-in name that is like an unknown one, or all of them.
fn other_name(nearest: Option<&str>, builtins: &[Builtin]) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => {
            let names: Vec<_> = builtins.iter().map(|builtin| builtin.name).collect();
            format!("built in: {}; a path starts with `./`, `../` or `/`", names.join(", "))
        }
    }
}
