//! Why a new method's folder is not written.

use std::path::PathBuf;

use tunebox_foundation::explain::Explain;

use super::Language;
use crate::builtin::{self, Builtin};

/// What can be wrong with a new method.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TemplateError {
    /// A name that no manifest can have.
    #[error("a method cannot be called `{name}`")]
    Name {
        /// The name, safe to show.
        name: String,
        /// The good name that it resembles.
        nearest: Option<String>,
    },
    /// A word of the language, its tools or a file system.
    #[error("a method cannot be called `{name}`")]
    Kept {
        /// The name.
        name: String,
        /// What the method is written in.
        language: Language,
    },
    /// The name of a built-in method or verifier.
    #[error("`{name}` is built in")]
    Taken {
        /// The name.
        name: String,
    },
    /// A method in Python was to begin with the source of one in Rust.
    #[error("`{like}` is written in Rust")]
    InRust {
        /// The built-in method.
        like: String,
    },
    /// No built-in method or verifier to begin with.
    #[error("there is no built-in method or verifier `{name}`")]
    NoSource {
        /// What was asked for.
        name: String,
        /// The one that it resembles.
        nearest: Option<String>,
    },
    /// Something is there already.
    #[error("`{path}` exists", path = path.display())]
    Exists {
        /// What it is.
        path: PathBuf,
        /// Whether the files were to come into a folder that exists.
        here: bool,
    },
}

impl Explain for TemplateError {
    fn category(&self) -> &'static str {
        "new"
    }

    fn why(&self) -> Option<String> {
        Some(match self {
            Self::Name { .. } => "names are lower-case words joined by hyphens, as in `calm-dpo`".into(),
            Self::Kept { language: Language::Rust, .. } => {
                "the compiler, cargo or a file system keeps that word for itself".into()
            }
            Self::Kept { language: Language::Python, .. } => {
                "a module of Python or tunebox has that name, or a file system keeps it for itself".into()
            }
            Self::Taken { name } => format!("`--method {name}` would always mean that one"),
            Self::InRust { .. } => "a method in Python cannot begin with its source".into(),
            Self::NoSource { .. } => return None,
            Self::Exists { .. } => "nothing that exists is replaced".into(),
        })
    }

    fn kept(&self) -> Option<String> {
        matches!(self, Self::Exists { .. }).then(|| "all of it: nothing was written".into())
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Name { nearest: Some(nearest), .. } => format!("`tunebox new {nearest}`"),
            Self::Name { nearest: None, .. } | Self::Kept { .. } => "another name, such as `calm-dpo`".into(),
            Self::Taken { name } => {
                format!("another name; `tunebox new my-{name} --like {name}` begins with its source")
            }
            Self::InRust { .. } => "leave `--like` or `--language python` out".into(),
            Self::NoSource { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            Self::NoSource { nearest: None, .. } => {
                let (methods, verifiers) = (names(builtin::list()), names(builtin::verifiers()));
                format!("methods: {methods}; verifiers: {verifiers}")
            }
            Self::Exists { here: false, .. } => {
                "another name, or `--here` in a folder that has none of the files".into()
            }
            Self::Exists { here: true, .. } => "move it away, or leave `--here` out for a new folder".into(),
        })
    }
}

fn names(builtins: &[Builtin]) -> String {
    builtins.iter().map(|builtin| builtin.name).collect::<Vec<_>>().join(", ")
}
