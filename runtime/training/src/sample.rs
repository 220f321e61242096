//! The embedded default: a tiny model, a run file, and data for each method.
//!
//! The files are those of this crate's `sample` folder, put in by the build script; a build
//! without them works and says so when the sample is asked for.

use std::path::{Path, PathBuf};

use crate::data::Origin;
use crate::digest::digest;
use crate::error::Error;
use crate::files::{self, Draft};

/// Every file of the folder by its path in it.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/sample.rs"));

/// The model and data inside the program.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The text of its run file.
    pub run_file: &'static str,
}

impl Sample {
    /// The sample, if this build has one.
    #[must_use]
    pub fn embedded() -> Option<Self> {
        let run_file = std::str::from_utf8(find("run.toml")?).ok()?;
        find("model/config.json").map(|_| Self { run_file })
    }

    /// The data for a method: a file of its name, or else the one named.
    #[must_use]
    pub fn data(&self, method: &str, otherwise: &str) -> Option<Origin> {
        let own = FILES.iter().find(|(path, _)| *path == format!("{method}.jsonl"));
        let (name, bytes) = own.or_else(|| FILES.iter().find(|(path, _)| *path == otherwise))?;
        Some(Origin::Embedded(name, bytes))
    }

    /// Puts the model into a folder below `runs`, so that what was trained on it finds it again.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn model(&self, runs: &Path) -> Result<PathBuf, Error> {
        let folder = runs.join("sample-model");
        let list = || FILES.iter().filter_map(|(path, bytes)| Some((path.strip_prefix("model/")?, *bytes)));
        let same = |(name, bytes): (&str, &[u8])| {
            files::read(&folder.join(name)).is_ok_and(|found| digest(&found) == digest(bytes))
        };
        if list().all(same) {
            return Ok(folder);
        }
        files::create_folder(runs)?;
        let draft = Draft::begin(&folder)?;
        for (name, bytes) in list() {
            draft.write(name, bytes)?;
        }
        draft.commit()?;
        Ok(folder)
    }
}

fn find(path: &str) -> Option<&'static [u8]> {
    FILES.iter().find(|(name, _)| *name == path).map(|(_, bytes)| *bytes)
}
