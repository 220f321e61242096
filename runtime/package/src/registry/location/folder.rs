//! A folder as a place for packages.

use std::path::{Path, PathBuf};

use super::{checked_version, is_component};

/// A package in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::registry) struct Folder {
    pub(in crate::registry) path: PathBuf,
    pub(in crate::registry) name: Option<String>,
    pub(in crate::registry) version: Option<String>,
}

impl Folder {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let whole = || Self { path: PathBuf::from(text), name: None, version: None };
        if text.is_empty() {
            return Err("it names no folder".into());
        }
        let Some((path, package)) = text.rsplit_once("//").filter(|_| !Path::new(text).is_dir()) else {
            return Ok(whole());
        };
        let (name, version) = match package.split_once([':', '@']) {
            Some((name, version)) => (name, Some(checked_version(version)?)),
            None => (package, None),
        };
        if path.is_empty() || !is_component(name) {
            return Err(format!("`{name}` behind `//` is not the name of a package"));
        }
        Ok(Self { path: PathBuf::from(path), name: Some(name.to_owned()), version })
    }
}
