//! Checkpoints: everything that a run needs to resume with the same bits as if it had not stopped.
//!
//! A checkpoint is a folder that is written atomically. Its [`Identity`] tells which run may resume from it.

mod identity;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use candle_core::safetensors::Load;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde::{Deserialize, Serialize};
use tunebox_compute::{Device, Tensor};
use tunebox_sandbox::MethodParameters;

pub(crate) use identity::{Identity, LENGTH_SETTINGS, settings_that_matter};

use crate::data::Cursor;
use crate::error::{Error, damaged};
use crate::learner::{TrainState, directions};
use crate::length::{self, Extension};
use crate::validation::ValidationHistory;
use tunebox_foundation::files::{self, Draft};
use tunebox_foundation::hexadecimal::from_hexadecimal;

/// How many levels below a run's folder its files can be: three, as in `steps/000010/state.json`.
const MAX_DEPTH: usize = 3;
/// The layout of `state.json`.
pub(crate) const SCHEMA: u32 = 1;
const STATE_FILE: &str = "state.json";
const OPTIMIZER_FILE: &str = "optimizer.safetensors";
const SNAPSHOTS_FILE: &str = "snapshots.safetensors";
/// The method's state of parameters and its extra parameters; not written if there are none.
pub(crate) const METHOD_FILE: &str = "method.safetensors";

/// The name of the file with the edits that a snapshot contains, by the index of the snapshot among the sorted names.
/// Such a file is not written without edits.
fn edits_file(snapshot: usize) -> String {
    format!("snapshot-{snapshot:04}-edits.safetensors")
}

/// The most bytes of `state.json`: a method may save 256 MiB, which take 512 MiB in hexadecimal; twice that.
const MAX_STATE_BYTES: u64 = 1 << 30;
/// The most bytes of `state.json` that are read only to look for checkpoints: more than states have by the default
/// limits.
const MAX_LISTED_STATE_BYTES: u64 = 4 << 20;
/// The largest count of a state: the largest integer that a JSON number holds exactly everywhere.
const MAX_COUNT: u64 = 1 << 53;
/// The most snapshots and random streams of a state: what `limits.snapshots` and `limits.streams` may be at most.
const MAX_SNAPSHOTS: usize = 1_000;
const MAX_STREAMS: usize = 10_000;
/// The most bytes of the header of a safetensors file.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// The content of `state.json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct State {
    /// The layout, [`SCHEMA`].
    pub(crate) schema: u32,
    /// Finished steps.
    pub(crate) step: u64,
    /// The position in the data.
    pub(crate) cursor: Cursor,
    /// Updates of the optimizer.
    pub(crate) updates: u64,
    /// Updates of the weights; dropout masks are drawn from this count.
    pub(crate) generation: u64,
    /// The positions of the method's random streams.
    pub(crate) streams: BTreeMap<String, u64>,
    /// The bytes that the method saved, in hexadecimal.
    pub(crate) method_state: String,
    /// The names of the snapshots that the method took.
    pub(crate) snapshots: Vec<String>,
    /// Trained tokens.
    pub(crate) tokens: u64,
    /// Seconds of training.
    pub(crate) seconds: f64,
    /// The last loss and its step.
    pub(crate) last_loss: Option<(f64, u64)>,
    /// Steps of the whole run, as planned when the checkpoint was written.
    #[serde(default)]
    pub(crate) planned: u64,
    /// The numbers of steps that were planned before the run was resumed with more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) extended: Vec<Extension>,
    /// The validations so far.
    #[serde(default)]
    pub(crate) validations: ValidationHistory,
    /// The time that chat templates read, in seconds since 1970.
    pub(crate) clock: i64,
    /// The identity of the run.
    pub(crate) identity: Identity,
}

impl State {
    /// The bytes that the method saved, decoded. Fails if they are not hexadecimal. `folder` is the checkpoint's, for
    /// the error.
    pub(crate) fn method_state(&self, folder: &Path) -> Result<Vec<u8>, Error> {
        let wrong = || damaged(&folder.join(STATE_FILE), "`method-state` is not hexadecimal");
        from_hexadecimal(&self.method_state).ok_or_else(wrong)
    }

    /// Reads the state from the folder of a checkpoint. Fails if the file is missing, damaged, of another layout or
    /// larger than [`MAX_STATE_BYTES`], or if its counts are not plausible.
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(STATE_FILE);
        let state: Self =
            serde_json::from_slice(&files::read(&path, MAX_STATE_BYTES)?).map_err(|error| damaged(&path, error))?;
        if state.schema != SCHEMA {
            return Err(damaged(&path, format!("its layout is {}, {SCHEMA} is known", state.schema)));
        }
        match state.implausible_count(folder) {
            Some(what) => Err(damaged(&path, what)),
            None => Ok(state),
        }
    }

    /// Reads the state if its file has no more than [`MAX_LISTED_STATE_BYTES`] bytes; `None` if it has. Fails as
    /// [`read`](Self::read) does.
    pub(crate) fn read_small(folder: &Path) -> Result<Option<Self>, Error> {
        let is_large =
            std::fs::metadata(folder.join(STATE_FILE)).is_ok_and(|about| about.len() > MAX_LISTED_STATE_BYTES);
        if is_large { Ok(None) } else { Self::read(folder).map(Some) }
    }

    /// Says what is wrong with the counts of the state in the checkpoint's folder `folder`: a step that is not the
    /// folder's, more epochs than steps, a count or time that no run reaches, too many snapshots or streams, snapshots
    /// that are not sorted by name, or lengths and validations of later steps. `None` if nothing is.
    fn implausible_count(&self, folder: &Path) -> Option<String> {
        let Self { step, cursor, updates, generation, tokens, seconds, .. } = self;
        if folder.file_name().is_none_or(|name| *name != *folder_name(*step)) {
            return Some(format!("it claims to be of step {step}"));
        }
        if cursor.epoch > *step {
            return Some(format!("it claims epoch {} at step {step}", cursor.epoch));
        }
        // Snapshots are saved in the order of their names, each once.
        let ordered = self.snapshots.is_sorted_by(|one, next| one < next) && self.snapshots.len() <= MAX_SNAPSHOTS;
        if !ordered || self.streams.len() > MAX_STREAMS {
            return Some("it claims snapshots or random streams that no run can have".to_owned());
        }
        if !length::is_plausible(&self.extended, *step) || self.validations.is_implausible(*step) {
            return Some("it claims lengths or validations that no run can have".to_owned());
        }
        let counted = [*updates, *generation, *tokens].iter().all(|count| *count <= MAX_COUNT);
        let timed = (0.0..=MAX_COUNT as f64).contains(seconds);
        (!counted || !timed).then(|| "it claims more updates, tokens or seconds than a run can have".to_owned())
    }
}

#[cfg(test)]
impl State {
    /// The state of a run after so many steps and updates, by a method that keeps nothing.
    pub(crate) fn without_method_state(step: u64, updates: u64, identity: Identity) -> Self {
        Self { schema: SCHEMA, step, updates, generation: updates, identity, ..Self::default() }
    }
}

/// Whether a folder is that of a checkpoint, which means that it holds a `state.json`.
#[must_use]
pub fn is_checkpoint(folder: &Path) -> bool {
    folder.join(STATE_FILE).is_file()
}

/// The path of the folder for the checkpoint of a step in the run's folder `run`, which need not exist.
pub(crate) fn folder(run: &Path, step: u64) -> PathBuf {
    run.join("steps").join(folder_name(step))
}

/// The name of the folder for the checkpoint of a step: the number with at least six digits, such as `000010`.
fn folder_name(step: u64) -> String {
    format!("{step:06}")
}

/// Fails if the folder of a run, or anything that a run reads, writes or removes in it, is a link: a folder that comes
/// from others could lead elsewhere. Does nothing if the folder does not exist.
pub(crate) fn reject_links(run: &Path) -> Result<(), Error> {
    Ok(files::reject_links(run, MAX_DEPTH)?)
}

/// The steps of the checkpoints in the run's folder `run`, in ascending order, by the names in its folder `steps`;
/// empty if there is no such folder. Ignores names that are not those of a checkpoint, and does not look into the
/// checkpoints.
pub(crate) fn list_steps(run: &Path) -> Result<Vec<u64>, Error> {
    let names = files::names(&run.join("steps"))?;
    let step = |name: &String| name.parse().ok().filter(|step| folder_name(*step) == *name);
    let mut steps: Vec<u64> = names.iter().filter_map(step).collect();
    steps.sort_unstable();
    Ok(steps)
}

/// The step and folder of the last checkpoint in the run's folder `run` whose `state.json` can be read, or is larger
/// than [`MAX_LISTED_STATE_BYTES`] and so not read here; `None` if there is none.
pub(crate) fn last_readable(run: &Path) -> Option<(u64, PathBuf)> {
    let whole = |step: &u64| State::read_small(&folder(run, *step)).is_ok();
    let step = list_steps(run).ok()?.into_iter().rev().find(whole)?;
    Some((step, folder(run, step)))
}

/// Writes a checkpoint of `state` and the train state into the run's folder `run` atomically, in place of one of the
/// same step, then deletes all but the last `keep` checkpoints and those of the best validation. Returns the
/// checkpoint's folder.
pub(crate) fn save(run: &Path, state: &State, train_state: &TrainState, keep: usize) -> Result<PathBuf, Error> {
    let target = folder(run, state.step);
    files::create_folder(&run.join("steps"))?;
    let draft = Draft::begin(&target)?;
    train_state.policy.save(draft.path())?;
    train_state.policy.save_edits(draft.path())?;
    for (number, name) in train_state.snapshots.keys().enumerate() {
        let path = draft.path().join(edits_file(number));
        train_state.policy.save_snapshot_edits(name, &path)?;
    }
    directions::save(&train_state.published, draft.path())?;
    if let Some(optimizer) = &train_state.hooks.optimizer {
        let optimizer = optimizer.state(train_state.policy.parameters())?;
        draft.write(
            OPTIMIZER_FILE,
            &serialize(OPTIMIZER_FILE, optimizer.iter().map(|(name, tensor)| (*name, tensor)))?,
        )?;
    }
    let own = train_state.method_parameters.saved();
    if !own.is_empty() {
        draft.write(METHOD_FILE, &serialize(METHOD_FILE, &own)?)?;
    }
    if !train_state.snapshots.is_empty() {
        draft.write(SNAPSHOTS_FILE, &serialize(SNAPSHOTS_FILE, &train_state.snapshots)?)?;
    }
    let text = serde_json::to_vec_pretty(state).map_err(|error| damaged(&target, error))?;
    draft.write(STATE_FILE, &text)?;
    draft.commit()?;
    prune(run, keep)?;
    Ok(target)
}

/// Restores the train state from the checkpoint in `folder`, whose state was read as `state`, and clears the gradient.
/// Call after the method's `init`: the saved values replace those that `init` made. Of what `init` made, snapshots
/// under other names, directions of other layers, and edits if the checkpoint has none stay. Fails for a file that is
/// missing, damaged or of another model. `max_method_bytes` is the most bytes of the method's state and extra
/// parameters.
pub(crate) fn restore(
    folder: &Path,
    state: &State,
    train_state: &mut TrainState,
    max_method_bytes: u64,
) -> Result<(), Error> {
    restore_weights(folder, state, train_state, max_method_bytes)?;
    restore_optimizer(&folder.join(OPTIMIZER_FILE), state.updates, train_state)
}

/// Restores what [`restore`] does, except the state of the host's optimizer.
pub(crate) fn restore_weights(
    folder: &Path,
    state: &State,
    train_state: &mut TrainState,
    max_method_bytes: u64,
) -> Result<(), Error> {
    if !state.snapshots.is_empty() {
        let snapshots = read_tensors(&folder.join(SNAPSHOTS_FILE), &state.snapshots, train_state)?;
        for (number, (name, values)) in snapshots.into_iter().enumerate() {
            train_state.restore_snapshot(&name, values, &folder.join(edits_file(number)))?;
        }
    }
    train_state.policy.restore(folder)?;
    train_state.policy.restore_edits(folder)?;
    train_state.published.extend(directions::restore(folder)?);
    train_state.policy.resume_at(state.generation);
    train_state.method_parameters = read_method_parameters(&folder.join(METHOD_FILE), "", max_method_bytes)?;
    train_state.hooks.own_updates = state.updates;
    Ok(train_state.clear_gradient()?)
}

/// Restores the optimizer's state from the safetensors file `path`, and its update count from `updates`. Fails for a
/// file that is damaged, larger than two numbers for each trained one and a header of [`MAX_HEADER_BYTES`], or of
/// another optimizer. Does nothing without an optimizer.
fn restore_optimizer(path: &Path, updates: u64, train_state: &mut TrainState) -> Result<(), Error> {
    let parameters = train_state.policy.parameters();
    let Some(optimizer) = &mut train_state.hooks.optimizer else { return Ok(()) };
    // No optimizer keeps more than two numbers for each trained one.
    let size = (parameters.len() as u64).saturating_mul(8);
    let bytes = files::read(path, size.saturating_add(MAX_HEADER_BYTES))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| damaged(path, error))?;
    let read = |(name, view): (String, TensorView<'_>)| Ok((name, view.load(&Device::Cpu)?));
    let state = file.tensors().into_iter().map(read).collect::<Result<Vec<_>, tunebox_compute::Error>>()?;
    optimizer.restore(parameters, &state, updates).map_err(|error| damaged(path, error))
}

/// Deletes the checkpoints in the run's folder `run` except the last `keep` and those of the best validation up to each
/// of these, and unfinished ones that a crash left behind.
pub(crate) fn prune(run: &Path, keep: usize) -> Result<(), Error> {
    for name in files::names(&run.join("steps"))?.iter().filter(|name| is_draft(name)) {
        files::remove_folder(&run.join("steps").join(name))?;
    }
    let steps = list_steps(run)?;
    let (old, kept) = steps.split_at(steps.len().saturating_sub(keep));
    let best: BTreeSet<u64> = kept.iter().filter_map(|step| best_step(&folder(run, *step))).collect();
    for step in old.iter().filter(|step| !best.contains(step)) {
        files::remove_folder(&folder(run, *step))?;
    }
    Ok(())
}

/// The step of the best validation up to the checkpoint in `folder`; `None` if it has none or cannot be read.
fn best_step(folder: &Path) -> Option<u64> {
    State::read(folder).ok()?.validations.best.map(|best| best.step)
}

/// Deletes the checkpoints of a finished run in its folder `run`, and its folder `steps` if nothing else is in it.
pub(crate) fn remove_all(run: &Path) -> Result<(), Error> {
    prune(run, 0)?;
    // The folder stays if something is in it that no run wrote.
    let _ = std::fs::remove_dir(run.join("steps"));
    Ok(())
}

/// Whether a name is one of the folders that writing a checkpoint leaves behind if it is interrupted.
fn is_draft(name: &str) -> bool {
    let step = name.strip_prefix('.').and_then(|name| name.strip_suffix(".partial").or(name.strip_suffix(".old")));
    step.is_some_and(|step| !step.is_empty() && step.bytes().all(|letter| letter.is_ascii_digit()))
}

/// Reads the tensors `names` from a safetensors file to the CPU, each flat with one `f32` for every trained number.
/// Returns them with their names, in the order of `names`. Fails for a tensor that is missing or has another type or
/// shape, and for a file larger than such tensors and a header of [`MAX_HEADER_BYTES`].
fn read_tensors(path: &Path, names: &[String], train_state: &TrainState) -> Result<Vec<(String, Tensor)>, Error> {
    let wanted = train_state.policy.parameters().len();
    let numbers = names.len().saturating_mul(wanted).saturating_mul(4) as u64;
    let bytes = files::read(path, numbers.saturating_add(MAX_HEADER_BYTES))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| damaged(path, error))?;
    let read = names.iter().map(|name| {
        let view = file.tensor(name).map_err(|error| damaged(path, error))?;
        if view.dtype() != safetensors::Dtype::F32 || view.shape() != [wanted] {
            return Err(damaged(path, format!("`{name}` is not a list of {wanted} numbers of type `f32`")));
        }
        Ok((name.clone(), view.load(&Device::Cpu).map_err(tunebox_compute::Error::from)?))
    });
    read.collect()
}

/// Reads the method's state of parameters and its extra parameters; none if there is no such file. `prefix` is put
/// before every name of the file. Fails for a file larger than `max_bytes` bytes and a header of [`MAX_HEADER_BYTES`],
/// and for a tensor of another type than `f32` or with another name than those of [`MethodParameters::saved`].
pub(crate) fn read_method_parameters(path: &Path, prefix: &str, max_bytes: u64) -> Result<MethodParameters, Error> {
    if !path.exists() {
        return Ok(MethodParameters::default());
    }
    let bytes = files::read(path, max_bytes.saturating_add(MAX_HEADER_BYTES))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| damaged(path, error))?;
    let read = file.tensors().into_iter().map(|(name, view)| {
        if view.dtype() != safetensors::Dtype::F32 {
            return Err(damaged(path, format!("`{name}` is not of type `f32`")));
        }
        Ok((format!("{prefix}{name}"), view.load(&Device::Cpu).map_err(tunebox_compute::Error::from)?))
    });
    let tensors: Vec<(String, Tensor)> = read.collect::<Result<_, Error>>()?;
    MethodParameters::restored(tensors).ok_or_else(|| damaged(path, "it has a tensor that no method keeps"))
}

/// Serializes tensors for the file `name` of a checkpoint, which errors name.
pub(crate) fn serialize<'a, S: AsRef<str> + Ord + std::fmt::Display>(
    name: &str,
    tensors: impl IntoIterator<Item = (S, &'a Tensor)>,
) -> Result<Vec<u8>, Error> {
    safetensors::serialize(tensors, None).map_err(|error| damaged(Path::new(name), error))
}
