//! What can be wrong with a store, or with what is asked of it.

use std::path::{Path, PathBuf};

use tunebox_foundation::explain::Explain;

/// How many packages a message lists.
const MOST_LISTED: usize = 12;

/// Why a store does not give a package. Each says of which folder; none is named where it is this user's own store.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(category = "package")]
pub enum StoreError {
    /// No package of that name, or not of that version.
    #[error("{}", absent(name, version.as_deref(), folder.as_deref()))]
    #[explain(why = list_existing(there, folder.is_some()), hint = other_package(nearest.as_deref(), there, folder.as_deref()))]
    NoPackage {
        /// What was asked for; empty for any.
        name: String,
        /// The version that was asked for.
        version: Option<String>,
        /// The package that it resembles.
        nearest: Option<String>,
        /// The packages of that name; in a folder that has none, all that it has.
        there: Vec<String>,
        /// The folder.
        folder: Option<PathBuf>,
    },
    /// Several packages of which none is the obvious one.
    #[error("{}", ambiguous(name, folder.as_deref()))]
    #[explain(why = format!("it could be {}", listed(there, " or ")), hint = match folder { Some(folder) => name_one(folder, there), None => "say which: its version, its whole name with the registry, or a path that begins with `./`".to_owned() })]
    Ambiguous {
        /// What was asked for; empty for any.
        name: String,
        /// What it could be.
        there: Vec<String>,
        /// The folder.
        folder: Option<PathBuf>,
    },
    /// A file that is not what was kept in it.
    #[error("the {what} is not what {}", expected(folder.as_deref()))]
    #[explain(category = "trust", location = path.display().to_string(), why = why.clone(), kept = kept(folder.as_deref()).to_owned(), hint = restore(folder.as_deref()).to_owned(), exit = Trust)]
    Damaged {
        /// The part of the package.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// The folder.
        folder: Option<PathBuf>,
    },
    /// The index calls a package by the name of another one.
    #[error("the index says `{named}`, the package itself says `{found}`")]
    #[explain(category = "trust", why = "the index was changed by hand, or by another program", kept = kept(folder.as_deref()).to_owned(), hint = restore(folder.as_deref()).to_owned(), exit = Trust)]
    Mislabelled {
        /// What the index says.
        named: String,
        /// What the package says.
        found: String,
        /// The folder.
        folder: Option<PathBuf>,
    },
    /// A folder that is no image layout.
    #[error("`{folder}` holds no packages", folder = folder.display())]
    #[explain(why = problem.clone(), hint = "name a folder that `tunebox push FILE FOLDER` wrote, or an empty one")]
    NotLayout {
        /// The folder.
        folder: PathBuf,
        /// What is missing or wrong.
        problem: String,
    },
}

fn absent(name: &str, version: Option<&str>, folder: Option<&Path>) -> String {
    let place = place(folder);
    match (name, version) {
        ("", _) => format!("there is no package {place}"),
        (name, Some(version)) => format!("there is no package `{name}@{version}` {place}"),
        (name, None) => format!("there is no package `{name}` {place}"),
    }
}

fn ambiguous(name: &str, folder: Option<&Path>) -> String {
    let place = place(folder);
    if name.is_empty() {
        format!("there are several packages {place}")
    } else {
        format!("`{name}` is the name of several packages {place}")
    }
}

fn expected(folder: Option<&Path>) -> &'static str {
    if folder.is_some() { "its folder names" } else { "was kept" }
}

fn place(folder: Option<&Path>) -> String {
    folder.map_or_else(|| "here".to_owned(), |folder| format!("in `{}`", folder.display()))
}

/// The first of many, and how many more there are.
fn listed(there: &[String], between: &str) -> String {
    let shown = there[..there.len().min(MOST_LISTED)].join(between);
    match there.len().saturating_sub(MOST_LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The packages that exist, unless there are none.
fn list_existing(there: &[String], is_folder: bool) -> Option<String> {
    let begin = if is_folder { "there are" } else { "here are" };
    (!there.is_empty()).then(|| format!("{begin}: {}", listed(there, ", ")))
}

/// What to do about a missing package.
fn other_package(nearest: Option<&str>, there: &[String], folder: Option<&Path>) -> String {
    match (nearest, folder) {
        (Some(nearest), _) => format!("did you mean `{nearest}`?"),
        (None, Some(folder)) => name_one(folder, there),
        (None, None) => {
            "`tunebox list` shows what is here, `tunebox pull` fetches, as in `registry.example/me/calm:0.1.0`".into()
        }
    }
}

/// How a package of a folder is named.
fn name_one(folder: &Path, there: &[String]) -> String {
    let folder = folder.display();
    match there.last() {
        Some(one) => format!("name one of them, as in `tunebox pull {folder}//{one}`"),
        None => format!("`tunebox push FILE {folder}` puts one there"),
    }
}

/// What a damaged package did not do.
fn kept(folder: Option<&Path>) -> &'static str {
    if folder.is_some() { "nothing was installed and nothing ran" } else { "nothing ran" }
}

/// How a damaged package is replaced.
fn restore(folder: Option<&Path>) -> &'static str {
    if folder.is_some() {
        "it was changed on the way, or its disk fails: get the folder again from its author"
    } else {
        "`tunebox pull` it again, which replaces the file; if it repeats, check the disk"
    }
}
