//! How fast training, scoring and writing are on this machine: made-up tokens through a real model, a real method and
//! the real loop, beside what the machine's plain products reach.
//!
//! Nothing is left behind: the run has a folder of its own that is removed.

pub(crate) mod made_up;
mod memory;
mod precision;
mod reading;
mod start;
mod steps;
mod work;

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use tunebox_compute::device;
use tunebox_model::{Policy, PolicySettings};
use tunebox_sandbox::Compiling;

use crate::configuration::{Half, Problem, RunSettings};
use crate::error::Error;
use crate::plan::open_model;
use crate::sample::Sample;
use tunebox_foundation::files;

pub use precision::StoredAs;
pub use reading::{Completions, Generation, Scoring};
pub use start::StartUp;
pub use steps::{Overhead, Training};

/// A part of what can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Steps of a run, and how near they come to what plain products reach.
    Training,
    /// Rows scored without learning.
    Scoring,
    /// Completions, one and several side by side.
    Generation,
    /// Opening the model; checking, compiling and instantiating the method.
    StartUp,
    /// What the sandbox takes of the steps, which are made for it if training is not measured.
    Overhead,
}

/// What is measured.
#[derive(Debug, Clone)]
pub struct BenchSettings {
    /// A model: folder, `.gguf` file, or hub name; the tiny model of the sample without one.
    pub model: Option<String>,
    /// How the base's weights are stored; as in the model's files without one.
    pub precision: Option<StoredAs>,
    /// The parts to measure; all if there are none.
    pub only: BTreeSet<Phase>,
    /// A method that learns.
    pub method: String,
    /// Records of a step.
    pub batch: u32,
    /// Tokens of a row; a prompt has half of it and its completions the rest.
    pub sequence: u32,
    /// The rank of the adapter.
    pub rank: u32,
    /// Steps that are timed, after one that is not.
    pub steps: u32,
    /// Completions written side by side, at most [`tunebox_model::generate::BATCH`], each after a prompt of its own;
    /// one measurement each.
    pub prompts: Vec<u32>,
    /// Tokens of such a prompt.
    pub prompt_tokens: u32,
    /// Tokens of such a completion.
    pub new_tokens: u32,
    /// `cpu`, `cuda[:n]` or `metal`.
    pub device: String,
    /// More settings of the run, as in `method.completions=8`.
    pub set: Vec<String>,
    /// Never ask the network for a model.
    pub offline: bool,
    /// Measure a method that is not built in as well: it runs in this process.
    pub in_process: bool,
}

impl BenchSettings {
    fn wants(&self, phase: Phase) -> bool {
        self.only.is_empty() || self.only.contains(&phase)
    }
}

/// What was measured. Rates are of useful tokens; the median of the timed steps counts. In JSON the keys of all parts
/// stand side by side, and those of a part that was not measured are absent.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The model, as it was named; `sample` for the tiny one.
    pub model: String,
    /// The method and its version.
    pub method: String,
    /// How the base's weights are stored: `f32`, `bf16`, `f16`, `nf4`, or `gguf` for the formats that such a file mixes.
    pub precision: String,
    /// Records of a step.
    pub batch: u32,
    /// Tokens of a row.
    pub sequence: u32,
    /// The rank of the adapter.
    pub rank: u32,
    /// Threads that compute.
    pub threads: usize,
    /// Steps of a run.
    #[serde(flatten)]
    pub training: Option<Training>,
    /// What the sandbox took of them.
    #[serde(flatten)]
    pub overhead: Option<Overhead>,
    /// Rows without learning.
    #[serde(flatten)]
    pub scoring: Option<Scoring>,
    /// Completions.
    #[serde(flatten)]
    pub generation: Option<Generation>,
    /// The way to the first step.
    #[serde(flatten)]
    pub start_up: Option<StartUp>,
}

/// Measures. `tell` hears what comes next.
///
/// # Errors
/// Whatever keeps such a run from being planned or carried out; methods that do not learn from rows.
pub fn bench(settings: &BenchSettings, tell: &mut dyn FnMut(&str)) -> Result<Measured, Error> {
    let place = files::temporary_folder(&std::env::temp_dir(), "tunebox-bench-")?;
    let run_settings = prepared(settings, place.path(), tell)?;
    let mut measured = described(settings)?;
    if settings.wants(Phase::Training) || settings.wants(Phase::Overhead) {
        tell("training steps");
        let steps = steps::measure(settings, &run_settings)?;
        measured.precision = steps.precision.into();
        measured.training = Some(steps.training).filter(|_| settings.wants(Phase::Training));
        measured.overhead = Some(steps.overhead).filter(|_| settings.wants(Phase::Overhead));
    }
    let rest = [Phase::StartUp, Phase::Scoring, Phase::Generation];
    if rest.into_iter().any(|phase| settings.wants(phase)) {
        without_steps(settings, &run_settings, place.path(), tell, &mut measured)?;
    }
    Ok(measured)
}

/// The parts that need a model and no run.
fn without_steps(
    settings: &BenchSettings,
    run_settings: &RunSettings,
    place: &Path,
    tell: &mut dyn FnMut(&str),
    measured: &mut Measured,
) -> Result<(), Error> {
    memory::reset_peak(&device::parse(&settings.device)?)?;
    let (open_seconds, model) = start::timed(|| open_model(run_settings))?;
    measured.precision = precision::name(&model).into();
    if settings.wants(Phase::StartUp) {
        tell("opening, compiling and instantiating");
        measured.start_up = Some(start::measure(&settings.method, &model, open_seconds, place)?);
    }
    let policy = Policy::open(reading::without_end(model), None, PolicySettings::default())?;
    // Writing takes less memory than scoring, so that its peak is its own.
    if settings.wants(Phase::Generation) {
        tell("writing");
        measured.generation = Some(reading::generation(&policy, settings)?);
    }
    if settings.wants(Phase::Scoring) {
        tell("scoring");
        measured.scoring = Some(reading::score(&policy, settings.batch as usize, settings.sequence as usize)?);
    }
    Ok(())
}

/// What is known before anything is measured.
fn described(settings: &BenchSettings) -> Result<Measured, Error> {
    let method = start::method(&settings.method)?;
    Ok(Measured {
        model: settings.model.clone().unwrap_or_else(|| "sample".into()),
        method: format!("{} {}", method.manifest.name, method.manifest.version),
        precision: String::new(),
        batch: settings.batch,
        sequence: settings.sequence,
        rank: settings.rank,
        threads: rayon::current_num_threads(),
        training: None,
        overhead: None,
        scoring: None,
        generation: None,
        start_up: None,
    })
}

/// The run file of a benchmark over the model in the precision that was asked for.
fn prepared(settings: &BenchSettings, place: &Path, tell: &mut dyn FnMut(&str)) -> Result<RunSettings, Error> {
    let model = match &settings.model {
        Some(model) => model.clone(),
        None => Sample::embedded().ok_or(Error::NoSample)?.unpack(place)?.join("model").display().to_string(),
    };
    let given = run_settings(settings, &model, place)?;
    if !settings.in_process && !given.is_all_built_in() {
        return Err(not_built_in(&given));
    }
    let Some(precision) = settings.precision.filter(|precision| precision.setting().is_none()) else {
        return Ok(given);
    };
    tell("storing the model's weights anew");
    let folder = place.join("stored");
    if !precision::store(&given, precision, &folder)? {
        return Ok(given);
    }
    run_settings(settings, &folder.display().to_string(), place)
}

/// A worker would be timed with the pipe to it, so strangers are not measured unasked.
fn not_built_in(settings: &RunSettings) -> Error {
    let what = "a benchmark runs in this process, and what is not built in belongs into a worker".to_owned();
    let hint = "`--in-process` measures it here, if you trust it".to_owned();
    settings.wrong("method.use", Half::Value, Problem::Conflict { what, hint })
}

/// The run file of a benchmark, as it would be written by hand.
fn run_settings(settings: &BenchSettings, model: &str, place: &Path) -> Result<RunSettings, Error> {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut overrides = vec![
        format!("model.path={}", quoted(model)),
        "data.path=\"made up\"".into(),
        "data.shuffle=false".into(),
        format!("data.max-length={}", settings.sequence),
        format!("method.use={}", quoted(&settings.method)),
        format!("train.batch={}", settings.batch),
        format!("train.steps={}", settings.steps + 1),
        format!("train.adapter.rank={}", settings.rank),
        format!("train.device={}", quoted(&settings.device)),
        format!("run.folder={}", quoted(&place.to_string_lossy())),
        "run.name=bench".into(),
        "train.rate=1e-4".into(),
    ];
    overrides.extend(settings.precision.and_then(StoredAs::setting).map(str::to_owned));
    overrides.extend(settings.set.iter().cloned());
    let mut run_settings = RunSettings::from_overrides(&overrides)?;
    run_settings.offline = settings.offline;
    run_settings.compiling = Compiling::default();
    Ok(run_settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(only: &[Phase]) -> BenchSettings {
        BenchSettings {
            model: None,
            precision: None,
            only: only.iter().copied().collect(),
            method: "lora".into(),
            batch: 2,
            sequence: 16,
            rank: 2,
            steps: 1,
            prompts: vec![1, 3],
            prompt_tokens: 4,
            new_tokens: 5,
            device: "cpu".into(),
            set: Vec::new(),
            offline: true,
            in_process: false,
        }
    }

    fn keys(measured: &Measured) -> Vec<String> {
        let value = serde_json::to_value(measured).unwrap();
        value.as_object().unwrap().keys().cloned().collect()
    }

    const ALWAYS: [&str; 7] = ["model", "method", "precision", "batch", "sequence", "rank", "threads"];

    #[test]
    fn only_what_is_asked_for_is_measured_and_told() {
        let mut told = Vec::new();
        let writing = bench(&settings(&[Phase::Generation]), &mut |what| told.push(what.to_owned())).unwrap();
        assert_eq!(told, ["writing"]);
        let wanted = ["written_tokens_per_second", "written", "generation_peak_bytes"];
        assert_eq!(keys(&writing), [&ALWAYS[..], &wanted].concat());

        let sandbox = bench(&settings(&[Phase::Overhead]), &mut |_| {}).unwrap();
        assert_eq!(keys(&sandbox), [&ALWAYS[..], &["guest_share", "host_calls"]].concat());
        assert_eq!((sandbox.precision, writing.precision), ("bf16".into(), "bf16".into()));
    }

    #[test]
    fn weights_are_kept_in_the_precision_asked_for() {
        for (precision, name) in [(StoredAs::Bf16, "bf16"), (StoredAs::F32, "f32"), (StoredAs::Nf4, "nf4")] {
            let settings = BenchSettings { precision: Some(precision), ..settings(&[Phase::Scoring]) };
            let measured = bench(&settings, &mut |_| {}).unwrap();
            assert_eq!(measured.precision, name);
            assert!(measured.scoring.unwrap().scored_tokens_per_second > 0.0);
        }
    }
}
