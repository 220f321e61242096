//! What can be wrong with a store, or with what is asked of it.

use std::path::{Path, PathBuf};

use tunebox_foundation::explain::{Exit, Explain};

/// How many packages a message lists.
const MOST_LISTED: usize = 12;

/// Why a store does not give a package. Each says of which folder; none is named where it is this user's own store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No package of that name, or not of that version.
    #[error("{}", absent(name, version.as_deref(), folder.as_deref()))]
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

impl StoreError {
    /// The folder of somebody else that it is about.
    fn folder(&self) -> Option<&Path> {
        match self {
            Self::NoPackage { folder, .. }
            | Self::Ambiguous { folder, .. }
            | Self::Damaged { folder, .. }
            | Self::Mislabelled { folder, .. } => folder.as_deref(),
            Self::NotLayout { folder, .. } => Some(folder),
        }
    }

    /// What to do about a folder of somebody else.
    fn hint_for(&self, folder: &Path) -> String {
        let folder = folder.display();
        match self {
            Self::NoPackage { there, .. } | Self::Ambiguous { there, .. } => match there.last() {
                Some(one) => format!("name one of them, as in `tunebox pull {folder}//{one}`"),
                None => format!("`tunebox push FILE {folder}` puts one there"),
            },
            Self::Damaged { .. } | Self::Mislabelled { .. } => {
                "it was changed on the way, or its disk fails: get the folder anew from whoever gave it to you".into()
            }
            Self::NotLayout { .. } => "name a folder that `tunebox push FILE FOLDER` wrote, or an empty one".into(),
        }
    }
}

impl Explain for StoreError {
    fn category(&self) -> &'static str {
        match self {
            Self::Damaged { .. } | Self::Mislabelled { .. } => "trust",
            _ => "package",
        }
    }

    fn location(&self) -> Option<String> {
        match self {
            Self::Damaged { path, .. } => Some(path.display().to_string()),
            _ => None,
        }
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::NoPackage { there, .. } if there.is_empty() => None,
            Self::NoPackage { there, folder: None, .. } => Some(format!("here are: {}", listed(there, ", "))),
            Self::NoPackage { there, .. } => Some(format!("there are: {}", listed(there, ", "))),
            Self::Ambiguous { there, .. } => Some(format!("it could be {}", listed(there, " or "))),
            Self::Damaged { why, .. } => Some(why.clone()),
            Self::Mislabelled { .. } => Some("the index was changed by hand, or by another program".into()),
            Self::NotLayout { problem, .. } => Some(problem.clone()),
        }
    }

    fn kept(&self) -> Option<String> {
        match self {
            Self::Damaged { .. } | Self::Mislabelled { .. } if self.folder().is_some() => {
                Some("nothing was installed and nothing ran".into())
            }
            Self::Damaged { .. } | Self::Mislabelled { .. } => Some("nothing ran".into()),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        if let Self::NoPackage { nearest: Some(nearest), .. } = self {
            return Some(format!("did you mean `{nearest}`?"));
        }
        if let Some(folder) = self.folder() {
            return Some(self.hint_for(folder));
        }
        Some(match self {
            Self::Ambiguous { .. } => {
                "say which: its version, its whole name with the registry, or a path that begins with `./`".into()
            }
            Self::Damaged { .. } | Self::Mislabelled { .. } => {
                "`tunebox pull` it again, which puts the file right; if it repeats, look at the disk".into()
            }
            Self::NoPackage { .. } | Self::NotLayout { .. } => {
                "`tunebox list` shows what is here, `tunebox pull` fetches, as in `registry.example/me/calm:0.1.0`"
                    .into()
            }
        })
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Damaged { .. } | Self::Mislabelled { .. } => Exit::Trust,
            _ => Exit::Usage,
        }
    }
}
