//! Everything about a run that can be known without a step.
//!
//! `folder` says where it goes, `method` with what, `model` and `base` on what, `policy` what of it is trained, `memory` at
//! what price, `identity` whether it is the run that a checkpoint is of. A plan is what `check` and `--dry-run` show and
//! what `run` carries out.

mod base;
mod folder;
mod identity;
mod memory;
mod method;
mod model;
mod policy;
mod summary;
mod tokens;
pub(crate) mod trust;
pub(crate) mod verifiers;

use std::path::PathBuf;
use std::time::SystemTime;

use tunebox_compute::device::DeviceInfo;
use tunebox_compute::precision::Purpose;
use tunebox_compute::schedule::Schedule;
use tunebox_compute::{DType, device};
use tunebox_model::chat::Answers;
use tunebox_model::{Model, Policy};
use tunebox_sandbox::{CompileLimits, Compiling, Engine};

pub use memory::{Estimate, available, free, peak, peak_on};
pub use method::{PlannedMethod, without_effect};
pub(crate) use method::{listed_settings, native, revised};
pub(crate) use model::{digests, fetch, open_model};
pub use summary::PlanSummary;
pub use trust::{Ask, held, settle, settle_one};
pub use verifiers::PlannedVerifier;

use crate::checkpoint::{Identity, State};
use crate::configuration::{AnswersChoice, Half, Problem, RunSettings};
use crate::data::{Batching, Dataset, Encoder, Reading, Shape, Walk};
use crate::error::Error;
use crate::learner::LearningRate;
use crate::run::Revision;
use crate::runs::Held;
use folder::Destination;

/// The steps of a run that goes on until somebody stops it: the most that a run file may name.
pub const ENDLESS: u32 = 10_000_000;

/// A run that is ready to start.
pub struct Plan {
    /// All that is known about it.
    pub run: PlannedRun,
    pub(crate) policy: Policy,
    pub(crate) walk: Walk,
}

/// All that is known about a run before its first step.
pub struct PlannedRun {
    /// What the run was told.
    pub settings: RunSettings,
    /// The run's name.
    pub name: String,
    /// The run's folder.
    pub folder: PathBuf,
    /// The method.
    pub method: PlannedMethod,
    /// What judges completions.
    pub verifiers: Vec<PlannedVerifier>,
    /// The examples.
    pub data: Dataset,
    /// Examples that are scored and never learned from.
    pub validation: Option<Dataset>,
    /// Steps of the whole run.
    pub steps: u64,
    /// All of it in figures, for people.
    pub summary: PlanSummary,
    /// What a person should know and what does not stop the run.
    pub warnings: Vec<String>,
    pub(crate) learning_rate: LearningRate,
    /// What activations are computed in.
    pub(crate) compute: DType,
    /// What computes, where that is not the CPU.
    pub(crate) accelerator: Option<DeviceInfo>,
    pub(crate) checkpoint: Option<(PathBuf, State)>,
    /// Keeps others from the run, once it has a folder.
    pub(crate) held: Option<Held>,
    pub(crate) identity: Identity,
    pub(crate) clock: i64,
    /// When the method changed while the run went on.
    pub(crate) revised: Vec<Revision>,
}

/// Resolves everything: opens model, data and method, and compares with the checkpoint that a
/// resumed run goes on from.
///
/// # Errors
/// Whatever is wrong with the settings, the model, the data or the method; and a resumed run
/// that could not go on exactly.
pub fn plan(settings: RunSettings) -> Result<Plan, Error> {
    plan_on(settings, &datasets)
}

/// Where the records of a run, and those that are only scored, come from.
pub(crate) type Records<'a> = dyn Fn(&RunSettings, &Model, &Reading) -> Result<(Dataset, Option<Dataset>), Error> + 'a;

/// The same over other records than those of the run's files.
pub(crate) fn plan_on(mut settings: RunSettings, records: &Records<'_>) -> Result<Plan, Error> {
    settings.pin();
    let engine = engine(&settings)?;
    let method = method::method(&settings, &engine)?;
    plan_of(settings, &engine, method, records)
}

/// The same for a method that was found already.
pub(crate) fn plan_of(
    settings: RunSettings,
    engine: &Engine,
    method: PlannedMethod,
    records: &Records<'_>,
) -> Result<Plan, Error> {
    base::refuse(&settings, &method)?;
    let verifiers = verifiers::verifiers(&settings, engine)?;
    let place = folder::destination(&settings, &method, &verifiers)?;
    let again = settings.again.as_ref().map(|again| again.clock);
    let clock = place.checkpoint.as_ref().map(|(_, state)| state.clock).or(again).unwrap_or_else(now);
    let material = material(&settings, &method, clock, records)?;
    judged(&settings, &verifiers, material.validation.as_ref())?;
    put_together(settings, engine, method, verifiers, place, clock, material)
}

/// What a run learns from and on, opened.
struct Material {
    policy: Policy,
    /// The digest of the model's weights.
    model: String,
    /// Bytes that the device holds beside the model.
    beside: u64,
    data: Dataset,
    validation: Option<Dataset>,
}

fn material(
    settings: &RunSettings,
    method: &PlannedMethod,
    clock: i64,
    records: &Records<'_>,
) -> Result<Material, Error> {
    let (model, digest) = model::model(settings, clock)?;
    let beside = memory::held_beside(&model.weights);
    let (wanted, skip_bad) = (method.shapes.clone(), settings.file.data.skip_bad);
    let reading = Reading { wanted, length: length(settings, &model), skip_bad };
    let (data, validation) = records(settings, &model, &reading)?;
    let policy = policy::policy(settings, model, method.learns(), sides(&data))?;
    Ok(Material { policy, model: digest, beside, data, validation })
}

fn put_together(
    settings: RunSettings,
    engine: &Engine,
    method: PlannedMethod,
    verifiers: Vec<PlannedVerifier>,
    place: Destination,
    clock: i64,
    material: Material,
) -> Result<Plan, Error> {
    let (policy, data) = (&material.policy, &material.data);
    let identity = identity::identity(&settings, policy, material.model.clone(), data, &method, &verifiers)?;
    identity::same_run(&settings, &place, &identity)?;
    let walk = walk(&settings, &place, data, length(&settings, policy.model()))?;
    let learning_rate = learning_rate(&settings, policy, walk.windows() as u64)?;
    let summary = summary::summary(&settings, &place.name, &material, &method, &learning_rate, &walk);
    let Material { policy, data, validation, .. } = material;
    let run = PlannedRun {
        name: place.name,
        folder: place.folder,
        checkpoint: place.checkpoint,
        held: place.held,
        steps: learning_rate.steps,
        compute: policy.precision().dtype(Purpose::Activation),
        accelerator: device::info(policy.parameters().device())?,
        warnings: warnings(&settings, engine, &method)?,
        settings,
        method,
        verifiers,
        data,
        validation,
        summary,
        learning_rate,
        identity,
        clock,
        revised: Vec::new(),
    };
    Ok(Plan { run, policy, walk })
}

/// Refuses validation prompts that nothing judges the answers to.
fn judged(settings: &RunSettings, verifiers: &[PlannedVerifier], validation: Option<&Dataset>) -> Result<(), Error> {
    if !verifiers.is_empty() || validation.is_none_or(|data| data.shape != Shape::Prompts) {
        return Ok(());
    }
    let problem = Problem::Conflict {
        what: "`data.validation` holds prompts, and nothing judges the answers to them".into(),
        hint: "add a `[[verifier]]` with `use = \"number\"` or another".into(),
    };
    Err(settings.wrong("data.validation", Half::Key, problem))
}

/// What a person should know before the first step.
fn warnings(settings: &RunSettings, engine: &Engine, method: &PlannedMethod) -> Result<Vec<String>, Error> {
    let warnings = engine.warning().map(str::to_owned).into_iter().chain(base::other_base(settings)?);
    let warnings = warnings.chain(device::auto_fallback_reason(&settings.file.train.device));
    Ok(warnings.chain(method.without_effect().map(str::to_owned)).collect())
}

/// The engine of everything that the run admits.
pub(crate) fn engine(settings: &RunSettings) -> Result<Engine, Error> {
    let limits = settings.file.limits.of_method();
    let limits = CompileLimits { seconds: limits.compile_seconds, bytes: limits.compile_memory };
    Ok(Engine::with(Compiling { limits, ..settings.compiling.clone() })?)
}

/// The records of the run's files.
pub(crate) fn datasets(
    settings: &RunSettings,
    model: &Model,
    reading: &Reading,
) -> Result<(Dataset, Option<Dataset>), Error> {
    let table = &settings.file.data;
    let answers = match table.answers {
        AnswersChoice::All => Answers::All,
        AnswersChoice::Last => Answers::Last,
    };
    let encoder = Encoder { tokenizer: model.tokenizer()?, template: model.template.as_ref(), answers };
    // What is wrong with a record has a place of its own.
    let read = |key: &str, written: &str| match Dataset::read(&settings.path(key, written), reading, &encoder) {
        Err(error @ Error::File(_)) => Err(settings.named(key, error)),
        read => read,
    };
    let data = read("data.path", &table.path)?;
    let validation = table.validation.as_deref().map(|written| read("data.validation", written));
    Ok((data, validation.transpose()?))
}

/// Rows of a record: both answers of a pair are scored and learned from together.
fn sides(data: &Dataset) -> usize {
    data.examples.first().map_or(1, |example| example.sides.len())
}

/// Tokens of the longest example.
fn length(settings: &RunSettings, model: &Model) -> usize {
    (settings.file.data.max_length as usize).min(model.configuration.max_positions.max(2))
}

/// The way through the data, from where a checkpoint is; examples have at most so many tokens.
fn walk(settings: &RunSettings, place: &Destination, data: &Dataset, length: usize) -> Result<Walk, Error> {
    let (train, table) = (&settings.file.train, &settings.file.data);
    let batch = train.batch as usize;
    let batching = Batching {
        batch,
        accumulation: train.accumulation as usize,
        capacity: table.packing.then_some(batch * length),
        shuffle: table.shuffle,
        seed: train.seed,
    };
    let cursor = place.checkpoint.as_ref().map(|(_, state)| state.cursor).unwrap_or_default();
    Walk::from(cursor, batching, data.lengths()).ok_or_else(|| Error::Damaged {
        path: place.folder.clone(),
        what: "its place in the data is past the end of the data".into(),
    })
}

fn learning_rate(settings: &RunSettings, policy: &Policy, windows: u64) -> Result<LearningRate, Error> {
    let train = &settings.file.train;
    let schedule: Schedule = train.schedule.parse().map_err(|error: tunebox_compute::Error| {
        let problem = Problem::Method { what: error.to_string(), why: None, hint: None };
        settings.wrong("train.schedule", Half::Value, problem)
    })?;
    let usual = if policy.adapter().is_full() { 2e-5 } else { 2e-4 };
    Ok(LearningRate {
        peak: train.rate.unwrap_or(usual),
        schedule,
        warmup: u64::from(train.warmup),
        steps: train.steps.map_or_else(|| windows * u64::from(train.epochs.unwrap_or(1)), u64::from),
        clip: train.clip,
        skip_non_finite: train.skip_non_finite,
    })
}

/// The time, in whole seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
