//! Errors of a store, and of searches in it. Each names the folder, unless that is this user's own store.

use std::path::Path;

use tunebox_foundation::explain::Explanation;

use super::Wanted;
use crate::Error;
use crate::error::Reason;

/// How many packages a message lists.
const MAX_LISTED: usize = 12;

/// Makes the error for a package that is not in the store or folder. `there` lists the packages of the wanted name, or
/// all of a folder that has none of it; `nearest` is a name that resembles the wanted one; `folder` is `None` for this
/// user's own store.
pub(crate) fn no_package(wanted: Wanted<'_>, nearest: Option<&str>, there: &[String], folder: Option<&Path>) -> Error {
    let package = match (wanted.name.unwrap_or_default(), wanted.version) {
        ("", _) => String::new(),
        (name, Some(version)) => format!("`{name}@{version}` "),
        (name, None) => format!("`{name}` "),
    };
    let begin = if folder.is_some() { "there are" } else { "here are" };
    let hint = match (nearest, folder) {
        (Some(nearest), _) => format!("did you mean `{nearest}`?"),
        (None, Some(folder)) => name_package_hint(folder, there),
        (None, None) => {
            "`tunebox list` shows what is here, `tunebox pull` fetches, as in `registry.example/me/calm:0.1.0`".into()
        }
    };
    let what = format!("there is no package {package}{}", folder_phrase(folder));
    let why = (!there.is_empty()).then(|| format!("{begin}: {}", join_listed(there, ", ")));
    Reason::NoPackage.error(Explanation { why, ..Explanation::new("package", what).with_hint(hint) })
}

/// Makes the error for a search that several packages match, which `there` lists. `name` is the wanted name, empty if
/// none was given; `folder` is `None` for this user's own store.
pub(crate) fn ambiguous(name: &str, there: &[String], folder: Option<&Path>) -> Error {
    let place = folder_phrase(folder);
    let what = match name {
        "" => format!("there are several packages {place}"),
        name => format!("`{name}` is the name of several packages {place}"),
    };
    let hint = folder.map_or_else(
        || "say which: its version, its whole name with the registry, or a path that begins with `./`".to_owned(),
        |folder| name_package_hint(folder, there),
    );
    let why = format!("it could be {}", join_listed(there, " or "));
    Explanation::new("package", what).with_why(why).with_hint(hint).into()
}

/// Makes the error for a file of a package that is missing or has other bytes than were stored. `part` names the file
/// in the message, such as `manifest`; `why` is the line below it. `folder` is the folder of packages that was
/// searched, `None` for this user's own store.
pub(super) fn damaged(part: &str, path: &Path, why: impl Into<String>, folder: Option<&Path>) -> Error {
    let expected = if folder.is_some() { "its folder names" } else { "was kept" };
    let what = format!("the {part} is not what {expected}");
    untrusted(Explanation::new("trust", what).with_location(path.display().to_string()).with_why(why), folder)
}

/// Makes the error for an index that calls a package `named`, while the package calls itself `found`. `folder` is
/// `None` for this user's own store.
pub(super) fn name_mismatch_error(named: &str, found: &str, folder: Option<&Path>) -> Error {
    let what = format!("the index says `{named}`, the package itself says `{found}`");
    let why = "the index was changed by hand, or by another program";
    untrusted(Explanation::new("trust", what).with_why(why), folder)
}

/// Makes the error for a folder that is no image layout; `problem` says why.
pub(super) fn not_layout(folder: &Path, problem: impl Into<String>) -> Error {
    let error = Explanation::new("package", format!("`{}` holds no packages", folder.display())).with_why(problem);
    error.with_hint("name a folder that `tunebox push FILE FOLDER` wrote, or an empty one").into()
}

/// Turns the explanation of a damaged package into an error, with the hint how to get the package again. `folder` is
/// `None` for this user's own store.
fn untrusted(error: Explanation, folder: Option<&Path>) -> Error {
    let (kept, hint) = match folder {
        Some(_) => (
            "nothing was installed and nothing ran",
            "it was changed on the way, or its disk fails: get the folder again from its author",
        ),
        None => ("nothing ran", "`tunebox pull` it again, which replaces the file; if it repeats, check the disk"),
    };
    Reason::Untrusted.error(error.with_kept(kept).with_hint(hint))
}

/// Returns "in `FOLDER`", or "here" for this user's own store.
fn folder_phrase(folder: Option<&Path>) -> String {
    folder.map_or_else(|| "here".to_owned(), |folder| format!("in `{}`", folder.display()))
}

/// Joins the first 12 packages of a list with `between`, and adds how many more there are.
fn join_listed(there: &[String], between: &str) -> String {
    let shown = there[..there.len().min(MAX_LISTED)].join(between);
    match there.len().saturating_sub(MAX_LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns the hint how to name a package of a folder, or how to put one there if `there` is empty.
fn name_package_hint(folder: &Path, there: &[String]) -> String {
    let folder = folder.display();
    match there.last() {
        Some(one) => format!("name one of them, as in `tunebox pull {folder}//{one}`"),
        None => format!("`tunebox push FILE {folder}` puts one there"),
    }
}
