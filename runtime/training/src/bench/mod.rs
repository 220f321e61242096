//! Measures the speed of training, scoring and generation on this machine: random tokens through a model, a method and
//! the loop of a run, compared with the speed of matrix products. The run's folder is removed.

mod inference;
mod settings;
mod start;
mod steps;

use std::path::Path;

use serde::Serialize;
use tunebox_compute::fused::{instruction_sets, vector_lanes};
use tunebox_compute::precision::Base;
use tunebox_compute::{DType, device};
use tunebox_foundation::files;
use tunebox_model::merge::merge;
use tunebox_model::{Model, Policy, PolicySettings, Source};

use crate::configuration::{RandomRecords, RunSettings, Underline};
use crate::error::Error;
use crate::plan::{open_model, reset_peak};
use crate::sample;

pub use inference::{Completions, Generation, Scoring};
pub use settings::{BenchSettings, Phase};
pub use start::StartUp;
pub use steps::{Overhead, Training};

/// The results of a benchmark. Rates count the tokens of the data; step times are medians. In JSON the keys of all
/// phases are on one level, and those of a phase that was not measured are absent.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Measured {
    /// The model as the settings name it; `sample` for the embedded one.
    pub model: String,
    /// The method and its version.
    pub method: String,
    /// The number format of the base model: `f32`, `bf16`, `f16`, `nf4`, `q8_0`, or `gguf` for the mixed formats of
    /// such a file.
    pub precision: String,
    /// Records in a step.
    pub batch: u32,
    /// Tokens of a row.
    pub sequence: u32,
    /// The rank of the adapter.
    pub rank: u32,
    /// Number of threads that compute on the CPU.
    pub threads: usize,
    /// The instruction sets of the CPU that the program uses, such as `AVX2, FMA`; empty for none.
    pub processor: String,
    /// How many f32 numbers its vectors hold; 1 without vectors.
    pub vector_lanes: usize,
    /// The training steps.
    #[serde(flatten)]
    pub training: Option<Training>,
    /// The cost of the sandbox.
    #[serde(flatten)]
    pub overhead: Option<Overhead>,
    /// Scoring rows.
    #[serde(flatten)]
    pub scoring: Option<Scoring>,
    /// Generating completions.
    #[serde(flatten)]
    pub generation: Option<Generation>,
    /// Starting a run.
    #[serde(flatten)]
    pub start_up: Option<StartUp>,
}

/// Executes a benchmark and returns its results: first training steps, then start-up, generation and scoring. Leaves
/// out phases that `settings.only` does not list, unless that is empty. Calls `progress` with a description of each
/// phase as it begins. Works in a temporary folder, which it removes.
///
/// # Errors
/// A run that cannot be planned or executed, a method that does not learn from rows, a component that is not built in
/// without `in_process`, and a device that is not available.
pub fn bench(settings: &BenchSettings, progress: &mut dyn FnMut(&str)) -> Result<Measured, Error> {
    let folder = files::temporary_folder(&std::env::temp_dir(), "tunebox-bench-")?;
    let run_settings = prepare(settings, folder.path(), progress)?;
    let mut measured = initial_results(settings)?;
    if settings.is_measured(Phase::Training) || settings.is_measured(Phase::Overhead) {
        progress("training steps");
        steps::measure_steps(settings, &run_settings, &mut measured)?;
    }
    let rest = [Phase::StartUp, Phase::Scoring, Phase::Generation];
    if rest.into_iter().any(|phase| settings.is_measured(phase)) {
        measure_model(settings, &run_settings, folder.path(), progress, &mut measured)?;
    }
    Ok(measured)
}

/// Opens the model and measures start-up, generation and scoring, in this order and as far as the settings want them.
/// `folder` gets the cache of compiled code. Writes the results and the model's number format into `measured`. First
/// resets the peak memory of the process and the device.
fn measure_model(
    settings: &BenchSettings,
    run_settings: &RunSettings,
    folder: &Path,
    progress: &mut dyn FnMut(&str),
    measured: &mut Measured,
) -> Result<(), Error> {
    reset_peak(&device::parse(&settings.device)?)?;
    let (open_seconds, model) = start::measure_seconds(|| open_model(run_settings))?;
    measured.precision = precision_name(&model);
    if settings.is_measured(Phase::StartUp) {
        progress("opening, compiling and instantiating");
        measured.start_up = Some(start::measure_start(&settings.method, &model, open_seconds, folder)?);
    }
    let policy = Policy::open(inference::without_end_tokens(model), None, PolicySettings::default())?;
    // Generation needs less memory than scoring, so it comes first: each peak is that of its own phase.
    if settings.is_measured(Phase::Generation) {
        progress("writing");
        measured.generation = Some(inference::measure_generation(&policy, settings)?);
    }
    if settings.is_measured(Phase::Scoring) {
        progress("scoring");
        measured.scoring =
            Some(inference::measure_scoring(&policy, settings.batch as usize, settings.sequence as usize)?);
    }
    Ok(())
}

/// Returns the results before any measurement: model, method, sizes and threads, with every phase absent and no number
/// format. Opens the method's package for its version.
fn initial_results(settings: &BenchSettings) -> Result<Measured, Error> {
    let method = start::open_method(&settings.method)?;
    Ok(Measured {
        model: settings.model.clone().unwrap_or_else(|| "sample".into()),
        method: format!("{} {}", method.manifest.name, method.manifest.version),
        batch: settings.batch,
        sequence: settings.sequence,
        rank: settings.rank,
        threads: rayon::current_num_threads(),
        processor: instruction_sets(),
        vector_lanes: vector_lanes(),
        ..Measured::default()
    })
}

/// Builds the settings of the benchmark's run. Unpacks the sample below `folder` if no model is given, and writes the
/// model in the type `settings.dtype` into `folder/stored`, for the run to use, if its files have another. Fails for a
/// method or verifier that is not built in, unless `settings.in_process` allows it.
fn prepare(settings: &BenchSettings, folder: &Path, progress: &mut dyn FnMut(&str)) -> Result<RunSettings, Error> {
    let model = match &settings.model {
        Some(model) => model.clone(),
        None => sample::unpack(folder)?.join("model").display().to_string(),
    };
    let given = run_settings(settings, &model, folder)?;
    if !settings.in_process && !given.is_all_built_in() {
        // A worker process would be timed with the pipe to it.
        let what = "a benchmark runs in this process, where only built-in methods and verifiers may run";
        let hint = "`--in-process` measures it here, if you trust it";
        return Err(given.conflict("method.use", Underline::Value, what, hint));
    }
    let Some(dtype) = settings.dtype else { return Ok(given) };
    progress("converting the model's weights");
    let stored = folder.join("stored");
    if !store_model(&given, dtype, &stored)? {
        return Ok(given);
    }
    run_settings(settings, &stored.display().to_string(), folder)
}

/// Builds the settings of the benchmark's run on the model at the path or name `model`, with as many random records as
/// a step takes and all files below `folder`. Plans one step more than the timed ones, for warming up. The `set`
/// arguments of the benchmark replace other settings.
fn run_settings(settings: &BenchSettings, model: &str, folder: &Path) -> Result<RunSettings, Error> {
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
        format!("run.folder={}", quoted(&folder.to_string_lossy())),
        "run.name=bench".into(),
        "train.rate=1e-4".into(),
        "train.show-completions=0".into(),
    ];
    overrides.extend(settings.set.iter().cloned());
    let mut run_settings = RunSettings::from_overrides(&overrides)?;
    run_settings.offline = settings.offline;
    let (records, sequence) = (settings.batch as usize, settings.sequence as usize);
    run_settings.random = Some(RandomRecords { records, sequence, seed: 1 });
    Ok(run_settings)
}

/// Returns the name of a model's number format: `nf4`, `q8_0`, `gguf` for the mixed formats of such a file, or the type
/// of its weights, such as `bf16`.
fn precision_name(model: &Model) -> String {
    match model.weights.precision().base() {
        Base::Stored if is_gguf(model) => "gguf".into(),
        Base::Stored => model.weights.dtype().as_str().into(),
        base => base.to_string(),
    }
}

/// Writes the run's model into a folder with weights of the type `dtype`, and returns true. Returns false and writes
/// nothing if the weights have that type already; a GGUF file is always converted.
fn store_model(settings: &RunSettings, dtype: DType, folder: &Path) -> Result<bool, Error> {
    let model = open_model(settings)?;
    if !is_gguf(&model) && model.weights.dtype() == dtype {
        return Ok(false);
    }
    merge(&Policy::open(model, None, PolicySettings::default())?, folder, dtype)?;
    Ok(true)
}

/// Whether the model was opened from a GGUF file; false for a model without a file.
fn is_gguf(model: &Model) -> bool {
    model.source().is_some_and(Source::is_gguf)
}

#[cfg(test)]
mod tests {
    use tunebox_compute::DType;

    use super::*;

    fn settings(only: &[Phase]) -> BenchSettings {
        BenchSettings {
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
            offline: true,
            ..BenchSettings::default()
        }
    }

    fn keys(measured: &Measured) -> Vec<String> {
        let value = serde_json::to_value(measured).unwrap();
        value.as_object().unwrap().keys().cloned().collect()
    }

    const ALWAYS: [&str; 9] =
        ["model", "method", "precision", "batch", "sequence", "rank", "threads", "processor", "vector_lanes"];

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
        for (dtype, set, name) in
            [(Some(DType::BF16), "", "bf16"), (Some(DType::F32), "", "f32"), (None, "model.precision=nf4", "nf4")]
        {
            let set = Some(set).filter(|set| !set.is_empty()).map(str::to_owned).into_iter().collect();
            let settings = BenchSettings { dtype, set, ..settings(&[Phase::Scoring]) };
            let measured = bench(&settings, &mut |_| {}).unwrap();
            assert_eq!(measured.precision, name);
            assert!(measured.scoring.unwrap().scored_tokens_per_second > 0.0);
        }
    }
}
