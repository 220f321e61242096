//! Verifies a finished run by its `run.lock`: whether its files and inputs are unchanged, and whether a replay ends in
//! the same bits. The card is not compared, since it contains times.

mod comparison;
mod inputs;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use toml::{Table, Value};
use tunebox_compute::device;
use tunebox_compute::fused::instruction_sets;
use tunebox_compute::precision::Compute;
use tunebox_foundation::explain::{Explain, Explanation};
use tunebox_foundation::{files, paths};
use tunebox_package::Reference;
use tunebox_sandbox::Compiling;
use tunebox_sandbox::child::Program;

use crate::checkpoint;
use crate::configuration::{ReplayInputs, RunSettings};
use crate::error::{Error, path_error};
use crate::length::{self, Extension};
use crate::lock;
use crate::observer::Observer;
use crate::plan::{open_package, plan};
use crate::runs::unfinished_error;
use crate::worker::execute;

pub use comparison::Comparison;
pub(crate) use comparison::append_leaves;
use comparison::{compare, first_difference};
pub use inputs::UnconfirmedComponents;

/// The file with a run's settings, in its folder.
const SETTINGS_FILE: &str = "run.toml";

/// The keys of a lock that must be equal for a replay to end in the same bits.
const INPUT_KEYS: [&str; 9] =
    ["model", "teacher", "data", "validation", "method", "verifier", "environment", "seed", "steps"];

/// The keys of a lock about program and machine. If one differs, a replay may end in other bits.
const ENVIRONMENT_KEYS: [&str; 5] = ["tunebox", "system", "processor", "device", "accelerator"];

/// A finished run compared with its lock, ready to be replayed.
pub struct Verification {
    /// The run's name.
    pub name: String,
    /// The files of the artifact, compared by their SHA-256.
    pub artifact: Vec<Comparison>,
    /// The inputs: model, teachers, data, method, verifiers, environment, seed, steps.
    pub inputs: Vec<Comparison>,
    /// Version, system, the processor's instruction sets, device and its libraries; if they differ, a replay may end in
    /// other bits.
    pub surroundings: Vec<Comparison>,
    /// Why the method, a verifier or the environment cannot be read. The rest was compared without it.
    pub unread: Option<Error>,
    /// Components that only the run's own `run.toml` names, by a path. They were compared by digest and not compiled.
    pub unnamed: Option<UnconfirmedComponents>,
    folder: PathBuf,
    /// The steps after which the method was changed.
    revised: Vec<i64>,
    settings: RunSettings,
}

/// The result of a replay.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The files of the artifact, compared by their SHA-256.
    pub artifact: Vec<Comparison>,
    /// The first metric that differs, except times.
    pub first_difference: Option<Comparison>,
    /// Executed steps.
    pub steps: u64,
    /// Seconds that the replay spent in steps and in the method's `finish`.
    pub seconds: f64,
}

impl Replay {
    /// Whether the replay ended in the same bits: every artifact file has the recorded digest, and no metric differs.
    #[must_use]
    pub fn same(&self) -> bool {
        self.first_difference.is_none() && self.artifact.iter().all(Comparison::is_same)
    }
}

/// Compares a finished run with its lock, and prepares its replay. `folder` is the run's. `set` overrides keys of its
/// run file, as `--set` does, except those that a replay fixes. With `offline`, fetches nothing over the network.
/// `compiling` says how components are compiled. Reads the model and the data. Compiles the components,
/// unless one of them cannot be read or is named by a path only in the run's own `run.toml`. Executes no step, writes
/// no file, and needs only the CPU.
///
/// # Errors
/// A folder without a finished run or with a link in it, a lock that cannot be read, data that only the run's own
/// `run.toml` names and that is no regular file, and a run that cannot be planned for another reason than an unreadable
/// method or verifier.
pub fn verify(folder: &Path, set: &[String], offline: bool, compiling: Compiling) -> Result<Verification, Error> {
    checkpoint::reject_links(folder)?;
    let recorded = read_lock(folder)?;
    let artifact = compare_files(recorded_files(folder, &recorded)?, folder)?;
    let overrides: Vec<String> = set.iter().cloned().chain(replay_overrides(&recorded)).collect();
    let mut settings = RunSettings::load(&folder.join(SETTINGS_FILE), &overrides)?;
    (settings.offline, settings.compiling) = (offline, compiling);
    settings.replay = replay_inputs(&recorded);
    inputs::check_data_files(&settings)?;
    let unnamed = UnconfirmedComponents::find(folder, &settings);
    let references = settings.references().into_iter();
    let components: Vec<_> = references.map(|found| open_package(&found?, settings.project())).collect();
    let can_plan = unnamed.is_none() && components.iter().all(Result::is_ok);
    let mut now =
        if can_plan { planned_lock(&settings)? } else { inputs::unplanned_lock_table(&settings, &components)? };
    add_environment(&settings, &mut now)?;
    let mut inputs = compare(&recorded, &now, &INPUT_KEYS);
    if !can_plan {
        inputs::remove_unknown(&mut inputs, &settings.component_keys(), &components);
    }
    Ok(Verification {
        name: file_name_text(folder.file_name().unwrap_or_default()),
        artifact,
        inputs,
        surroundings: compare(&recorded, &now, &ENVIRONMENT_KEYS),
        unread: components.into_iter().find_map(Result::err),
        unnamed,
        folder: folder.to_owned(),
        revised: revision_steps(&recorded),
        settings,
    })
}

impl Verification {
    /// Returns the folder of the run's method if the method is given as a folder and the digest of the component built
    /// there differs from the recorded one; `None` otherwise.
    #[must_use]
    pub fn changed_method(&self) -> Option<PathBuf> {
        let changed = self.inputs.iter().any(|input| input.what == "method.sha256" && !input.is_same());
        match self.settings.method_reference() {
            Ok(Reference::Folder(folder)) if changed => Some(folder),
            _ => None,
        }
    }

    /// Whether the method was changed during the run, so that the run cannot be replayed.
    #[must_use]
    pub fn was_revised(&self) -> bool {
        !self.revised.is_empty()
    }

    /// Replays the run from the first step to the last, in a temporary folder inside `above` that is removed at the
    /// end. Runs in a process started from `worker` if given, else in this process. The observer gets the replay's
    /// events. Returns the result even if it differs; `None` if `stop` was set before the last step.
    ///
    /// # Errors
    /// A run whose method was changed or cannot be read, a component that only the run's own `run.toml` names by a
    /// path, a device that is not available, and the error that ends the replay.
    pub fn replay(
        mut self,
        above: &Path,
        worker: Option<&Program>,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<Replay>, Error> {
        if self.was_revised() {
            let steps = self.revised.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let what = "the run cannot be replayed: its method was changed during the run";
            let why = format!("by `tunebox dev`, after step {steps}; the earlier versions were not kept");
            let hint = "train again with the present version of the method; that run can be replayed";
            return Err(path_error(&self.folder, what, why, hint));
        }
        if let Some(error) = self.unread {
            return Err(error);
        }
        if let Some(unnamed) = self.unnamed {
            return Err(unnamed.into());
        }
        let device = &self.settings.file.train.device;
        if let Err(error) = device::parse(device) {
            let what = format!("the run computed on `{device}`, which is not here");
            let hint =
                "replay it on a machine with that device; without `--replay`, inputs and results are compared anywhere";
            let problem = Explanation::new("training", what).with_hint(hint);
            return Err(Explanation { why: error.why(), ..problem }.into());
        }
        let scratch = files::temporary_folder(above, ".replay-")?;
        self.settings.file.run.folder = file_name_text(scratch.path().as_os_str());
        let summary = execute(self.settings, worker, observer, stop)?;
        if summary.interrupted {
            return Ok(None);
        }
        let recorded = self.artifact.into_iter().map(|file| (file.what, file.recorded)).collect();
        let artifact = compare_files(recorded, &summary.folder)?;
        let first_difference = first_difference(&self.folder, &summary.folder)?;
        Ok(Some(Replay { artifact, first_difference, steps: summary.step, seconds: summary.seconds }))
    }
}

/// Returns the `--set` arguments of a replay: as the folder of runs a path that no one can create, so that a replay
/// that tried to write a run would fail; the name `replay`; no checkpoint before the last step; and the keys `device`
/// and `compute` (number format of activations) of the run's lock `recorded` as `train.device` and `train.compute`, as
/// far as the lock has them.
fn replay_overrides(recorded: &Table) -> Vec<String> {
    let key = |key: &str| recorded.get(key).map(|value| format!("train.{key}={value}"));
    let own = ["run.folder=/dev/null/replay".into(), "run.name=replay".into(), "train.save-every=10000000".into()];
    own.into_iter().chain(key("device")).chain(key("compute")).collect()
}

/// Plans the run on the CPU in the default number format of activations, without executing it, and returns the lock
/// that it would have if it started now. The inputs are the same on every device.
fn planned_lock(settings: &RunSettings) -> Result<Table, Error> {
    let mut on_cpu = settings.clone();
    on_cpu.file.train.device = "cpu".into();
    on_cpu.file.train.compute = Compute::Auto;
    lock::write::lock_table(&plan(on_cpu)?.run)
}

/// Replaces the keys `tunebox` (the version), `system`, `processor`, `device` and `accelerator` in the lock `now` by
/// the values of this program and machine, for the device `train.device` of the settings. Removes `device` if it is not
/// available here. Keeps `accelerator` if the device reports none.
fn add_environment(settings: &RunSettings, now: &mut Table) -> Result<(), Error> {
    now.insert("tunebox".into(), env!("CARGO_PKG_VERSION").into());
    now.insert("system".into(), lock::write::system_name().into());
    now.insert("processor".into(), instruction_sets().into());
    now.remove("device");
    if let Ok(device) = device::parse(&settings.file.train.device) {
        now.insert("device".into(), Value::String(device::describe(&device)));
        let accelerator = device::info(&device)?.map(|about| Value::try_from(lock::write::accelerator_table(&about)));
        now.extend(accelerator.and_then(Result::ok).map(|accelerator| ("accelerator".to_owned(), accelerator)));
    }
    Ok(())
}

/// Returns the steps after which the method was changed during the run, from `method.revised` of its lock; empty if it
/// was not changed.
fn revision_steps(lock: &Table) -> Vec<i64> {
    let list = lock.get("method").and_then(|method| method.get("revised")?.as_array());
    list.into_iter().flatten().filter_map(|revision| revision.get("after")?.as_integer()).collect()
}

/// Returns the keys `clock` (the time that chat templates read), `model.name` and `extended` (earlier numbers of steps,
/// none if they are no such list) that a lock recorded for a replay; `None` if the lock lacks one of the first two.
fn replay_inputs(lock: &Table) -> Option<ReplayInputs> {
    let clock = lock.get("clock")?.as_integer()?;
    let steps = lock.get("steps").and_then(Value::as_integer).and_then(|steps| u64::try_from(steps).ok()).unwrap_or(0);
    let extended = lock.get("extended").cloned().and_then(|list| list.try_into::<Vec<Extension>>().ok());
    let extended = extended.filter(|list| length::is_plausible(list, steps)).unwrap_or_default();
    Some(ReplayInputs { clock, model: lock.get("model")?.get("name")?.as_str()?.to_owned(), extended })
}

/// Reads the lock of the run in `folder`. Fails if the folder holds none, with a folder of a similar name as the hint
/// if `folder` does not exist, and if the lock cannot be read or is no TOML.
fn read_lock(folder: &Path) -> Result<Table, Error> {
    let path = folder.join(lock::FILE);
    if !path.exists() {
        let similar = if folder.exists() { None } else { paths::did_you_mean(folder) };
        let hint = similar.unwrap_or_else(|| "give the folder that `tunebox train` named at its end".into());
        let why = "a run's folder holds `run.lock`, and there is none";
        return Err(path_error(folder, "there is no run here", why, hint));
    }
    lock::parse(&path, &lock::read_text(&path)?)
}

/// Compares files, given by name and recorded SHA-256, with the files of those names in a folder, in order. The value
/// found for a file that does not exist is `missing`. Fails for a file that cannot be read.
fn compare_files(recorded: Vec<(String, String)>, folder: &Path) -> Result<Vec<Comparison>, Error> {
    let compared = recorded.into_iter().map(|(name, recorded)| {
        let path = folder.join(&name);
        let found = if path.exists() { tunebox_model::digest(&[path])? } else { "missing".into() };
        Ok(Comparison { what: name, recorded, found })
    });
    compared.collect()
}

/// Returns the name and the SHA-256 of each of the artifact's files, from the lock `recorded` of the run in `folder`.
///
/// # Errors
/// The lock of an unfinished run, and an entry without a digest or whose name leads out of the folder.
fn recorded_files(folder: &Path, recorded: &Table) -> Result<Vec<(String, String)>, Error> {
    if !lock::is_finished(recorded) {
        return Err(unfinished_error(folder, "its `run.lock` lists no file of an artifact yet"));
    }
    let files = recorded.get("artifact").and_then(Value::as_array).into_iter().flatten();
    let entry = |file: &Value| {
        let field = |key| file.get(key).and_then(Value::as_str).map(str::to_owned);
        let (name, digest) = (field("name")?, field("sha256")?);
        (Path::new(&name).file_name()? == name.as_str()).then_some((name, digest))
    };
    let damaged = || lock::damaged(&folder.join(lock::FILE), "an entry of `artifact` has no name or no digest");
    files.map(entry).collect::<Option<_>>().ok_or_else(damaged)
}

/// Converts a file name to text; bytes that are not UTF-8 are replaced.
fn file_name_text(name: &std::ffi::OsStr) -> String {
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
