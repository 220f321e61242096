//! Puts the plan of a run together.

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use tempfile::TempDir;
use tunebox_compute::device;
use tunebox_compute::precision::Purpose;
use tunebox_foundation::files;
use tunebox_model::Policy;
use tunebox_sandbox::{CodeOptions, Compiling, Engine};

use super::best::{check_best_checkpoint, keeps_best};
use super::environment::{check_chat, load_environment};
use super::folder::{Destination, choose_folder};
use super::identity::{check_same_run, complete_identity, partial_identity};
use super::inputs::Inputs;
use super::length::planned_length;
use super::memory::Estimate;
use super::method::{PlannedMethod, load_method, no_effect_warning};
use super::model::{changed_base_warning, check_precision};
use super::optimizer::{check_device, optimizer_settings};
use super::planned::{Plan, PlanSummary, PlannedRun, build_summary};
use super::problems::check_settings;
use super::reward::{open_reward_models, reward_bytes};
use super::schedule::schedule_with_peak;
use super::verifier::{compile_verifiers, load_verifiers};
use crate::configuration::{RunSettings, Underline};
use crate::cost::Meter;
use crate::data::{BatchSampler, Batching, Dataset, Shape};
use crate::error::{Error, damaged};
use crate::learner::LearningRate;
use crate::length::Length;

/// Plans a run: opens model, data and method, chooses the run's folder, and compares a resumed run with its checkpoint.
/// Compiles the components without executing them, and does not create the folder of a new run. Locks a resumed
/// run for this process. Packages named without a version are pinned to the stored one, and data on a hub to the commit
/// that the cache has.
///
/// # Errors
/// All wrong settings together, before anything is opened; a model, data, method or verifier that cannot be found, read
/// or used; a new run whose folder exists; nothing to resume; and a resumed run whose inputs or settings differ from
/// those of its checkpoint.
pub fn plan(mut settings: RunSettings) -> Result<Plan, Error> {
    settings.pin_versions();
    settings.pin_data();
    check_settings(&settings)?;
    let engine = create_engine(&settings)?;
    let method = load_method(&settings, &engine)?;
    plan_with_method(settings, &engine, method)
}

/// Where the compiled code of a run's components is.
pub struct CompiledCode {
    /// The folder of the cache that holds the code; `None` if each process compiles for itself.
    pub folder: Option<PathBuf>,
    /// Why the usual cache cannot be used, so that a temporary one holds the code; `None` if it is used.
    pub warning: Option<String>,
    /// Removes the cache when dropped, if it is a temporary one.
    _temporary: Option<TempDir>,
}

/// Compiles the verifiers and the environment of a run, and its method if `has_method` is true, into the cache of
/// compiled code, or into a temporary one if that cannot be used or none is named. Executes none of their code. Does
/// nothing and returns no folder if `settings.compiling` names no program that compiles what is not built in.
///
/// # Errors
/// All wrong settings together; a component that cannot be found, read or admitted.
pub fn compile(mut settings: RunSettings, has_method: bool) -> Result<CompiledCode, Error> {
    if settings.compiling.program.is_none() {
        return Ok(CompiledCode { folder: None, warning: None, _temporary: None });
    }
    settings.pin_versions();
    check_settings(&settings)?;
    let mut engine = self::create_engine(&settings)?;
    let (warning, mut temporary) = (engine.warning().map(str::to_owned), None);
    if warning.is_some() || settings.compiling.cache.is_none() {
        let folder = files::temporary_folder(&std::env::temp_dir(), "tunebox-")?;
        settings.compiling.cache = Some(folder.path().join("compiled"));
        temporary = Some(folder);
        engine = self::create_engine(&settings)?;
    }
    if has_method {
        load_method(&settings, &engine)?;
    }
    let engine = create_verifier_engine(&settings)?;
    compile_verifiers(&settings, &engine)?;
    // That no verifier has its name is checked when the run is planned.
    load_environment(&settings, &engine, &[])?;
    Ok(CompiledCode { folder: settings.compiling.cache, warning, _temporary: temporary })
}

/// Plans a run whose method is already loaded; [`plan`] loads it from the settings first. `engine` is the run's engine,
/// whose warning, if any, is added to those of the plan. A resumed run keeps the clock of its checkpoint and a replayed
/// one the recorded clock; a new run gets the present time. A resumed run is locked for this process.
///
/// # Errors
/// As [`plan`], and a checkpoint whose step is past the end of the run, or a finished run that has nothing more to do.
pub(crate) fn plan_with_method(settings: RunSettings, engine: &Engine, method: PlannedMethod) -> Result<Plan, Error> {
    let begun = Instant::now();
    check_precision(&settings, &method)?;
    let optimizer = optimizer_settings(&settings)?;
    let answering = create_verifier_engine(&settings)?;
    let mut verifiers = load_verifiers(&settings, &answering)?;
    let environment = load_environment(&settings, &answering, &verifiers)?;
    let known = partial_identity(&settings, &method, &verifiers, environment.as_ref());
    let destination = choose_folder(&settings, &method.package.manifest.name, &known)?;
    let recorded = settings.replay.as_ref().map(|replay| replay.clock);
    let clock = destination.checkpoint.as_ref().map(|(_, state)| state.clock).or(recorded).unwrap_or_else(unix_time);
    let inputs = Inputs::open(&settings, &method, clock)?;
    check_validation(&settings, &inputs)?;
    method.check_completion_length(&settings, &inputs.data)?;
    check_chat(&settings, inputs.policy.model())?;
    let device = inputs.policy.parameters().device().clone();
    check_device(&settings, &device::describe(&device))?;
    open_reward_models(&settings, &mut verifiers, &device, Some(clock))?;
    let keeps_best = keeps_best(&settings, &method, inputs.validation.as_ref())?;
    let identity = complete_identity(known, &settings, &inputs, keeps_best)?;
    check_same_run(&settings, &destination.name, destination.checkpoint.as_ref(), &identity)?;
    check_best_checkpoint(&destination, keeps_best)?;
    let sampler = create_sampler(&settings, &destination, &inputs.data)?;
    let (length, extended_from) = planned_length(&settings, &destination, sampler.windows_per_epoch() as u64)?;
    let learning_rate = learning_rate(&settings, &inputs.policy, inputs.data.shape, length)?;
    let summary = build_summary(&settings, &destination.name, &inputs, &method, (&learning_rate, &optimizer), &sampler);
    let reward_models = reward_bytes(&verifiers, &device, inputs.data.report.length);
    let memory = Estimate { reward_models, ..summary.memory };
    let summary = PlanSummary { extended_from, memory, ..summary };
    let Inputs { policy, data, validation, .. } = inputs;
    let Destination { folder, checkpoint, run_lock, finished, .. } = destination;
    let run = PlannedRun {
        folder,
        checkpoint,
        run_lock,
        compute: policy.precision().dtype(Purpose::Activation),
        accelerator: device::info(policy.parameters().device())?,
        meter: Meter::start(begun, policy.parameters().device()),
        warnings: collect_warnings(&settings, engine, &method)?,
        settings,
        method,
        verifiers,
        environment,
        data,
        validation,
        summary,
        learning_rate,
        optimizer,
        identity,
        keeps_best,
        reopened: finished,
        clock,
        revised: Vec::new(),
    };
    Ok(Plan { run, policy, sampler })
}

/// Fails if the validation data are records of the shape [`Shape::Prompts`] and the run has no verifier or environment
/// to score their completions.
fn check_validation(settings: &RunSettings, inputs: &Inputs) -> Result<(), Error> {
    let is_prompts = inputs.validation.as_ref().is_some_and(|data| data.shape == Shape::Prompts);
    if !is_prompts || !settings.file.verifier.is_empty() || settings.file.environment.is_some() {
        return Ok(());
    }
    let what = "`data.validation` holds prompts, and nothing judges the answers to them";
    let hint = "add a `[[verifier]]` with `use = \"number\"` or another";
    Err(settings.conflict("data.validation", Underline::Key, what, hint))
}

/// Collects warnings, in this order, about a cache of compiled code that cannot be used, an adapter trained on a base
/// in another number format, an accelerator that `auto` did not use, and a method that cannot have an effect. Fails if
/// the lock of the adapter's run is damaged.
fn collect_warnings(settings: &RunSettings, engine: &Engine, method: &PlannedMethod) -> Result<Vec<String>, Error> {
    let cache = engine.warning().map(str::to_owned);
    let device = device::auto_fallback_reason(&settings.file.train.device);
    let effect = no_effect_warning(method.admitted.imports()).map(str::to_owned);
    Ok([cache, changed_base_warning(settings)?, device, effect].into_iter().flatten().collect())
}

/// Creates the engine that compiles the method of a run, with the run's limits. Its code counts instructions only if
/// `limits.step-instructions` is above 0.
pub(crate) fn create_engine(settings: &RunSettings) -> Result<Engine, Error> {
    let limits = settings.file.limits.clone();
    let code = CodeOptions { count_instructions: limits.step_instructions > 0, ..settings.compiling.code };
    Ok(Engine::with(Compiling { limits, code, ..settings.compiling.clone() })?)
}

/// Creates the engine that compiles the verifiers and the environment of a run, with the run's limits. Its code counts
/// instructions only if `limits.verifier-instructions` or `limits.environment-instructions` is above 0. Ignores the
/// code options of the settings, such as reading debug sections: they are for the method.
pub(crate) fn create_verifier_engine(settings: &RunSettings) -> Result<Engine, Error> {
    let limits = settings.file.limits.clone();
    let count_instructions = limits.verifier_instructions.max(limits.environment_instructions) > 0;
    let code = CodeOptions { count_instructions, ..CodeOptions::default() };
    Ok(Engine::with(Compiling { limits, code, ..settings.compiling.clone() })?)
}

/// Creates the sampler of the training data, at the checkpoint's position if there is one, else at the beginning. With
/// packing, a micro-batch takes `train.batch` times the maximum length in tokens.
///
/// # Errors
/// A checkpoint whose position is past the end of its epoch.
fn create_sampler(settings: &RunSettings, destination: &Destination, data: &Dataset) -> Result<BatchSampler, Error> {
    let (train, table) = (&settings.file.train, &settings.file.data);
    let batch = train.batch as usize;
    let batching = Batching {
        batch,
        accumulation: train.accumulation as usize,
        capacity: table.packing.then_some(batch * data.report.length),
        shuffle: table.shuffle,
        seed: train.seed,
    };
    let cursor = destination.checkpoint.as_ref().map(|(_, state)| state.cursor).unwrap_or_default();
    BatchSampler::new(cursor, batching, data.lengths())
        .ok_or_else(|| damaged(&destination.folder, "its place in the data is past the end of the data"))
}

/// Builds the learning-rate settings of a run of this length. Without `train.rate`, the peak is the usual rate of
/// records of `shape` for an adapter or for all weights ([`Shape::usual_rate`]). A warmup given as a share is computed
/// from the steps planned at the start. Errors: those of [`schedule_with_peak`].
fn learning_rate(settings: &RunSettings, policy: &Policy, shape: Shape, length: Length) -> Result<LearningRate, Error> {
    let train = &settings.file.train;
    let peak = train.rate.unwrap_or_else(|| shape.usual_rate(!policy.adapter().is_full()));
    Ok(LearningRate {
        peak,
        schedule: schedule_with_peak(settings, peak)?,
        warmup: train.warmup.updates(length.planned_at(0)),
        length,
        clip: train.clip,
        skip_non_finite: train.skip_non_finite,
    })
}

/// The present time in whole seconds since 1970 (UTC); 0 if the system's clock is before that.
fn unix_time() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
