//! What can be wrong with a package, each with what to tell a person.

use std::io;
use std::path::PathBuf;

use semver::Version;
use tunebox_foundation::explain::{Exit, Explain, Snippet};
use tunebox_foundation::paths;

use crate::artifact::ArtifactError;
use crate::build::BuildError;
use crate::build::python::PythonError;
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

/// Why a package cannot be found, read, set up or built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder that the system refuses.
    #[error("cannot {act} `{path}`", path = path.display())]
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
    Held {
        /// The file or folder.
        path: PathBuf,
    },
    /// A name that is no built-in method and no path.
    #[error("there is no method `{name}`")]
    NoMethod {
        /// What was asked for.
        name: String,
        /// The built-in method that it resembles.
        nearest: Option<String>,
    },
    /// A name that is no built-in verifier and no path.
    #[error("there is no verifier `{name}`")]
    NoVerifier {
        /// What was asked for.
        name: String,
        /// The built-in verifier that it resembles.
        nearest: Option<String>,
    },
    /// A component of the other world.
    #[error("`{name}` is a {found}, a {wanted} is wanted here")]
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
    NotBuilt {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder of a method whose source is newer than its component.
    #[error("the method in `{folder}` has changed since it was built", folder = folder.display())]
    Stale {
        /// The folder.
        folder: PathBuf,
    },
    /// Bytes that are no WebAssembly component.
    #[error("this is not a WebAssembly component: {problem}")]
    NotComponent {
        /// What is wrong with the bytes.
        problem: String,
    },
    /// Code that an engine made of a component: no package may hold it.
    #[error("this is code that was compiled beforehand, not a component")]
    Precompiled,
    /// A component without a manifest, or with one that cannot be used.
    #[error("the method's manifest is not usable: {problem}")]
    Manifest {
        /// What is wrong with it.
        problem: String,
    },
    /// A component for a version of the contract that this program does not keep.
    #[error("`{name}` needs `tunebox:method@{wants}`, this program keeps {}", CONTRACT)]
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
    Setting(#[from] SettingError),
    /// A method folder that cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A method in Python that does not become a component.
    #[error(transparent)]
    Python(#[from] PythonError),
    /// A new method that cannot be begun.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// No way to compile methods here.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// An artifact that is no package, or another one.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// A store without the package, or with a damaged one.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A registry that gives or takes nothing.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A component that makes no package.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A key that cannot be made or used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A package that is not to be trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// What says who is to be trusted, and cannot be read.
    #[error(transparent)]
    TrustFile(#[from] TrustFileError),
    /// A package of a registry that was not pulled.
    #[error(transparent)]
    NotPulled(#[from] NotPulled),
    /// No folder to keep packages in.
    #[error(transparent)]
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

    /// The error that explains itself, where this one only carries it.
    fn inner(&self) -> Option<&dyn Explain> {
        match self {
            Self::Setting(error) => Some(error),
            Self::Build(error) => Some(error),
            Self::Python(error) => Some(error),
            Self::Template(error) => Some(error),
            Self::Toolchain(error) => Some(error),
            Self::Artifact(error) => Some(error),
            Self::Store(error) => Some(error),
            Self::Registry(error) => Some(error),
            Self::Pack(error) => Some(error),
            Self::Key(error) => Some(error),
            Self::Trust(error) => Some(error),
            Self::TrustFile(error) => Some(error),
            Self::NotPulled(error) => Some(error),
            Self::Home(error) => Some(error),
            _ => None,
        }
    }
}

impl Explain for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::OtherVersion { .. } => "sandbox",
            other => other.inner().map_or("package", Explain::category),
        }
    }

    fn location(&self) -> Option<String> {
        match self {
            Self::OtherVersion { .. } => Some("`interface` of its manifest, found before anything ran".into()),
            other => other.inner().and_then(Explain::location),
        }
    }

    fn snippet(&self) -> Option<Snippet> {
        self.inner().and_then(Explain::snippet)
    }

    fn output(&self) -> Option<String> {
        self.inner().and_then(Explain::output)
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::File { source, .. } => Some(paths::describe_io_error(source)),
            Self::OtherVersion { problem: Some(problem), .. } => Some(format!("its manifest says more: {problem}")),
            Self::OtherVersion { problem: None, .. } => Some(format!(
                "a version that is not {}.{}.x is another contract, with functions of its own",
                CONTRACT.major, CONTRACT.minor
            )),
            Self::Precompiled => {
                Some("such code could do anything, so it is only ever taken from this user's own cache".into())
            }
            Self::NoMethod { .. } | Self::NoVerifier { .. } => {
                Some("it is neither built in, nor in the store, nor the path of a folder or a `.wasm` file".into())
            }
            _ => self.inner().and_then(Explain::why),
        }
    }

    fn kept(&self) -> Option<String> {
        self.inner().and_then(Explain::kept)
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoMethod { nearest: Some(nearest), .. } | Self::NoVerifier { nearest: Some(nearest), .. } => {
                Some(format!("did you mean `{nearest}`?"))
            }
            Self::NoVerifier { nearest: None, .. } => {
                let known: Vec<_> = crate::builtin::verifiers().iter().map(|verifier| verifier.name).collect();
                Some(format!("built in: {}; a path starts with `./`, `../` or `/`", known.join(", ")))
            }
            Self::OtherWorld { wanted: "method", .. } => {
                Some("a verifier stands in a `[[verifier]]` of the run file; `[method]` names what trains".into())
            }
            Self::OtherWorld { .. } => Some("a method stands in `[method]`; `[[verifier]]` names what judges".into()),
            Self::NoMethod { nearest: None, .. } => {
                let known: Vec<_> = crate::builtin::list().iter().map(|method| method.name).collect();
                Some(format!("built in: {}; a path starts with `./`, `../` or `/`", known.join(", ")))
            }
            Self::File { path, source, .. } => paths::hint_for_io_error(path, source),
            Self::Held { .. } => Some("end that program; `fuser` or `lsof` with that path says which it is".into()),
            Self::NotBuilt { folder } | Self::Stale { folder } => Some(format!("`tunebox build {}`", folder.display())),
            Self::OtherVersion { wants, .. } if *wants > CONTRACT => Some(format!(
                "a newer tunebox may keep it, `tunebox --version` tells which this is; or its author builds it for {CONTRACT}"
            )),
            Self::OtherVersion { .. } => Some("its author can build it again with the SDK of this version".into()),
            Self::Precompiled => Some("ask for the component that it was made from".into()),
            Self::Manifest { .. } | Self::NotComponent { .. } => {
                Some("`tunebox build FOLDER` makes a component with a manifest".into())
            }
            _ => self.inner().and_then(Explain::hint),
        }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Precompiled | Self::OtherVersion { .. } => Exit::Sandbox,
            other => other.inner().map_or(Exit::Usage, Explain::exit),
        }
    }
}
