//! Finds or fetches the data files of a run, with their weights, and checks `data.map`.

use std::path::PathBuf;

use tunebox_model::hub::is_address;

use crate::configuration::{DataFile, RunSettings, Underline, ValidationData};
use crate::data::{InputFile, check_amount, check_fields, combined_digest, find_files};
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
    let validation = settings.file.data.validation.iter().filter_map(ValidationData::path);
    let validation = validation.map(|path| ("data.validation".to_owned(), settings.path("data.validation", path)));
    named_paths(settings).into_iter().map(|(key, path, _)| (key, path)).chain(validation).collect()
}

/// Fetches the training and validation data that is on a hub, where files of it are not present. Returns whether there
/// is some; does nothing for data of this machine alone.
///
/// # Errors
/// Data that is not on the hub or cannot be fetched, and a folder without a file of the split.
pub(super) fn fetch_data(settings: &RunSettings) -> Result<bool, Error> {
    let is_on_hub = data_paths(settings).iter().any(|(_, path)| is_address(&path.to_string_lossy()));
    if is_on_hub {
        training_files(settings)?;
        validation_files(settings)?;
    }
    Ok(is_on_hub)
}

/// Finds the files of the training data of a run, in the order in which they are read. Fetches those of a hub that are
/// not present, unless the run is offline.
///
/// # Errors
/// A folder without a file of the split, and data that cannot be fetched, located at its key.
pub(crate) fn training_files(settings: &RunSettings) -> Result<Vec<InputFile>, Error> {
    let split = settings.file.data.split.as_deref().unwrap_or(TRAIN);
    let mut files = Vec::new();
    for (key, path, weight) in named_paths(settings) {
        let found = find_files(&path, split, settings.offline).map_err(|error| settings.with_location(&key, error))?;
        files.extend(found.into_iter().map(|path| InputFile { path, weight }));
    }
    Ok(files)
}

/// Finds the files of the validation data of a run, those of the training data if a part of it is held back; `None` if
/// the run has no validation data. Fetches those of a hub that are not present, unless the run is offline.
///
/// # Errors
/// A folder without a file of the split `validation`, and data that cannot be fetched, located at `data.validation`.
pub(crate) fn validation_files(settings: &RunSettings) -> Result<Option<Vec<InputFile>>, Error> {
    let Some(validation) = &settings.file.data.validation else { return Ok(None) };
    let Some(written) = validation.path() else { return training_files(settings).map(Some) };
    let found = find_files(&settings.path("data.validation", written), VALIDATION, settings.offline);
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

/// Checks that `data.validation`, if it says how much is held back, is a share or a number of records.
pub(super) fn check_held_back(settings: &RunSettings) -> Result<(), Error> {
    let Some(ValidationData::HeldBack(amount)) = settings.file.data.validation else { return Ok(()) };
    check_amount(amount).map_err(|problem| settings.error("data.validation", Underline::Value, *problem))
}

/// Checks that every key of `data.map` is a field of a record. Fails for the first that is not, located at it.
pub(super) fn check_map(settings: &RunSettings) -> Result<(), Error> {
    check_fields(&settings.file.data.map)
        .map_err(|(field, problem)| settings.error(&format!("data.map.{field}"), Underline::Key, *problem))
}
