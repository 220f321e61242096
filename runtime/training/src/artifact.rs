//! What a run leaves: the adapter in PEFT's layout (or the whole model), the card and the lock.

use std::path::PathBuf;

use tunebox_compute::DType;
use tunebox_model::Policy;
use tunebox_model::merge::merge;

use crate::card;
use crate::error::Error;
use crate::files;
use crate::metrics::MetricsFile;
use crate::plan::PlannedRun;

/// A file that the run left, for people.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Writes the adapter and the card into the run's folder; each file whole or not at all.
pub(crate) fn write(plan: &PlannedRun, policy: &Policy, metrics: &MetricsFile) -> Result<Vec<Written>, Error> {
    let folder = &plan.folder;
    let names = if policy.adapter().is_full() {
        files::explained(merge(policy, folder, DType::F32))?;
        ["model.safetensors", "config.json"]
    } else {
        files::explained(policy.save(folder))?;
        ["adapter_model.safetensors", "adapter_config.json"]
    };
    files::write(&folder.join(card::FILE), card::card(plan, &metrics.rows()?).as_bytes())?;
    let names = names.into_iter().chain([card::FILE, crate::lock::FILE]);
    Ok(names
        .map(|name| {
            let path = folder.join(name);
            let bytes = path.metadata().map_or(0, |about| about.len());
            Written { path, bytes }
        })
        .collect())
}
