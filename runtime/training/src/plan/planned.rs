//! A run that is ready to start: its plan, the plan in figures, and settings that would make it need less memory.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tunebox_compute::DType;
use tunebox_compute::device::{self, DeviceInfo};
use tunebox_compute::optimizer::{OptimizerKind, OptimizerSettings};
use tunebox_compute::precision::{Base, Storage};
use tunebox_model::decoder::Recompute;
use tunebox_model::{Policy, Weights};
use tunebox_package::{Reference, Updates};

use super::environment::PlannedEnvironment;
use super::inputs::Inputs;
use super::memory::{Estimate, Tokens};
use super::method::{PlannedMethod, settings_json};
use super::model::quantized_conflict;
use super::verifier::PlannedVerifier;
use crate::checkpoint::{Identity, State};
use crate::configuration::RunSettings;
use crate::cost::Meter;
use crate::data::{BatchSampler, Dataset, Report, Shape};
use crate::learner::LearningRate;
use crate::runs::RunLock;

/// A run that is ready to start.
pub struct Plan {
    /// What is known about the run.
    pub run: PlannedRun,
    pub(crate) policy: Policy,
    pub(crate) sampler: BatchSampler,
}

/// Everything that is known about a run before its first step, apart from its policy and sampler.
pub struct PlannedRun {
    /// The settings of the run.
    pub settings: RunSettings,
    /// The run's folder.
    pub folder: PathBuf,
    /// The method.
    pub method: PlannedMethod,
    /// The verifiers that score completions.
    pub verifiers: Vec<PlannedVerifier>,
    /// The environment that answers completions.
    pub environment: Option<PlannedEnvironment>,
    /// The training examples.
    pub data: Dataset,
    /// The validation examples.
    pub validation: Option<Dataset>,
    /// The plan in figures.
    pub summary: PlanSummary,
    /// Problems that do not stop the run.
    pub warnings: Vec<String>,
    pub(crate) learning_rate: LearningRate,
    pub(crate) optimizer: OptimizerSettings,
    /// The number format of activations.
    pub(crate) compute: DType,
    /// The accelerator that computes; `None` if the CPU does.
    pub(crate) accelerator: Option<DeviceInfo>,
    /// The checkpoint that the run resumes, with its folder.
    pub(crate) checkpoint: Option<(PathBuf, State)>,
    /// Measures the cost of the run since its planning began.
    pub(crate) meter: Meter,
    /// Keeps other processes from training the run, once it has a folder.
    pub(crate) run_lock: Option<RunLock>,
    pub(crate) identity: Identity,
    /// Whether the artifact is written from the weights of the best validation.
    pub(crate) keeps_best: bool,
    /// Whether a run that was finished is resumed with more steps.
    pub(crate) reopened: bool,
    /// The time that chat templates read, in seconds since 1970.
    pub(crate) clock: i64,
    /// Changes of the method during the run.
    pub(crate) revised: Vec<Revision>,
}

/// A change of a run's method: from some step on, the run uses another component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Revision {
    /// Finished steps at the change.
    pub(crate) after: u64,
    /// The digest of the new component.
    pub(crate) sha256: String,
}

/// The plan of a run in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PlanSummary {
    /// The run's name.
    pub name: String,
    /// The model as the settings name it.
    pub model: String,
    /// The model family.
    pub family: String,
    /// Number of weights of the model.
    pub parameters: u64,
    /// The device that computes.
    pub device: String,
    /// The method's name.
    pub method: String,
    /// The method's version.
    pub method_version: String,
    /// Whether a resumed run uses another component than before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub method_changed: bool,
    /// The key that signed the method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// Whether the method is built in.
    #[serde(default)]
    pub built_in: bool,
    /// The interfaces that the method imports.
    pub imports: Vec<String>,
    /// The limits of the method, the verifiers and the environment that differ from the defaults.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub limits: Map<String, Value>,
    /// The method's settings, including defaults.
    pub settings: Map<String, Value>,
    /// The data file as the settings name it.
    pub data: String,
    /// Number of training records.
    pub records: usize,
    /// Counts of the lines and tokens of the data.
    pub report: Report,
    /// Whether the records are not plain text: only their answers are targets.
    #[serde(default)]
    pub answers_only: bool,
    /// The kind of adapter, `full`, or `none` for a method that does not learn.
    pub adapter: String,
    /// The modules that are trained whole beside the low-rank factors, by ends of their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules_to_save: Vec<String>,
    /// The rank of the adapter.
    pub rank: usize,
    /// Number of trained parameters.
    pub trainable: u64,
    /// Steps of the whole run.
    pub steps: u64,
    /// The steps that were planned before, if the run is resumed with more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended_from: Option<u64>,
    /// Steps of one epoch.
    pub steps_per_epoch: u64,
    /// Examples in a micro-batch.
    pub batch: u32,
    /// Micro-batches in a step.
    pub accumulation: u32,
    /// The peak learning rate.
    pub rate: f64,
    /// The learning-rate schedule.
    pub schedule: String,
    /// The optimizer.
    #[serde(default)]
    pub optimizer: OptimizerKind,
    /// Steps between two rows of the table of metrics on a terminal.
    pub log_every: u32,
    /// Pairs of a use, such as activations, and its number format, as text.
    pub precision: Vec<(String, String)>,
    /// The estimated memory in bytes, by use; on several ranks that of each.
    pub memory: Estimate,
    /// How the run is divided among several ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<PlannedRanks>,
}

/// The ranks of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PlannedRanks {
    /// The number of ranks.
    pub count: usize,
    /// The threads of this rank; a launcher may leave a rank one processor only.
    pub threads: usize,
    /// The bytes of one gradient: each rank sends one or a few of them for every pass for learning. `None` if every
    /// rank runs these passes itself, because weights of the model are trained; 0 if nothing is.
    pub gradient_bytes: Option<u64>,
}

impl PlanSummary {
    /// Replaces the method's version, imports and settings in the summary by those of `method`, another version of it.
    /// Leaves name, signer and memory as they are.
    pub(crate) fn update_method(&mut self, method: &PlannedMethod) {
        self.method_version.clone_from(&method.package.manifest.version);
        self.imports.clone_from(&method.package.imports);
        self.settings = settings_json(&method.settings);
    }
}

/// Collects the figures of a plan, with the estimated memory. `name` is the run's name. Without trained parameters, the
/// adapter is `none` and its rank 0.
pub(super) fn build_summary(
    settings: &RunSettings,
    name: &str,
    inputs: &Inputs,
    method: &PlannedMethod,
    (learning_rate, optimizer): (&LearningRate, &OptimizerSettings),
    sampler: &BatchSampler,
) -> PlanSummary {
    let (train, package, model) = (&settings.file.train, &method.package, inputs.policy.model());
    let (adapter, trainable) = (inputs.policy.adapter(), inputs.policy.adapter().trainable() as u64);
    PlanSummary {
        name: name.to_owned(),
        model: model.name.clone(),
        family: model.configuration.family.clone(),
        parameters: model.configuration.parameter_count(),
        device: device::describe(adapter.parameters().device()),
        method: package.manifest.name.clone(),
        method_version: package.manifest.version.clone(),
        method_changed: false,
        signer: package.signer.as_ref().map(|signer| signer.key.clone()),
        built_in: settings.native.is_none() && matches!(settings.method_reference(), Ok(Reference::Builtin(_))),
        imports: package.imports.clone(),
        limits: method.limits.changed().map(|(limit, value, _)| (limit.name.to_owned(), value.into())).collect(),
        settings: settings_json(&method.settings),
        data: inputs.data.name.clone(),
        records: inputs.data.examples.len(),
        report: inputs.data.report.clone(),
        answers_only: inputs.data.shape != Shape::Text,
        adapter: if trainable == 0 { "none".into() } else { adapter.settings().kind.to_string() },
        modules_to_save: adapter.settings().modules_to_save.clone(),
        rank: if trainable == 0 { 0 } else { adapter.settings().rank },
        trainable,
        steps: learning_rate.length.steps,
        extended_from: None,
        steps_per_epoch: sampler.windows_per_epoch() as u64,
        batch: train.batch,
        accumulation: train.accumulation,
        rate: learning_rate.peak,
        schedule: learning_rate.schedule.to_string(),
        optimizer: optimizer.kind(),
        log_every: train.log_every,
        precision: number_formats(&model.weights, optimizer.kind()),
        memory: estimate_memory(settings, inputs, method, optimizer),
        ranks: planned_ranks(&inputs.policy),
    }
}

/// How the passes of a policy are divided; `None` for one process alone.
fn planned_ranks(policy: &Policy) -> Option<PlannedRanks> {
    let ranks = policy.ranks();
    let gradient_bytes = (!policy.adapter().trains_weights()).then(|| 4 * policy.parameters().flat_len() as u64);
    ranks.are_several().then(|| PlannedRanks {
        count: ranks.position().1,
        threads: rayon::current_num_threads(),
        gradient_bytes,
    })
}

/// Estimates the memory of a run in bytes by use, with `train.batch` and `train.recompute` of its settings.
fn estimate_memory(
    settings: &RunSettings,
    inputs: &Inputs,
    method: &PlannedMethod,
    optimizer: &OptimizerSettings,
) -> Estimate {
    let train = &settings.file.train;
    let recompute = if train.recompute { Recompute::Blocks } else { Recompute::None };
    let tokens = Tokens::of(settings, &inputs.data, method, train.batch);
    Estimate::of(&inputs.policy, tokens, recompute, host_optimizer(method, optimizer), inputs.runtime_bytes)
}

/// Returns `optimizer` if the host updates the parameters; `None` if the method does, whose own state counts in its
/// limit of `activation-bytes`.
fn host_optimizer<'a>(method: &PlannedMethod, optimizer: &'a OptimizerSettings) -> Option<&'a OptimizerSettings> {
    (method.package.manifest.update == Updates::Host).then_some(optimizer)
}

/// Returns pairs of a use, such as activations, and its number format in words, for display. With a quantized base, the
/// format of the blocks' matrices also says how many of them stay as stored, if any do.
fn number_formats(weights: &Weights, optimizer: OptimizerKind) -> Vec<(String, String)> {
    let precision = weights.precision();
    let linear = match (precision.base().format(), weights.linear_as_stored()) {
        (Some(format), (stored, all)) if stored > 0 => {
            let block = format.block();
            format!(" ({stored} of {all} as stored: rows that are not whole blocks of {block})")
        }
        _ => String::new(),
    };
    let text = |(name, kept): (&str, Storage)| {
        if name == "optimizer" && optimizer == OptimizerKind::AdamW8Bit {
            return (name.to_owned(), "8 bits in blocks of 256, f32 for tensors below 4096 numbers".to_owned());
        }
        let counted = if matches!(kept, Storage::Format(_)) { linear.as_str() } else { "" };
        (name.to_owned(), format!("{kept}{counted}"))
    };
    precision.lines().into_iter().map(text).collect()
}

impl Plan {
    /// Lists settings that would reduce the run's estimated memory: each as the argument of `--set`, with the total
    /// estimated bytes of the run with that setting. Tries a micro-batch of one record, recomputation, both of these
    /// together, and a base in NF4 unless the run trains all weights, writes a whole edited model or has a base that is
    /// quantized already, in this order; leaves out those that would not reduce the total.
    #[must_use]
    pub fn smaller(&self) -> Vec<(&'static str, u64)> {
        let (run, whole) = (&self.run, self.run.summary.memory);
        let train = &run.settings.file.train;
        let tokens = |batch| Tokens::of(&run.settings, &run.data, &run.method, batch);
        let (now, one) = (tokens(train.batch), tokens(1));
        let optimizer = host_optimizer(&run.method, &run.optimizer);
        let need = |tokens, recompute| {
            let own = Estimate::of(&self.policy, tokens, recompute, optimizer, whole.runtime);
            own.total() + whole.reward_models
        };
        let present = if train.recompute { Recompute::Blocks } else { Recompute::None };
        // Those of teachers stay as they are.
        let present_weights = self.policy.model().weights.bytes();
        let quantized = self.nf4_weight_bytes().map(|weights| {
            ("model.precision=nf4", whole.total().saturating_sub(present_weights).saturating_add(weights))
        });
        let all = [
            ("train.batch=1", need(one, present)),
            ("train.recompute=true", need(now, Recompute::Blocks)),
            ("train.batch=1 --set train.recompute=true", need(one, Recompute::Blocks)),
        ];
        all.into_iter().chain(quantized).filter(|(_, bytes)| *bytes < whole.total()).collect()
    }

    /// Returns the bytes of the model's weights with the base in NF4. `None` if the run trains all weights or writes a
    /// whole edited model ([`quantized_conflict`]), or if a matrix of the blocks is quantized in the model's files
    /// already.
    fn nf4_weight_bytes(&self) -> Option<u64> {
        if quantized_conflict(&self.run.settings, &self.run.method).is_some() {
            return None;
        }
        self.policy.model().weights.bytes_in(Base::Nf4).ok()
    }
}
