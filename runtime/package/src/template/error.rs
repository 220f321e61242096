//! Why a new method's folder is not written.

use std::path::PathBuf;

use tunebox_foundation::explain::Explain;

use super::Language;
use crate::builtin::{self, Builtin};

const ANOTHER_NAME: &str = "another name, such as `calm-dpo`";

/// What can be wrong with a new method.
#[derive(Debug, Clone, thiserror::Error, Explain)]
#[explain(category = "new")]
pub enum TemplateError {
    /// A name that no manifest can have.
    #[error("a method cannot be called `{name}`")]
    #[explain(why = "names are lower-case words joined by hyphens, as in `calm-dpo`", hint = nearest.as_ref().map_or(ANOTHER_NAME.to_owned(), |nearest| format!("`tunebox new {nearest}`")))]
    Name {
        /// The name, safe to show.
        name: String,
        /// The good name that it resembles.
        nearest: Option<String>,
    },
    /// A word of the language, its tools or a file system.
    #[error("a method cannot be called `{name}`")]
    #[explain(why = match language {
            Language::Rust => "the compiler, cargo or a file system keeps that word for itself".to_owned(),
            Language::Python => "a module of Python or tunebox has that name, or a file system keeps it for itself".to_owned(),
        }, hint = ANOTHER_NAME.to_owned())]
    Kept {
        /// The name.
        name: String,
        /// What the method is written in.
        language: Language,
    },
    /// The name of a built-in method or verifier.
    #[error("`{name}` is built in")]
    #[explain(
        why = "`--method {name}` would always mean that one",
        hint = "another name; `tunebox new my-{name} --like {name}` begins with its source"
    )]
    Taken {
        /// The name.
        name: String,
    },
    /// A method in Python was to begin with the source of one in Rust.
    #[error("`{like}` is written in Rust")]
    #[explain(
        why = "a method in Python cannot begin with its source",
        hint = "leave `--like` or `--language python` out"
    )]
    InRust {
        /// The built-in method.
        like: String,
    },
    /// No built-in method or verifier to begin with.
    #[error("there is no built-in method or verifier `{name}`")]
    #[explain(hint = list_sources(nearest.as_deref()))]
    NoSource {
        /// What was asked for.
        name: String,
        /// The one that it resembles.
        nearest: Option<String>,
    },
    /// Something is there already.
    #[error("`{path}` exists", path = path.display())]
    #[explain(why = "nothing that exists is replaced", kept = "all of it: nothing was written", hint = match here {
            false => "another name, or `--here` in a folder that has none of the files".to_owned(),
            true => "move it away, or leave `--here` out for a new folder".to_owned(),
        })]
    Exists {
        /// What it is.
        path: PathBuf,
        /// Whether the files were to come into a folder that exists.
        here: bool,
    },
}

/// The built-in sources to begin with, or the nearest of them.
fn list_sources(nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("methods: {}; verifiers: {}", names(builtin::list()), names(builtin::verifiers())),
    }
}

fn names(builtins: &[Builtin]) -> String {
    builtins.iter().map(|builtin| builtin.name).collect::<Vec<_>>().join(", ")
}
