//! Reads `run.lock`, the file in a run's folder that records its inputs, settings and artifact. `write` writes it.

pub(crate) mod write;

use std::path::Path;

use toml::{Table, Value};
use tunebox_compute::precision::Base;
use tunebox_foundation::bounded;
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::files::FileError;

use crate::error::Error;

/// The file's name in a run's folder.
pub(crate) const FILE: &str = "run.lock";

/// The most bytes of a `run.lock` that are read. The file is small: it lists inputs and settings, not data records.
const MAX_LOCK_BYTES: u64 = 1 << 20;

/// The value of the key `left` in the `run.lock` of a finished run that left no artifact.
const NO_ARTIFACT: &str = "nothing";

/// Whether `folder` is the folder of a run: it holds a `run.lock` that is a regular file, not a symbolic link.
#[must_use]
pub fn is_run(folder: &Path) -> bool {
    folder.join(FILE).symlink_metadata().is_ok_and(|about| about.is_file())
}

/// Whether the run of a parsed `run.lock` is finished: the lock lists files of an artifact, or says that the run left
/// none.
pub(crate) fn is_finished(lock: &Table) -> bool {
    let files = lock.get("artifact").and_then(Value::as_array);
    files.is_some_and(|files| !files.is_empty()) || lock.get("left").and_then(Value::as_str) == Some(NO_ARTIFACT)
}

/// Whether the run in `folder` is finished ([`is_finished`]); false if its lock is missing or cannot be read or parsed.
pub(crate) fn has_finished(folder: &Path) -> bool {
    read(folder).as_ref().is_some_and(is_finished)
}

/// Reads and parses the `run.lock` in `folder`; `None` if it is missing, cannot be read, is larger than 1 MiB or is no
/// TOML.
pub(crate) fn read(folder: &Path) -> Option<Table> {
    read_text(&folder.join(FILE)).ok()?.parse().ok()
}

/// Reads the text of the `run.lock` at `path`. Fails if the file cannot be read, is larger than 1 MiB or is not UTF-8.
pub(crate) fn read_text(path: &Path) -> Result<String, Error> {
    Ok(bounded::read_text(path, MAX_LOCK_BYTES).map_err(FileError::at("read", path))?)
}

/// Parses the text of a `run.lock` as TOML. Fails as [`damaged`] if it is no TOML; `path` is only used in that error.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Table, Error> {
    text.parse().map_err(|error: toml::de::Error| damaged(path, error.message()))
}

/// The error about a `run.lock` at `path` with invalid content; `what` says what is wrong with it.
pub(crate) fn damaged(path: &Path, what: &str) -> Error {
    Explanation::new("training", format!("`{}` is damaged: {what}", path.display()))
        .with_hint("put back the `run.lock` that the run wrote; what it recorded is known from nowhere else")
        .into()
}

/// Returns the number format of the base model (`model.precision`) of the run in `folder`, or, if `folder` holds no
/// lock and is in a folder named `steps`, of the run above `steps`. The default format if the lock names none; `None`
/// if neither folder holds a lock.
///
/// # Errors
/// A lock that cannot be read or parsed, or that names an unknown format.
pub fn base_precision(folder: &Path) -> Result<Option<Base>, Error> {
    let run = folder.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "steps"));
    let run = run.and_then(Path::parent);
    let found = [Some(folder), run].into_iter().flatten().map(|folder| folder.join(FILE)).find(|path| path.is_file());
    let Some(path) = found else { return Ok(None) };
    let lock = parse(&path, &read_text(&path)?)?;
    let model = lock.get("settings").and_then(|settings| settings.get("model"));
    let precision = model.and_then(|model| model.get("precision")).cloned().map(Value::try_into).transpose();
    precision.map(|base| Some(base.unwrap_or_default())).map_err(|error| damaged(&path, error.message()))
}
