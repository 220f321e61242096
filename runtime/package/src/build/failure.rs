//! Errors that several parts of a build return.

use std::path::Path;

use tunebox_foundation::explain::Explanation;

use crate::Error;
use crate::digest::is_python;
use crate::toolchain;

/// Makes an error of the category `build` from what happened and what to do.
pub(super) fn build_error(what: impl Into<String>, hint: impl Into<String>) -> Error {
    Explanation::new("build", what).with_hint(hint).into()
}

/// Makes an error of the category `build` from what happened, why, and what to do.
pub(super) fn build_error_because(what: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Error {
    Explanation::new("build", what).with_why(why).with_hint(hint).into()
}

/// Makes the error for a folder whose `Cargo.toml` or `pyproject.toml` describes no method that can be built; `problem`
/// says why.
pub(super) fn no_method_error(folder: &Path, problem: &str) -> Error {
    let hint = if is_python(folder) {
        "`pyproject.toml` has `[project]` with `name`, `version` and `description`; the name `my-dpo` stands for \
         `src/my_dpo.py`"
    } else {
        "a method folder has a `Cargo.toml` with a package, and `src/lib.rs`"
    };
    build_error(format!("`{}` holds no method: {problem}", folder.display()), hint)
}

/// Makes the error for a source whose declarations make no valid manifest; `problem` says why.
pub(super) fn unusable_manifest(problem: &str) -> Error {
    let declared = "in Rust, `#[setting(…)]` and `method!` declare its content, in Python `setting(…)` and `@method`";
    let hint = format!("{declared}; name, version and description are those of `Cargo.toml` or `pyproject.toml`");
    build_error(format!("the method's manifest is not usable: {problem}"), hint)
}

/// Makes the error for a Rust without the standard library of the target.
pub(super) fn no_library() -> Error {
    toolchain::no_target("the toolchain has no standard library for that target", "`tunebox doctor --fix`")
}

/// Joins names with commas, each between backticks.
pub(super) fn quote(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
