//! What can go wrong in a build, each with what to tell a person.

use std::path::{Path, PathBuf};

use tunebox_foundation::explain::{Explain, Snippet};

use crate::constants::{CONTRACT_PACKAGE, NO_TARGET, TARGET, VERSION};

/// Why a method folder does not become a component.
#[derive(Debug, Clone, thiserror::Error, Explain)]
#[explain(category = "build")]
pub enum BuildError {
    /// A path where no method is.
    #[error("there is no method in `{folder}`", folder = folder.display())]
    #[explain(why = match is_folder {
            false => "there is no such file or folder".to_owned(),
            true => "a method's folder has `Cargo.toml`, or `pyproject.toml`, and the folder `src`".to_owned(),
        }, hint = elsewhere(meant.as_deref(), others))]
    NoMethodHere {
        /// The path.
        folder: PathBuf,
        /// Whether it is a folder at least.
        is_folder: bool,
        /// The folder that was probably meant.
        meant: Option<PathBuf>,
        /// Folders with a method, in it or beside it.
        others: Vec<PathBuf>,
    },
    /// The compiler refuses the source.
    #[error("{message}")]
    #[explain(location = place.clone(), output = output.clone(), hint = explain_codes(codes))]
    Compiler {
        /// What it says first, with the code of that error.
        message: String,
        /// The file, line and column of that.
        place: Option<String>,
        /// All that it says of every error, in its own form, but for the line that is `message`; how many there are.
        output: String,
        /// The codes of the errors, of which the compiler has longer explanations.
        codes: Vec<String>,
    },
    /// Python refuses the source.
    #[error("{message}")]
    #[explain(location = place.clone(), snippet = snippet.as_deref().cloned())]
    Source {
        /// What is wrong.
        message: String,
        /// The file, line and column.
        place: Option<String>,
        /// The line itself.
        snippet: Option<Box<Snippet>>,
    },
    /// The target's standard library is missing.
    #[error("{NO_TARGET}")]
    #[explain(location = format!("cargo build --target {TARGET}"), why = "the toolchain has no standard library for that target", hint = "`tunebox doctor --fix`")]
    NoTarget,
    /// `Cargo.lock` does not agree with `Cargo.toml`.
    #[error("`Cargo.lock` does not fit `Cargo.toml`")]
    #[explain(why = (!missing.is_empty()).then(|| format!("{} is not in it, and not on this machine", quoted(missing))), hint = updating(folder, *offline && !missing.is_empty()))]
    Lock {
        /// The folder.
        folder: PathBuf,
        /// The dependencies that are not in it.
        missing: Vec<String>,
        /// Whether the network was to be left alone.
        offline: bool,
    },
    /// The folder lies in a workspace that does not list it.
    #[error("the workspace around `{folder}` does not list it", folder = folder.display())]
    #[explain(hint = "add an empty `[workspace]` table to its `Cargo.toml`, or list it in that workspace")]
    Workspace {
        /// The folder.
        folder: PathBuf,
    },
    /// A dependency could not be fetched.
    #[error("{} cannot be fetched", named(name.as_deref()))]
    #[explain(why = problem.clone(), hint = "connect once, and leave `--offline` out: a build fetches it from the network; or put the dependencies beside the method with `cargo vendor`")]
    Fetch {
        /// Its name.
        name: Option<String>,
        /// What cargo says.
        problem: String,
    },
    /// The folder wants an SDK that this program does not carry.
    #[error("`{folder}` asks for version `{wanted}` of the SDK", folder = folder.display())]
    #[explain(why = format!("this program carries {VERSION}, which is another"), hint = format!("set `version = \"{VERSION}\"` for `tunebox` in its `Cargo.toml`, or build it with the tunebox of that version"))]
    Sdk {
        /// The folder.
        folder: PathBuf,
        /// The versions that would do.
        wanted: String,
    },
    /// `Cargo.toml` describes no package that can be built.
    #[error("`{folder}` holds no method: {problem}", folder = folder.display())]
    #[explain(hint = "a method folder has a `Cargo.toml` with a package, and `src/lib.rs`")]
    Package {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// `pyproject.toml` describes no method in Python.
    #[error("`{folder}` holds no method: {problem}", folder = folder.display())]
    #[explain(
        hint = "`pyproject.toml` has `[project]` with `name`, `version` and `description`; the name `my-dpo` stands for `src/my_dpo.py`"
    )]
    Project {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// What the source declares makes no manifest.
    #[error("the method's manifest is not usable: {problem}")]
    #[explain(
        hint = "in Rust, `#[setting(…)]` and `method!` declare its content, in Python `setting(…)` and `@method`; name, version and description are those of `Cargo.toml` or `pyproject.toml`"
    )]
    Manifest {
        /// What is wrong with it.
        problem: String,
    },
    /// The crate gives no module.
    #[error("`{folder}` compiles, but to no WebAssembly module", folder = folder.display())]
    #[explain(hint = "`Cargo.toml` needs `[lib]` with `crate-type = [\"cdylib\"]`")]
    NoModule {
        /// The folder.
        folder: PathBuf,
    },
    /// The component would be written over the module that it is made of.
    #[error("the component would be written over its own module, `{path}`", path = path.display())]
    #[explain(hint = "name another file with `--out`")]
    Overwrites {
        /// The file.
        path: PathBuf,
    },
    /// The module has no `method!`.
    #[error("the crate compiles, but it declares no method")]
    #[explain(hint = "`src/lib.rs` ends with `method! {{ Type, shape: \"…\", metrics: […] }}`")]
    NoMethod,
    /// An import that is not in the contract.
    #[error("the method asks for `{import}`, which no host gives")]
    #[explain(why = format!("a method may import `{CONTRACT_PACKAGE}…` and nothing else"), hint = "a dependency brings it in; methods have no files, clock or system randomness")]
    ForeignImport {
        /// The full name.
        import: String,
    },
    /// The module does not become a component.
    #[error("the compiled method does not fit the contract")]
    #[explain(why = problem.clone(), hint = "build it against the SDK of this version of tunebox")]
    Component {
        /// What the encoder says.
        problem: String,
    },
    /// Anything else that cargo says.
    #[error("cargo cannot build `{folder}`", folder = folder.display())]
    #[explain(why = problem.clone(), hint = format!("`cargo check` in `{}` shows all of it", folder.display()))]
    Other {
        /// The folder.
        folder: PathBuf,
        /// What cargo says.
        problem: String,
    },
}

/// The commands that explain the compiler's errors. None: it has no longer explanation of them.
fn explain_codes(codes: &[String]) -> Option<String> {
    let commands: Vec<String> = codes.iter().map(|code| format!("`rustc --explain {code}`")).collect();
    (!commands.is_empty()).then(|| format!("{}: what such an error means", commands.join(", ")))
}

/// Where a method is, if not in the place that was named.
fn elsewhere(meant: Option<&Path>, others: &[PathBuf]) -> String {
    match (meant, others) {
        (Some(meant), _) => format!("did you mean `{}`?", meant.display()),
        (None, []) => "`tunebox new NAME` begins one".to_owned(),
        (None, others) => {
            let others: Vec<String> = others.iter().map(|path| path.display().to_string()).collect();
            format!("methods are in {}; `tunebox new NAME` begins another", quoted(&others))
        }
    }
}

/// How `Cargo.lock` comes to agree with `Cargo.toml`, after which the network is needed once more or not.
fn updating(folder: &Path, again: bool) -> String {
    let without = if again { ", then this without `--offline`" } else { "" };
    format!("`cargo update --workspace` in `{}`, which needs the network{without}", folder.display())
}

/// What could not be fetched.
fn named(dependency: Option<&str>) -> String {
    dependency.map_or("a dependency of the method".to_owned(), |name| format!("the dependency `{name}`"))
}

/// Names as in a sentence.
fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
