//! Errors of a store, or of what is asked of it. Each names the folder, unless that is this user's own store.

use std::path::Path;

use tunebox_foundation::explain::Explanation;

use super::Wanted;
use crate::Error;
use crate::error::Reason;

/// How many packages a message lists.
const MOST_LISTED: usize = 12;

/// No package has the wanted name and version. `there` lists the packages of that name, or all of a folder that has none
/// of it; `nearest` is a name that resembles the wanted one.
pub(crate) fn no_package(wanted: Wanted<'_>, nearest: Option<&str>, there: &[String], folder: Option<&Path>) -> Error {
    let package = match (wanted.name.unwrap_or_default(), wanted.version) {
        ("", _) => String::new(),
        (name, Some(version)) => format!("`{name}@{version}` "),
        (name, None) => format!("`{name}` "),
    };
    let begin = if folder.is_some() { "there are" } else { "here are" };
    let hint = match (nearest, folder) {
        (Some(nearest), _) => format!("did you mean `{nearest}`?"),
        (None, Some(folder)) => name_one(folder, there),
        (None, None) => {
            "`tunebox list` shows what is here, `tunebox pull` fetches, as in `registry.example/me/calm:0.1.0`".into()
        }
    };
    let what = format!("there is no package {package}{}", place(folder));
    let why = (!there.is_empty()).then(|| format!("{begin}: {}", listed(there, ", ")));
    Reason::NoPackage.error(Explanation { why, ..Explanation::new("package", what).with_hint(hint) })
}

/// Several packages fit and none is preferred: those of `there`. The name is empty where none was given.
pub(crate) fn ambiguous(name: &str, there: &[String], folder: Option<&Path>) -> Error {
    let place = place(folder);
    let what = match name {
        "" => format!("there are several packages {place}"),
        name => format!("`{name}` is the name of several packages {place}"),
    };
    let hint = folder.map_or_else(
        || "say which: its version, its whole name with the registry, or a path that begins with `./`".to_owned(),
        |folder| name_one(folder, there),
    );
    let why = format!("it could be {}", listed(there, " or "));
    Explanation::new("package", what).with_why(why).with_hint(hint).into()
}

/// A file is missing or does not have the bytes that were stored; `part` is the part of the package.
pub(super) fn damaged(part: &str, path: &Path, why: impl Into<String>, folder: Option<&Path>) -> Error {
    let expected = if folder.is_some() { "its folder names" } else { "was kept" };
    let what = format!("the {part} is not what {expected}");
    untrusted(Explanation::new("trust", what).with_location(path.display().to_string()).with_why(why), folder)
}

/// The index calls a package by the name of another one.
pub(super) fn mislabelled(named: &str, found: &str, folder: Option<&Path>) -> Error {
    let what = format!("the index says `{named}`, the package itself says `{found}`");
    let why = "the index was changed by hand, or by another program";
    untrusted(Explanation::new("trust", what).with_why(why), folder)
}

/// A folder that is no image layout.
pub(super) fn not_layout(folder: &Path, problem: impl Into<String>) -> Error {
    let error = Explanation::new("package", format!("`{}` holds no packages", folder.display())).with_why(problem);
    error.with_hint("name a folder that `tunebox push FILE FOLDER` wrote, or an empty one").into()
}

/// Adds to an error what a damaged package did not do, and how to replace it.
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

fn place(folder: Option<&Path>) -> String {
    folder.map_or_else(|| "here".to_owned(), |folder| format!("in `{}`", folder.display()))
}

/// The first packages of a list, and how many more there are.
fn listed(there: &[String], between: &str) -> String {
    let shown = there[..there.len().min(MOST_LISTED)].join(between);
    match there.len().saturating_sub(MOST_LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// How to name a package of a folder.
fn name_one(folder: &Path, there: &[String]) -> String {
    let folder = folder.display();
    match there.last() {
        Some(one) => format!("name one of them, as in `tunebox pull {folder}//{one}`"),
        None => format!("`tunebox push FILE {folder}` puts one there"),
    }
}
