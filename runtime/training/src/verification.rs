//! A finished run looked at again: are its files those that it wrote, is what went into it still the same,
//! and does it end in the same bits when it is run again.
//!
//! All of that is read off `run.lock`. The card is left out: it is text, and says how long things took.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use toml::{Table, Value};
use tunebox_compute::device;
use tunebox_compute::explain::Explain;
use tunebox_package::Reference;
use tunebox_sandbox::Compiling;
use tunebox_sandbox::child::Program;

use crate::configuration::{Again, ComputeChoice, RunSettings};
use crate::error::Error;
use crate::files;
use crate::lock;
use crate::metrics;
use crate::observer::Observer;
use crate::plan::plan;
use crate::run::Outcome;
use crate::worker::carry_out;

/// The file with a run's settings, in its folder.
const SETTINGS: &str = "run.toml";

/// What must be the same for a run to be the same.
const INPUTS: [&str; 7] = ["model", "data", "validation", "method", "verifier", "seed", "steps"];

/// What may explain other bits.
const SURROUNDINGS: [&str; 4] = ["tunebox", "system", "device", "accelerator"];

/// One thing that was compared.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Comparison {
    /// What it is: a key of the lock, such as `model.sha256`, or a file.
    pub what: String,
    /// What the run wrote down.
    pub recorded: String,
    /// What was found now.
    pub found: String,
}

impl Comparison {
    /// Whether nothing changed.
    #[must_use]
    pub fn same(&self) -> bool {
        self.recorded == self.found
    }
}

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

/// Compares a finished run with its lock. Reads the model and the data, compiles the method; runs no step, and needs no
/// device but the CPU.
///
/// # Errors
/// A folder that holds no finished run, a lock that cannot be read, and whatever keeps the run from being planned.
pub fn verify(folder: &Path, offline: bool, compiling: Compiling) -> Result<Verification, Error> {
    let recorded = read_lock(folder)?;
    let artifact = beside(recorded_files(folder, &recorded)?, folder)?;
    let around = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let place = files::temporary_folder(around.parent().unwrap_or(&around), ".replay-")?;
    let mut settings = RunSettings::load(&folder.join(SETTINGS), &overrides(place.path(), &recorded))?;
    (settings.offline, settings.compiling) = (offline, compiling);
    settings.again = again(&recorded);
    let now = lock_now(folder, &settings)?;
    Ok(Verification {
        name: text(folder.file_name().unwrap_or_default()),
        artifact,
        inputs: compare(&recorded, &now, &INPUTS),
        surroundings: compare(&recorded, &now, &SURROUNDINGS),
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

    /// Runs the run again, from the first step to the last, in a folder of its own that is removed at the end; by
    /// `worker` where something of it is not built in. `None` when `stop` was raised on the way.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] where the run's device is not there, [`Error::Revised`] where its method changed on the way,
    /// and whatever ends the run.
    pub fn replay(
        self,
        worker: Option<&Program>,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<Replay>, Error> {
        if !self.revised.is_empty() {
            return Err(Error::Revised { folder: self.folder, after: self.revised });
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
/// CPU; the device is looked at beside it, and left out where it is not there.
fn lock_now(folder: &Path, settings: &RunSettings) -> Result<Table, Error> {
    let mut on_cpu = settings.clone();
    on_cpu.file.train.device = "cpu".into();
    on_cpu.file.train.compute = ComputeChoice::Auto;
    let mut now = parse(folder, &lock::lock(&plan(on_cpu)?.run, None)?)?;
    now.remove("device");
    if let Ok(device) = device::parse(&settings.file.train.device) {
        now.insert("device".into(), Value::String(device::describe(&device)));
        let about = device::about(&device)?;
        let accelerator = about.as_ref().and_then(|about| Value::try_from(lock::accelerator(about)).ok());
        if let Some(accelerator) = accelerator {
            now.insert("accelerator".into(), accelerator);
        }
    }
    Ok(now)
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
        return Err(Error::Unfinished { folder: folder.to_owned() });
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

/// The leaves of some keys, in the order of the lock; `absent` where one side lacks it.
fn compare(recorded: &Table, found: &Table, keys: &[&str]) -> Vec<Comparison> {
    let (mut then, mut now) = (Vec::new(), Vec::new());
    for key in keys {
        recorded.get(*key).into_iter().for_each(|value| leaves(key, value, &mut then));
        found.get(*key).into_iter().for_each(|value| leaves(key, value, &mut now));
    }
    let other = |what: &String, side: &[(String, String)]| {
        side.iter().find(|(name, _)| name == what).map_or("absent".to_owned(), |(_, value)| value.clone())
    };
    let added = now.iter().filter(|(what, _)| then.iter().all(|(known, _)| known != what));
    let both = then.iter().map(|(what, value)| (what, value.clone(), other(what, &now)));
    both.chain(added.map(|(what, value)| (what, "absent".to_owned(), value.clone())))
        .map(|(what, recorded, found)| Comparison { what: what.clone(), recorded, found })
        .collect()
}

fn leaves(name: &str, value: &Value, into: &mut Vec<(String, String)>) {
    match value {
        Value::Table(table) => {
            // Where things lie is no part of what they are, nor is what they were before; their digests are.
            let lasting = table.iter().filter(|(key, _)| !["name", "source", "revised"].contains(&key.as_str()));
            lasting.for_each(|(key, value)| leaves(&format!("{name}.{key}"), value, into));
        }
        Value::Array(items) if items.iter().any(Value::is_table) => {
            items.iter().enumerate().for_each(|(at, value)| leaves(&format!("{name}.{at}"), value, into));
        }
        Value::String(value) => into.push((name.to_owned(), value.clone())),
        other => into.push((name.to_owned(), other.to_string())),
    }
}

fn text(name: &std::ffi::OsStr) -> String {
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
