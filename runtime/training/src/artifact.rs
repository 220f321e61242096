//! Writes what a run leaves: an adapter in PEFT layout, a whole model, directions, or several of them; the card and the
//! lock.

use std::path::Path;

use tunebox_compute::DType;
use tunebox_model::chat::TEMPLATE_FILE;
use tunebox_model::merge::merge;

use crate::card::{self, ArtifactKind};
use crate::error::Error;
use crate::extra_parameters;
use crate::learner::{TrainState, directions};
use crate::lock;
use crate::lock::write::Written;
use crate::metrics::MetricsFile;
use crate::outcome::Outcome;
use crate::plan::PlannedRun;
use tunebox_foundation::files;

const ADAPTER_FILES: [&str; 2] = ["adapter_model.safetensors", "adapter_config.json"];
const MODEL_FILES: [&str; 2] = ["model.safetensors", "config.json"];

/// Decides the kind of artifact of a run. Training of all weights gives the whole model. So do edits, unless an adapter
/// holds them and no other adapter was trained or continued: then they give that adapter. Without edits, a trained or
/// continued adapter is the artifact, else directions if there are any, else nothing. An adapter counts as trained
/// after one update.
fn artifact_kind(plan: &PlannedRun, train_state: &TrainState) -> ArtifactKind {
    let policy = &train_state.policy;
    let trained = train_state.hooks.updates() > 0 || plan.settings.file.model.adapter.is_some();
    match (policy.is_edited(), policy.adapter().is_full()) {
        (true, false) if policy.edits_are_an_adapter() && !trained => ArtifactKind::Edits,
        (true, _) | (_, true) => ArtifactKind::Model,
        _ if trained => ArtifactKind::Adapter,
        _ if train_state.published.is_empty() => ArtifactKind::Nothing,
        _ => ArtifactKind::Directions,
    }
}

/// Writes the artifact, the card and the finished lock into the run's folder, in this order and each file atomically,
/// in place of existing ones. The kind of artifact is that of [`artifact_kind`]. Directions that the method published
/// and its extra parameters are written beside every kind. A model with all weights trained is written in `f32`,
/// another in the type of its weights. Card and lock say how the run ended (`outcome`). Returns the written files, card
/// and lock last.
pub(crate) fn write(
    plan: &PlannedRun,
    train_state: &TrainState,
    metrics: &MetricsFile,
    outcome: &Outcome,
) -> Result<Vec<Written>, Error> {
    let (folder, policy) = (&plan.folder, &train_state.policy);
    let kind = artifact_kind(plan, train_state);
    let mut names: Vec<&str> = match kind {
        ArtifactKind::Model => {
            let dtype = if policy.adapter().is_full() { DType::F32 } else { policy.model().weights.dtype() };
            merge(policy, folder, dtype)?;
            MODEL_FILES.to_vec()
        }
        ArtifactKind::Edits => {
            if let Some(adapter) = policy.edits_as_adapter()? {
                adapter.save(policy.model(), folder)?;
            }
            ADAPTER_FILES.to_vec()
        }
        ArtifactKind::Adapter => {
            policy.save(folder)?;
            ADAPTER_FILES.to_vec()
        }
        ArtifactKind::Directions | ArtifactKind::Nothing => Vec::new(),
    };
    names.extend(
        [TEMPLATE_FILE].into_iter().filter(|name| policy.model().has_other_template && folder.join(name).is_file()),
    );
    names.extend(write_directions(plan, train_state, folder)?);
    names.extend(extra_parameters::write(train_state, folder)?);
    files::write(&folder.join(card::FILE), card::card_text(plan, kind, &metrics.read_rows()?, outcome).as_bytes())?;
    let mut written: Vec<Written> = names.into_iter().map(|name| describe_file(folder, name)).collect();
    lock::write::write(plan, Some((written.as_slice(), outcome)))?;
    written.extend([describe_file(folder, card::FILE), describe_file(folder, lock::FILE)]);
    Ok(written)
}

/// Returns the path and the size in bytes of the file `name` in a folder; the size is 0 if it cannot be read.
fn describe_file(folder: &Path, name: &str) -> Written {
    let path = folder.join(name);
    let bytes = path.metadata().map_or(0, |about| about.len());
    Written { path, bytes }
}

/// Writes the published directions into `folder` as safetensors and, unless the only layer is 0, which such a file
/// cannot hold, as a control vector in GGUF. Returns the names of the files; writes and returns none without
/// directions.
fn write_directions(plan: &PlannedRun, train_state: &TrainState, folder: &Path) -> Result<Vec<&'static str>, Error> {
    if train_state.published.is_empty() {
        return Ok(Vec::new());
    }
    let metadata = [("method", plan.summary.method.as_str()), ("model", plan.summary.model.as_str())];
    let vectors = directions::to_vectors(&train_state.published, &metadata);
    vectors.save(&folder.join(directions::FILE))?;
    let mut names = vec![directions::FILE];
    // A control vector cannot hold layer 0.
    if vectors.layers.keys().any(|layer| *layer > 0) {
        let family = &train_state.policy.model().configuration.family;
        vectors.save_gguf(&folder.join(directions::CONTROL_VECTOR), family)?;
        names.push(directions::CONTROL_VECTOR);
    }
    Ok(names)
}
