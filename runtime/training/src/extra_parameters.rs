//! The extra parameters of a method beside the adapter of its run: written into the artifact, and read as start values by
//! a run that continues the adapter.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tunebox_compute::Tensor;
use tunebox_foundation::files;

use crate::checkpoint;
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

/// Returns the path of the file with the extra parameters beside the adapter in `folder`: that of an artifact, else that
/// of a checkpoint, which may hold none. `None` if neither file exists.
pub(crate) fn find(folder: &Path) -> Option<PathBuf> {
    [FILE, checkpoint::METHOD_FILE].map(|name| folder.join(name)).into_iter().find(|path| path.is_file())
}

/// Reads the extra parameters beside the adapter in `folder`, by name, to the CPU; none if there are none. Fails for a
/// file that is damaged or has more than `max_bytes` bytes of tensors.
pub(crate) fn read(folder: &Path, max_bytes: u64) -> Result<BTreeMap<String, Tensor>, Error> {
    let Some(path) = find(folder) else { return Ok(BTreeMap::new()) };
    let prefix = if path.ends_with(FILE) { "extra/" } else { "" };
    let read = checkpoint::read_method_parameters(&path, prefix, max_bytes)?;
    Ok(read.extras().map(|(name, extra)| (name.clone(), extra.value().clone())).collect())
}
