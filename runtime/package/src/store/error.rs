//! What can be wrong with a store, or with what is asked of it.

use std::path::PathBuf;

use tunebox_compute::explain::{Exit, Explain};

/// Why a store does not give a package.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No package of that name, or not of that version.
    #[error("{}", absent(name, version.as_deref()))]
    NoPackage {
        /// What was asked for; empty for any.
        name: String,
        /// The version that was asked for.
        version: Option<String>,
        /// The package that it resembles.
        nearest: Option<String>,
        /// The packages of that name.
        there: Vec<String>,
    },
    /// Several packages of which none is the obvious one.
    #[error("{}", ambiguous(name))]
    Ambiguous {
        /// What was asked for; empty for any.
        name: String,
        /// What it could be.
        there: Vec<String>,
    },
    /// A file that is not what was kept in it.
    #[error("the {what} is not what was kept")]
    Damaged {
        /// The part of the package.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The index calls a package by the name of another one.
    #[error("the index says `{named}`, the package itself says `{found}`")]
    Mislabelled {
        /// What the index says.
        named: String,
        /// What the package says.
        found: String,
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

fn absent(name: &str, version: Option<&str>) -> String {
    match (name, version) {
        ("", _) => "there is no package here".into(),
        (name, Some(version)) => format!("there is no package `{name}@{version}` here"),
        (name, None) => format!("there is no package `{name}` here"),
    }
}

fn ambiguous(name: &str) -> String {
    if name.is_empty() {
        "there are several packages here".into()
    } else {
        format!("`{name}` is the name of several packages here")
    }
}

impl Explain for StoreError {
    fn area(&self) -> &'static str {
        match self {
            Self::Damaged { .. } | Self::Mislabelled { .. } => "trust",
            _ => "package",
        }
    }

    fn place(&self) -> Option<String> {
        match self {
            Self::Damaged { path, .. } => Some(path.display().to_string()),
            _ => None,
        }
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::NoPackage { there, .. } if there.is_empty() => None,
            Self::NoPackage { there, .. } => Some(format!("here are: {}", there.join(", "))),
            Self::Ambiguous { there, .. } => Some(format!("it could be {}", there.join(" or "))),
            Self::Damaged { why, .. } => Some(why.clone()),
            Self::Mislabelled { .. } => Some("the index was changed by hand, or by another program".into()),
            Self::NotLayout { problem, .. } => Some(problem.clone()),
        }
    }

    fn kept(&self) -> Option<String> {
        match self {
            Self::Damaged { .. } | Self::Mislabelled { .. } => Some("nothing ran".into()),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoPackage { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            Self::NoPackage { .. } => {
                "`tunebox list` shows what is here, `tunebox pull` fetches, as in `registry.example/me/calm:0.1.0`"
                    .into()
            }
            Self::Ambiguous { .. } => "say which: the version, or the whole name with its registry".into(),
            Self::Damaged { .. } | Self::Mislabelled { .. } => {
                "`tunebox pull` it again, which puts the file right; if it repeats, look at the disk".into()
            }
            Self::NotLayout { .. } => "name a folder that `tunebox push FILE FOLDER` wrote, or an empty one".into(),
        })
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Damaged { .. } | Self::Mislabelled { .. } => Exit::Trust,
            _ => Exit::Usage,
        }
    }
}
