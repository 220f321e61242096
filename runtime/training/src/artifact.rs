//! What a run leaves: an adapter in PEFT's layout, a whole model, directions, or several of them; the card and the lock.

use std::path::{Path, PathBuf};

use tunebox_compute::DType;
use tunebox_model::merge::merge;

use crate::card;
use crate::error::Error;
use crate::learner::{TrainState, published};
use crate::lock;
use crate::metrics::MetricsFile;
use crate::plan::PlannedRun;
use tunebox_foundation::files;

/// A file that the run left, for people.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What a run made of its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// An adapter that was trained.
    Adapter,
    /// A model of its own: all weights were trained, or some were edited.
    Model,
    /// An adapter that holds edits.
    Edits,
    /// Nothing but directions.
    Directions,
    /// Nothing: the method never asked for an update.
    Nothing,
}

const ADAPTER: [&str; 2] = ["adapter_model.safetensors", "adapter_config.json"];
const MODEL: [&str; 2] = ["model.safetensors", "config.json"];

/// What a run leaves. Edits beside a trained or continued adapter need the whole model.
pub(crate) fn made(plan: &PlannedRun, train_state: &TrainState) -> Made {
    let policy = &train_state.policy;
    let trained = train_state.hooks.optimizer.steps() > 0 || plan.settings.file.model.adapter.is_some();
    match (policy.is_edited(), policy.adapter().is_full()) {
        (true, false) if policy.edits_are_an_adapter() && !trained => Made::Edits,
        (true, _) | (_, true) => Made::Model,
        _ if trained => Made::Adapter,
        _ if train_state.published.is_empty() => Made::Nothing,
        _ => Made::Directions,
    }
}

/// Writes all of it into the run's folder; each file whole or not at all.
pub(crate) fn write(plan: &PlannedRun, train_state: &TrainState, metrics: &MetricsFile) -> Result<Vec<Written>, Error> {
    let (folder, policy) = (&plan.folder, &train_state.policy);
    let made = made(plan, train_state);
    let mut names: Vec<&str> = match made {
        Made::Model => {
            let dtype = if policy.adapter().is_full() { DType::F32 } else { policy.model().weights.dtype() };
            crate::error::from_model(merge(policy, folder, dtype))?;
            MODEL.to_vec()
        }
        Made::Edits => {
            if let Some(adapter) = policy.edits_as_adapter()? {
                crate::error::from_model(adapter.save(policy.model(), folder))?;
            }
            ADAPTER.to_vec()
        }
        Made::Adapter => {
            crate::error::from_model(policy.save(folder))?;
            ADAPTER.to_vec()
        }
        Made::Directions | Made::Nothing => Vec::new(),
    };
    names.extend(directions(plan, train_state, folder)?);
    files::write(&folder.join(card::FILE), card::card(plan, made, &metrics.rows()?).as_bytes())?;
    let mut written: Vec<Written> = names.into_iter().map(|name| found(folder, name)).collect();
    files::write(&folder.join(lock::FILE), lock::lock(plan, Some(&written))?.as_bytes())?;
    written.extend([found(folder, card::FILE), found(folder, lock::FILE)]);
    Ok(written)
}

fn found(folder: &Path, name: &str) -> Written {
    let path = folder.join(name);
    let bytes = path.metadata().map_or(0, |about| about.len());
    Written { path, bytes }
}

/// Writes what the method published, for this program and for those that read control vectors.
fn directions(plan: &PlannedRun, train_state: &TrainState, folder: &Path) -> Result<Vec<&'static str>, Error> {
    if train_state.published.is_empty() {
        return Ok(Vec::new());
    }
    let facts = [("method", plan.summary.method.as_str()), ("model", plan.summary.model.as_str())];
    let vectors = published::vectors(&train_state.published, &facts);
    crate::error::from_model(vectors.save(&folder.join(published::FILE)))?;
    let mut names = vec![published::FILE];
    // The format knows no layer 0.
    if vectors.layers.keys().any(|layer| *layer > 0) {
        let family = &train_state.policy.model().configuration.family;
        crate::error::from_model(vectors.save_gguf(&folder.join(published::CONTROL_VECTOR), family))?;
        names.push(published::CONTROL_VECTOR);
    }
    Ok(names)
}
