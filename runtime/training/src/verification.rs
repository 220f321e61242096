//! A finished run looked at again: are its files those that it wrote, is what went into it still the same,
//! and does it end in the same bits when it is run again.
//!
//! All of that is read off `run.lock`. The card is left out: it is text, and says how long things took.

mod comparison;
mod components;
mod inputs;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use toml::{Table, Value};
use tunebox_compute::device;
use tunebox_foundation::explain::Explain;
use tunebox_package::Reference;
use tunebox_sandbox::Compiling;
use tunebox_sandbox::child::Program;

use crate::configuration::{Again, ComputeChoice, RunSettings};
use crate::error::Error;
use crate::lock;
use crate::metrics;
use crate::observer::Observer;
use crate::plan::plan;
use crate::run::Outcome;
use crate::runs::unfinished;
use crate::worker::carry_out;
use tunebox_foundation::files;

pub use comparison::Comparison;
use comparison::compare;
pub use components::Unnamed;

/// The file with a run's settings, in its folder.
const SETTINGS: &str = "run.toml";

/// What must be the same for a run to be the same.
const INPUTS: [&str; 7] = ["model", "data", "validation", "method", "verifier", "seed", "steps"];

/// What may explain other bits.
const SURROUNDINGS: [&str; 4] = ["tunebox", "system", "device", "accelerator"];

/// A finished run beside what it wrote down, ready to be run again.
pub struct Verification {
    /// The run's name.
    pub name: String,
    /// The files of the artifact.
    pub artifact: Vec<Comparison>,
    /// What went into the run: model, data, method, verifiers, seed, steps.
    pub inputs: Vec<Comparison>,
    /// Version, system, device and its libraries: where they differ, other bits are no surprise.
    pub surroundings: Vec<Comparison>,
    /// Why the method or a verifier cannot be read; what could be compared without it was.
    pub unread: Option<Error>,
    /// What only the run's own file names by a path: its bytes were compared, and nothing of it was compiled.
    pub unnamed: Option<Unnamed>,
    folder: PathBuf,
    /// After which steps the method changed.
    revised: Vec<i64>,
    settings: RunSettings,
    place: tempfile::TempDir,
}

/// How a run that was run again compares.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The files of the artifact: their digests then and now.
    pub artifact: Vec<Comparison>,
    /// The first number of the metrics that differs, times left out.
    pub first_difference: Option<Comparison>,
    /// Steps that were run.
    pub steps: u64,
    /// Seconds that they took.
    pub seconds: f64,
}

impl Replay {
    /// Whether every bit is the same.
    #[must_use]
    pub fn same(&self) -> bool {
        self.first_difference.is_none() && self.artifact.iter().all(Comparison::same)
    }
}

/// Compares a finished run with its lock; `set` are keys of its run file that the person gives, as by `--set`. Reads the
/// model and the data; compiles the method, unless only the run names it, by a path; runs no step, and needs no device but
/// the CPU.
///
/// # Errors
/// A folder that holds no finished run, a lock that cannot be read, data that only the run's own file names and that are no
/// ordinary file, and whatever keeps the run from being planned but a method or verifier that cannot be read.
pub fn verify(folder: &Path, set: &[String], offline: bool, compiling: Compiling) -> Result<Verification, Error> {
    let recorded = read_lock(folder)?;
    let artifact = beside(recorded_files(folder, &recorded)?, folder)?;
    let around = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let place = files::temporary_folder(around.parent().unwrap_or(&around), ".replay-")?;
    let overrides: Vec<String> = set.iter().cloned().chain(overrides(place.path(), &recorded)).collect();
    let mut settings = RunSettings::load(&folder.join(SETTINGS), &overrides)?;
    (settings.offline, settings.compiling) = (offline, compiling);
    settings.again = again(&recorded);
    inputs::expect_files(&settings)?;
    let (components, unnamed) = (components::read(&settings), Unnamed::of(folder, &settings));
    let whole = unnamed.is_none() && components.iter().all(Result::is_ok);
    let mut now = if whole { planned(folder, &settings)? } else { inputs::without_compiling(&settings, &components)? };
    surround(&settings, &mut now)?;
    let mut inputs = compare(&recorded, &now, &INPUTS);
    if !whole {
        inputs::leave_unknown_out(&mut inputs, &components);
    }
    Ok(Verification {
        name: text(folder.file_name().unwrap_or_default()),
        artifact,
        inputs,
        surroundings: compare(&recorded, &now, &SURROUNDINGS),
        unread: components.into_iter().find_map(Result::err),
        unnamed,
        folder: folder.to_owned(),
        revised: revised(&recorded),
        settings,
        place,
    })
}

impl Verification {
    /// The folder of the run's method, where what is built there is no longer what the run was done with.
    #[must_use]
    pub fn changed_method(&self) -> Option<PathBuf> {
        let changed = self.inputs.iter().any(|input| input.what == "method.sha256" && !input.same());
        match self.settings.method_reference() {
            Ok(Reference::Folder(folder)) if changed => Some(folder),
            _ => None,
        }
    }

    /// Whether the method was changed while the run went on, so that it cannot be done again.
    #[must_use]
    pub fn was_revised(&self) -> bool {
        !self.revised.is_empty()
    }

    /// Runs the run again, from the first step to the last, in a folder of its own that is removed at the end; by
    /// `worker` where something of it is not built in. `None` when `stop` was raised on the way.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] where the run's device is not there, [`Error::Revised`] where its method changed on the way,
    /// [`Error::Unnamed`] where only the run's own file names a path of what is to run, whatever kept that from being read,
    /// and whatever ends the run.
    pub fn replay(
        self,
        worker: Option<&Program>,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<Replay>, Error> {
        if self.was_revised() {
            return Err(Error::Revised { folder: self.folder, after: self.revised });
        }
        if let Some(error) = self.unread {
            return Err(error);
        }
        if let Some(unnamed) = self.unnamed {
            return Err(unnamed.into());
        }
        if let Err(error) = device::parse(&self.settings.file.train.device) {
            return Err(Error::Elsewhere { device: self.settings.file.train.device, why: error.why() });
        }
        let Outcome::Finished(summary) = carry_out(self.settings, worker, observer, stop)? else { return Ok(None) };
        let recorded = self.artifact.into_iter().map(|file| (file.what, file.recorded)).collect();
        let artifact = beside(recorded, &summary.folder)?;
        let first_difference = metrics::first_difference(&self.folder, &summary.folder)?;
        drop(self.place);
        Ok(Some(Replay { artifact, first_difference, steps: summary.step, seconds: summary.seconds }))
    }
}

/// The run elsewhere, only its last checkpoint, and the device that `auto` came to.
fn overrides(place: &Path, recorded: &Table) -> Vec<String> {
    let place = Value::String(text(place.as_os_str()));
    let device = recorded.get("device").map(|device| format!("train.device={device}"));
    let own = [format!("run.folder={place}"), "run.name=replay".into(), "train.save-every=10000000".into()];
    own.into_iter().chain(device).collect()
}

/// What the lock of the same run would say now. What goes into a run is the same on every device, so it is planned on the
/// CPU.
fn planned(folder: &Path, settings: &RunSettings) -> Result<Table, Error> {
    let mut on_cpu = settings.clone();
    on_cpu.file.train.device = "cpu".into();
    on_cpu.file.train.compute = ComputeChoice::Auto;
    parse(folder, &lock::lock(&plan(on_cpu)?.run, None)?)
}

/// The surroundings of now; of the device, nothing where it is not there.
fn surround(settings: &RunSettings, now: &mut Table) -> Result<(), Error> {
    now.insert("tunebox".into(), env!("CARGO_PKG_VERSION").into());
    now.insert("system".into(), lock::system().into());
    now.remove("device");
    if let Ok(device) = device::parse(&settings.file.train.device) {
        now.insert("device".into(), Value::String(device::describe(&device)));
        let about = device::info(&device)?;
        let accelerator = about.as_ref().and_then(|about| Value::try_from(lock::accelerator(about)).ok());
        if let Some(accelerator) = accelerator {
            now.insert("accelerator".into(), accelerator);
        }
    }
    Ok(())
}

/// After which steps the method changed, by a lock.
fn revised(lock: &Table) -> Vec<i64> {
    let list = lock.get("method").and_then(|method| method.get("revised")?.as_array());
    list.into_iter().flatten().filter_map(|revision| revision.get("after")?.as_integer()).collect()
}

fn again(lock: &Table) -> Option<Again> {
    let clock = lock.get("clock")?.as_integer()?;
    Some(Again { clock, model: lock.get("model")?.get("name")?.as_str()?.to_owned() })
}

fn read_lock(folder: &Path) -> Result<Table, Error> {
    let path = folder.join(lock::FILE);
    if !path.exists() {
        return Err(Error::NoRun { folder: folder.to_owned() });
    }
    parse(folder, &files::read_text(&path)?)
}

fn parse(folder: &Path, text: &str) -> Result<Table, Error> {
    text.parse().map_err(|error: toml::de::Error| Error::Damaged {
        path: folder.join(lock::FILE),
        what: error.message().to_owned(),
    })
}

/// Files by name and recorded digest, each with its digest in a folder as it is now.
fn beside(recorded: Vec<(String, String)>, folder: &Path) -> Result<Vec<Comparison>, Error> {
    let compared = recorded.into_iter().map(|(name, recorded)| {
        let path = folder.join(&name);
        let found = if path.exists() { tunebox_model::digest(&[path])? } else { "missing".into() };
        Ok(Comparison { what: name, recorded, found })
    });
    compared.collect()
}

/// Names and digests of the artifact's files. A name that leads out of the folder is none.
fn recorded_files(folder: &Path, recorded: &Table) -> Result<Vec<(String, String)>, Error> {
    if !lock::is_finished(recorded) {
        return Err(unfinished(folder, "its `run.lock` lists no file of an artifact yet"));
    }
    let files = recorded.get("artifact").and_then(Value::as_array).into_iter().flatten();
    let entry = |file: &Value| {
        let field = |key| file.get(key).and_then(Value::as_str).map(str::to_owned);
        let (name, digest) = (field("name")?, field("sha256")?);
        (Path::new(&name).file_name()? == name.as_str()).then_some((name, digest))
    };
    files.map(entry).collect::<Option<_>>().ok_or_else(|| Error::Damaged {
        path: folder.join(lock::FILE),
        what: "an entry of `artifact` has no name or no digest".into(),
    })
}

fn text(name: &std::ffi::OsStr) -> String {
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
