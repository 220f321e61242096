//! Everything about a run that can be known without a step.
//!
//! `folder` says where it goes, `method` with what, `base` on what, `memory` at what price. A plan is what
//! `check` and `--dry-run` show and what `run` carries out.

mod base;
mod folder;
mod memory;
mod method;
mod summary;
mod tokens;
pub(crate) mod trust;
pub(crate) mod verifiers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use tunebox_compute::device::About;
use tunebox_compute::explain::Explain;
use tunebox_compute::precision::Purpose;
use tunebox_compute::schedule::Schedule;
use tunebox_compute::{Device, device};
use tunebox_model::adapter::{AdapterKind, AdapterSettings, Targets as Places};
use tunebox_model::chat::Answers;
use tunebox_model::decoder::Recompute;
use tunebox_model::hub::Hub;
use tunebox_model::{Model, Policy, PolicySettings, Slice, Source};
use tunebox_sandbox::{CompileLimits, Compiling, Engine};

pub use memory::{Estimate, available, free, peak, peak_on};
pub use method::PlannedMethod;
pub(crate) use method::{native, revised};
pub use summary::PlanSummary;
pub use trust::{Ask, held, settle, settle_one};
pub use verifiers::PlannedVerifier;

use crate::checkpoint::{Identity, State, settings_that_matter};
use crate::configuration::{
    AdapterTable, AnswersChoice, Half, Initialise, KindChoice, Problem, RunSettings, Targets, TrainTable,
};
use crate::data::{Batching, Dataset, Encoder, Reading, Shape, Walk};
use crate::digest::digest;
use crate::error::Error;
use crate::files;
use crate::learner::Pace;
use crate::run::Revision;
use folder::Destination;

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
    pub(crate) pace: Pace,
    /// What computes, where that is not the CPU.
    pub(crate) accelerator: Option<About>,
    pub(crate) checkpoint: Option<(PathBuf, State)>,
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
    let Destination { name, folder, checkpoint } = folder::destination(&settings, &method.package.manifest.name)?;
    let again = settings.again.as_ref().map(|again| again.clock);
    let clock = checkpoint.as_ref().map(|(_, state)| state.clock).or(again).unwrap_or_else(now);
    let device = compute_device(&settings)?;
    let (model, model_digest) = model(&settings, &device, clock)?;
    let runtime = memory::held_beside(&model.weights);
    let (wanted, skip_bad) = (method.shapes.clone(), settings.file.data.skip_bad);
    let reading = Reading { wanted, length: length(&settings, &model), skip_bad };
    let (data, validation) = records(&settings, &model, &reading)?;
    if verifiers.is_empty() && validation.as_ref().is_some_and(|data| data.shape == Shape::Prompts) {
        let problem = Problem::Conflict {
            what: "`data.validation` holds prompts, and nothing judges the answers to them".into(),
            hint: "add a `[[verifier]]` with `use = \"number\"` or another".into(),
        };
        return Err(settings.wrong("data.validation", Half::Key, problem));
    }
    let slice = slice(&settings, &model, sides(&data));
    let policy = policy(&settings, model, method.learns(), slice)?;
    let batching = batching(&settings.file.train, settings.file.data.packing, settings.file.data.shuffle, &reading);
    let cursor = checkpoint.as_ref().map(|(_, state)| state.cursor).unwrap_or_default();
    let walk = Walk::from(cursor, batching, data.lengths()).ok_or_else(|| Error::Damaged {
        path: folder.clone(),
        what: "its place in the data is past the end of the data".into(),
    });
    let identity = identity(&settings, &policy, model_digest, &data, &method, &verifiers)?;
    if let Some((path, state)) = &checkpoint {
        let differences = state.identity.differences(&identity);
        if !differences.is_empty() {
            return Err(Error::Different { name, checkpoint: path.clone(), differences });
        }
    }
    let walk = walk?;
    let pace = pace(&settings, &policy, walk.windows() as u64)?;
    let summary = summary::summary(&settings, &name, &policy, &data, &method, &pace, &walk, runtime);
    let warnings = engine.warning().map(str::to_owned).into_iter().chain(base::other_base(&settings)?);
    let warnings = warnings.chain(device::passed_over(&settings.file.train.device)).collect();
    let run = PlannedRun {
        settings,
        name,
        folder,
        method,
        verifiers,
        data,
        validation,
        steps: pace.steps,
        summary,
        pace,
        accelerator: device::about(&device)?,
        checkpoint,
        identity,
        clock,
        warnings,
        revised: Vec::new(),
    };
    Ok(Plan { run, policy, walk })
}

/// The engine of everything that the run admits.
pub(crate) fn engine(settings: &RunSettings) -> Result<Engine, Error> {
    let limits = settings.file.limits.of_method();
    let limits = CompileLimits { seconds: limits.compile_seconds, bytes: limits.compile_memory };
    Ok(Engine::with(Compiling { limits, ..settings.compiling.clone() })?)
}

/// Fetches a model that is named by the hub's name; whether it was one.
pub(crate) fn fetch(settings: &RunSettings) -> Result<bool, Error> {
    let table = &settings.file.model;
    let here = table.initialise.is_some() || settings.path("model.path", &table.path).exists();
    if !here {
        source(settings)?;
    }
    Ok(!here)
}

fn compute_device(settings: &RunSettings) -> Result<Device, Error> {
    device::parse(&settings.file.train.device).map_err(|error| {
        let problem = Problem::Method { what: error.to_string(), why: error.why(), hint: error.hint() };
        settings.wrong("train.device", Half::Value, problem)
    })
}

/// The model with its template's clock set, and the digest of its weights.
fn model(settings: &RunSettings, device: &Device, clock: i64) -> Result<(Arc<Model>, String), Error> {
    let table = &settings.file.model;
    let (asked, random) = (base::asked(settings, device)?, table.initialise == Some(Initialise::Random));
    let (mut model, digest) = if random {
        let folder = settings.path("model.path", &table.path);
        let mut model = Model::random(&folder, settings.file.train.seed, device)?;
        model.weights = model.weights.kept_in(asked)?;
        (model, digest(&files::read(&folder.join("config.json"))?))
    } else {
        let source = source(settings)?;
        (Model::open_in(&source, device, asked)?, source.digest()?)
    };
    if let Some(again) = &settings.again {
        model.name.clone_from(&again.model);
    }
    model.template = model.template.map(|template| template.at(clock));
    Ok((Arc::new(model), digest))
}

/// The model of a run, without its digest.
pub(crate) fn open_model(settings: &RunSettings) -> Result<Arc<Model>, Error> {
    let device = compute_device(settings)?;
    Ok(Arc::new(Model::open_in(&source(settings)?, &device, base::asked(settings, &device)?)?))
}

fn source(settings: &RunSettings) -> Result<Source, Error> {
    let table = &settings.file.model;
    let name = settings.path_or_name("model.path", &table.path);
    let hub = Hub::from_environment(settings.offline);
    Ok(Source::find(&name, table.revision.as_deref(), &hub, &mut |_| {})?)
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
    let data = Dataset::read(&settings.path("data.path", &table.path), reading, &encoder)?;
    let validation = table
        .validation
        .as_ref()
        .map(|written| Dataset::read(&settings.path("data.validation", written), reading, &encoder));
    Ok((data, validation.transpose()?))
}

fn policy(settings: &RunSettings, model: Arc<Model>, learns: bool, slice: Slice) -> Result<Policy, Error> {
    let train = &settings.file.train;
    let recompute = if train.recompute { Recompute::Blocks } else { Recompute::None };
    let own = PolicySettings { recompute, slice, free: FREE, keep: keep(settings, model.weights.device()) };
    let Some(written) = &settings.file.model.adapter else {
        if !learns {
            return Ok(Policy::open(model, None, own)?);
        }
        let adapter = adapter(&train.adapter, train.seed);
        return Ok(Policy::new(model, &adapter, own)?);
    };
    if settings.given("train.adapter") {
        let problem = Problem::Conflict {
            what: "`train.adapter` describes a new adapter, `model.adapter` continues an old one".into(),
            hint: "leave one of them out; the old adapter keeps its kind, rank and places".into(),
        };
        return Err(settings.wrong("train.adapter", Half::Key, problem));
    }
    let folder = settings.path("model.adapter", written);
    Ok(Policy::open(model, Some(&folder), own)?)
}

/// Bytes of activations that a pass may keep however small a micro-batch is.
const FREE: u64 = 2 << 30;

/// Bytes of activations that may wait for a backward pass which could compute them again: half of what the method may
/// keep, but no more than a quarter of what the device has left. The numbers of a run do not depend on it, only how
/// long it takes.
fn keep(settings: &RunSettings, device: &Device) -> u64 {
    let limit = settings.file.limits.of_method().activation_bytes;
    (limit / 2).min(memory::free_on(device).unwrap_or(0) / 4)
}

/// What a micro-batch holds, all sides of its records together, bounds every pass, whatever a method asks to be scored
/// at once.
fn slice(settings: &RunSettings, model: &Model, sides: usize) -> Slice {
    let rows = settings.file.train.batch as usize * sides;
    if settings.file.data.packing { Slice::Tokens(rows * length(settings, model)) } else { Slice::Rows(rows) }
}

/// Rows of a record: both answers of a pair are scored and learned from together.
fn sides(data: &Dataset) -> usize {
    data.examples.first().map_or(1, |example| example.sides.len())
}

/// Tokens of the longest example.
fn length(settings: &RunSettings, model: &Model) -> usize {
    (settings.file.data.max_length as usize).min(model.configuration.max_positions.max(2))
}

fn adapter(table: &AdapterTable, seed: u64) -> AdapterSettings {
    let kind = match table.kind {
        KindChoice::Lora => AdapterKind::Lora,
        KindChoice::Rslora => AdapterKind::RsLora,
        KindChoice::Dora => AdapterKind::Dora,
        KindChoice::Full => AdapterKind::Full,
    };
    let targets = match &table.targets {
        Targets::Word(_) => Places::AllLinear,
        Targets::Names(names) => Places::Modules(names.clone()),
    };
    AdapterSettings {
        kind,
        rank: table.rank as usize,
        alpha: table.alpha.unwrap_or(2.0 * f64::from(table.rank)),
        dropout: table.dropout,
        targets,
        layers: table.layers.as_ref().map(|layers| layers.iter().map(|layer| *layer as usize).collect()),
        seed,
    }
}

fn batching(train: &TrainTable, packing: bool, shuffle: bool, reading: &Reading) -> Batching {
    let batch = train.batch as usize;
    Batching {
        batch,
        accumulation: train.accumulation as usize,
        capacity: packing.then_some(batch * reading.length),
        shuffle,
        seed: train.seed,
    }
}

fn pace(settings: &RunSettings, policy: &Policy, windows: u64) -> Result<Pace, Error> {
    let train = &settings.file.train;
    let schedule: Schedule = train.schedule.parse().map_err(|error: tunebox_compute::Error| {
        let problem = Problem::Method { what: error.to_string(), why: None, hint: None };
        settings.wrong("train.schedule", Half::Value, problem)
    })?;
    let usual = if policy.adapter().is_full() { 2e-5 } else { 2e-4 };
    Ok(Pace {
        rate: train.rate.unwrap_or(usual),
        schedule,
        warmup: u64::from(train.warmup),
        steps: train.steps.map_or_else(|| windows * u64::from(train.epochs.unwrap_or(1)), u64::from),
        clip: train.clip,
        skip_non_finite: train.skip_non_finite,
    })
}

fn identity(
    settings: &RunSettings,
    policy: &Policy,
    model: String,
    data: &Dataset,
    method: &PlannedMethod,
    verifiers: &[PlannedVerifier],
) -> Result<Identity, Error> {
    let adapter = match &settings.file.model.adapter {
        Some(written) => {
            let file = settings.path("model.adapter", written).join("adapter_model.safetensors");
            Some(digest(&files::read(&file)?))
        }
        None => None,
    };
    let file = serde_json::to_value(&settings.file).unwrap_or_default();
    let (device, activations) = (policy.parameters().device(), policy.precision().dtype(Purpose::Activation));
    let kind = device::describe(device).split(':').next().unwrap_or_default().to_owned();
    Ok(Identity {
        version: env!("CARGO_PKG_VERSION").into(),
        model,
        adapter,
        data: data.digest.clone(),
        tokens: data.token_digest.clone(),
        method: method.package.digest.clone(),
        verifiers: verifiers.iter().map(|verifier| verifier.package.digest.clone()).collect(),
        settings: settings_that_matter(&file),
        computed: Some(format!("{kind} in {}", activations.as_str())),
    })
}

/// The time, in whole seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
