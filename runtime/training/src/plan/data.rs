//! Finds the data files of a run, with their weights, and checks `data.map`.

use std::path::PathBuf;

use crate::configuration::{DataFile, RunSettings, Underline};
use crate::data::{InputFile, check_fields, combined_digest, find_files};
use crate::error::Error;

/// The split of a folder of training data if `data.split` is not given.
const TRAIN: &str = "train";

/// The split of a folder of validation data.
const VALIDATION: &str = "validation";

/// The paths that a run's settings name for its training data: keys of the run file, resolved paths and weights. Those
/// of `data.files`, or else `data.path` with weight 1.
fn named_paths(settings: &RunSettings) -> Vec<(String, PathBuf, f64)> {
    let table = &settings.file.data;
    if table.files.is_empty() {
        return vec![("data.path".to_owned(), settings.path("data.path", &table.path), 1.0)];
    }
    let named = |(number, file): (usize, &DataFile)| {
        let key = format!("data.files.{number}");
        let path = settings.path(&key, file.path());
        (key, path, file.weight())
    };
    table.files.iter().enumerate().map(named).collect()
}

/// The paths that a run's settings name for its training and validation data, which may be folders, with their keys.
pub(crate) fn data_paths(settings: &RunSettings) -> Vec<(String, PathBuf)> {
    let validation = settings.file.data.validation.iter();
    let validation = validation.map(|path| ("data.validation".to_owned(), settings.path("data.validation", path)));
    named_paths(settings).into_iter().map(|(key, path, _)| (key, path)).chain(validation).collect()
}

/// Finds the files of the training data of a run, in the order in which they are read.
///
/// # Errors
/// A folder without a file of the split, located at its key.
pub(crate) fn training_files(settings: &RunSettings) -> Result<Vec<InputFile>, Error> {
    let split = settings.file.data.split.as_deref().unwrap_or(TRAIN);
    let mut files = Vec::new();
    for (key, path, weight) in named_paths(settings) {
        let found = find_files(&path, split).map_err(|error| settings.with_location(&key, error))?;
        files.extend(found.into_iter().map(|path| InputFile { path, weight }));
    }
    Ok(files)
}

/// Finds the files of the validation data of a run; `None` if it has none.
///
/// # Errors
/// A folder without a file of the split `validation`, located at `data.validation`.
pub(crate) fn validation_files(settings: &RunSettings) -> Result<Option<Vec<InputFile>>, Error> {
    let Some(written) = &settings.file.data.validation else { return Ok(None) };
    let found = find_files(&settings.path("data.validation", written), VALIDATION);
    let found = found.map_err(|error| settings.with_location("data.validation", error))?;
    Ok(Some(found.iter().map(|path| InputFile::new(path)).collect()))
}

/// The digest of files and their weights as a run records it ([`combined_digest`]), without reading their records.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn digest_files(files: &[InputFile]) -> Result<String, Error> {
    let digest = |file: &InputFile| Ok((tunebox_model::digest(std::slice::from_ref(&file.path))?, file.weight));
    Ok(combined_digest(&files.iter().map(digest).collect::<Result<Vec<_>, Error>>()?))
}

/// Checks that every key of `data.map` is a field of a record. Fails for the first that is not, located at it.
pub(super) fn check_map(settings: &RunSettings) -> Result<(), Error> {
    check_fields(&settings.file.data.map)
        .map_err(|(field, problem)| settings.error(&format!("data.map.{field}"), Underline::Key, *problem))
}
