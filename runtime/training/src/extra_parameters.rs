//! The extra parameters of a method beside the adapter or the model that its run trained: written into the artifact, and
//! read as start values by a run that continues it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tunebox_compute::Tensor;
use tunebox_foundation::files;

use crate::checkpoint;
use crate::configuration::RunSettings;
use crate::error::Error;
use crate::learner::TrainState;

/// The file in an artifact, which holds each extra parameter under its name.
const FILE: &str = "extra_parameters.safetensors";

/// Writes the extra parameters of the method into the artifact in `folder`. Returns the name of the file; writes nothing
/// and returns `None` without extra parameters.
pub(crate) fn write(train_state: &TrainState, folder: &Path) -> Result<Option<&'static str>, Error> {
    let extras = train_state.method_parameters.extras();
    let values: BTreeMap<&String, &Tensor> = extras.map(|(name, extra)| (name, extra.value())).collect();
    if values.is_empty() {
        return Ok(None);
    }
    files::write(&folder.join(FILE), &checkpoint::serialize(FILE, values)?)?;
    Ok(Some(FILE))
}

/// Returns the key of what a run continues, `model.adapter` or else `model.path`, and its path as the run file has it;
/// `None` for random weights without an adapter.
pub(crate) fn continued(settings: &RunSettings) -> Option<(&'static str, &str)> {
    let table = &settings.file.model;
    let model = || table.initialize.is_none().then_some(("model.path", table.path.as_str()));
    table.adapter.as_deref().map(|adapter| ("model.adapter", adapter)).or_else(model)
}

/// Returns the path of the file with the extra parameters beside the adapter or model in `folder`: that of an artifact,
/// else that of a checkpoint, which may hold none. `None` if neither file exists.
pub(crate) fn find(folder: &Path) -> Option<PathBuf> {
    [FILE, checkpoint::METHOD_FILE].map(|name| folder.join(name)).into_iter().find(|path| path.is_file())
}

/// Reads the extra parameters beside the adapter or model in `folder`, by name, to the CPU; none if there are none. Fails
/// for a file that is damaged or has more than `max_bytes` bytes of tensors.
pub(crate) fn read(folder: &Path, max_bytes: u64) -> Result<BTreeMap<String, Tensor>, Error> {
    let Some(path) = find(folder) else { return Ok(BTreeMap::new()) };
    let prefix = if path.ends_with(FILE) { "extra/" } else { "" };
    let read = checkpoint::read_method_parameters(&path, prefix, max_bytes)?;
    Ok(read.extras().map(|(name, extra)| (name.clone(), extra.value().clone())).collect())
}
