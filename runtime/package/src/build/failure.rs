//! What can go wrong in a build, read from cargo's answer and put into our words.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tunebox_compute::explain::{Explain, Snippet};

use crate::component::CONTRACT;
use crate::sources::VERSION;
use crate::toolchain::TARGET;

/// Why a method folder does not become a component.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BuildError {
    /// The compiler refuses the source.
    #[error("{message}")]
    Source {
        /// What the compiler says.
        message: String,
        /// The file and line.
        place: Option<String>,
        /// The line itself.
        snippet: Option<Box<Snippet>>,
        /// The compiler's own advice.
        advice: Option<String>,
    },
    /// The target's standard library is missing.
    #[error("no WebAssembly target for this Rust")]
    NoTarget,
    /// `Cargo.lock` does not agree with `Cargo.toml`.
    #[error("`Cargo.lock` does not fit `Cargo.toml`")]
    Lock {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder lies in a workspace that does not list it.
    #[error("the workspace around `{folder}` does not list it", folder = folder.display())]
    Workspace {
        /// The folder.
        folder: PathBuf,
    },
    /// A dependency could not be fetched.
    #[error("a dependency of the method cannot be fetched")]
    Fetch {
        /// What cargo says.
        problem: String,
    },
    /// The folder wants an SDK that this program does not carry.
    #[error("`{folder}` asks for version `{wanted}` of the SDK", folder = folder.display())]
    Sdk {
        /// The folder.
        folder: PathBuf,
        /// The versions that would do.
        wanted: String,
    },
    /// `Cargo.toml` describes no package that can be built.
    #[error("`{folder}` holds no method: {problem}", folder = folder.display())]
    Package {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// `pyproject.toml` describes no method in Python.
    #[error("`{folder}` holds no method: {problem}", folder = folder.display())]
    Project {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The crate gives no module.
    #[error("`{folder}` compiles, but to no WebAssembly module", folder = folder.display())]
    NoModule {
        /// The folder.
        folder: PathBuf,
    },
    /// The component would be written over the module that it is made of.
    #[error("the component would be written over its own module, `{path}`", path = path.display())]
    Overwrites {
        /// The file.
        path: PathBuf,
    },
    /// The module has no `method!`.
    #[error("the crate compiles, but it declares no method")]
    NoMethod,
    /// An import that is not in the contract.
    #[error("the method asks for `{import}`, which no host gives")]
    ForeignImport {
        /// The full name.
        import: String,
    },
    /// The module does not become a component.
    #[error("the compiled method does not fit the contract")]
    Component {
        /// What the encoder says.
        problem: String,
    },
    /// Anything else that cargo says.
    #[error("cargo cannot build `{folder}`", folder = folder.display())]
    Other {
        /// The folder.
        folder: PathBuf,
        /// What cargo says.
        problem: String,
    },
}

impl Explain for BuildError {
    fn area(&self) -> &'static str {
        "build"
    }

    fn place(&self) -> Option<String> {
        match self {
            Self::Source { place, .. } => place.clone(),
            Self::NoTarget => Some(format!("cargo build --target {TARGET}")),
            _ => None,
        }
    }

    fn snippet(&self) -> Option<Snippet> {
        match self {
            Self::Source { snippet, .. } => snippet.as_deref().cloned(),
            _ => None,
        }
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::NoTarget => Some("the toolchain has no standard library for that target".into()),
            Self::Fetch { problem } | Self::Component { problem } | Self::Other { problem, .. } => {
                Some(problem.clone())
            }
            Self::Sdk { .. } => Some(format!("this program carries {VERSION}, which is another")),
            Self::ForeignImport { .. } => Some(format!("a method may import `{CONTRACT}…` and nothing else")),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Source { advice, .. } => return advice.clone(),
            Self::NoTarget => "`tunebox doctor --fix`".to_owned(),
            Self::Lock { folder } => format!("`cargo update --workspace` in `{}`", folder.display()),
            Self::Sdk { .. } => format!(
                "set `version = \"{VERSION}\"` for `tunebox` in its `Cargo.toml`, or build it with the tunebox of that version"
            ),
            Self::Workspace { .. } => {
                "add an empty `[workspace]` table to its `Cargo.toml`, or list it in that workspace".into()
            }
            Self::Fetch { .. } => "connect once, or put the dependencies beside the method with `cargo vendor`".into(),
            Self::Package { .. } => "a method folder has a `Cargo.toml` with a package, and `src/lib.rs`".into(),
            Self::Project { .. } => {
                "`pyproject.toml` has `[project]` with `name`, `version` and `description`; the name `my-dpo` stands \
                 for `src/my_dpo.py`"
                    .into()
            }
            Self::NoModule { .. } => "`Cargo.toml` needs `[lib]` with `crate-type = [\"cdylib\"]`".into(),
            Self::Overwrites { .. } => "name another file with `--out`".into(),
            Self::NoMethod => "`src/lib.rs` ends with `method! { Type, shape: \"…\", metrics: […] }`".into(),
            Self::ForeignImport { .. } => {
                "a dependency brings it in; methods have no files, clock or system randomness".into()
            }
            Self::Component { .. } => "build it against the SDK of this version of tunebox".into(),
            Self::Other { folder, .. } => {
                format!("`cargo check` in `{}` shows all of it", folder.display())
            }
        };
        Some(hint)
    }
}

/// What cargo says when it cannot get at a registry, or was told not to.
const OFFLINE: [&str; 6] = [
    "failed to download",
    "failed to get `",
    "Could not resolve host",
    "Could not connect",
    "download of ",
    "you're using offline mode",
];

/// Cargo's messages, one a line; lines that are none are left out.
pub(super) fn messages(output: &[u8]) -> impl Iterator<Item = Value> {
    output.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

/// The error behind a cargo that did not succeed.
pub(super) fn explain(folder: &Path, output: &Output) -> BuildError {
    let (folder, words) = (folder.to_owned(), String::from_utf8_lossy(&output.stderr));
    let first = messages(&output.stdout).find_map(|message| diagnostic(message.get("message")?));
    let has = |texts: &[&str]| texts.iter().any(|text| words.contains(text));
    match first {
        Some(BuildError::Source { message, .. }) if is_missing_library(&message) => BuildError::NoTarget,
        Some(error) => error,
        None if is_missing_library(&words) => BuildError::NoTarget,
        None if has(&["because --locked was passed", "lock file needs to be updated"]) => BuildError::Lock { folder },
        None if has(&["believes it's in a workspace"]) => BuildError::Workspace { folder },
        None if has(&OFFLINE) => BuildError::Fetch { problem: last_words(&words) },
        None => BuildError::Other { folder, problem: last_words(&words) },
    }
}

/// A compiler that has no standard library for the target says it in one of these ways.
fn is_missing_library(text: &str) -> bool {
    let library =
        ["`core`", "`std`", "`alloc`"].iter().any(|name| text.contains(&format!("can't find crate for {name}")));
    library || text.contains("target may not be installed")
}

/// A compiler's error with its first place.
fn diagnostic(message: &Value) -> Option<BuildError> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    if text(message, "level")? != "error" {
        return None;
    }
    let spans = message.get("spans").and_then(Value::as_array);
    let span = spans.into_iter().flatten().find(|span| span.get("is_primary") == Some(&Value::Bool(true)));
    let number = |key: &str| span.and_then(|span| span.get(key)).and_then(Value::as_u64).unwrap_or(0) as usize;
    let (line, column, end) = (number("line_start"), number("column_start"), number("column_end"));
    let place = span.and_then(|span| text(span, "file_name")).map(|file| format!("{file}:{line}:{column}"));
    let snippet = span.and_then(|span| span.get("text")?.get(0)).and_then(|first| text(first, "text")).map(|source| {
        let width = if number("line_end") == line { end.saturating_sub(column) } else { 0 };
        Snippet { line, text: source, column, width: width.max(1), note: span.and_then(|span| text(span, "label")) }
    });
    let children = || message.get("children").and_then(Value::as_array).into_iter().flatten();
    let child = |level: &str| children().find(|child| text(child, "level").as_deref() == Some(level));
    let advice = child("help").or_else(|| child("note"));
    Some(BuildError::Source {
        message: text(message, "message")?,
        place,
        snippet: snippet.map(Box::new),
        advice: advice.and_then(|child| text(child, "message")),
    })
}

/// The last error of a program's words, in one line.
fn last_words(words: &str) -> String {
    let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let start = lines.iter().position(|line| line.starts_with("error")).unwrap_or(lines.len().saturating_sub(1));
    let tail: Vec<&str> = lines[start..].iter().filter(|line| **line != "Caused by:").take(4).copied().collect();
    tail.join(": ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests;
