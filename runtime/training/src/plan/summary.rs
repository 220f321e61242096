//! A plan in figures: what a person reads before the first step, and what a machine stores.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tunebox_compute::device;
use tunebox_compute::precision::{Base, Storage};
use tunebox_model::Weights;
use tunebox_model::decoder::Recompute;
use tunebox_sandbox::Value as SettingValue;

use super::Material;
use super::memory::Estimate;
use super::method::PlannedMethod;
use super::tokens::Tokens;
use crate::configuration::RunSettings;
use crate::data::{Report, Walk};
use crate::learner::LearningRate;

/// A plan in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PlanSummary {
    /// The run's name.
    pub name: String,
    /// The model as it was named.
    pub model: String,
    /// Its family.
    pub family: String,
    /// Its weights.
    pub parameters: u64,
    /// The device that computes.
    pub device: String,
    /// The method's name.
    pub method: String,
    /// The method's version.
    pub method_version: String,
    /// Whether a run that goes on does so by another component than before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub method_changed: bool,
    /// Who signed the method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// The interfaces that the method asks for.
    pub imports: Vec<String>,
    /// The limits of the method that are not the usual ones.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub limits: Map<String, Value>,
    /// The method's settings, defaults filled in.
    pub settings: Map<String, Value>,
    /// The data as it was named.
    pub data: String,
    /// Records that are learned from.
    pub records: usize,
    /// What became of the lines.
    pub report: Report,
    /// The kind of adapter, `full`, or `none` for a method that does not learn.
    pub adapter: String,
    /// The rank of the adapter.
    pub rank: usize,
    /// How many numbers are trained.
    pub trainable: u64,
    /// Steps of the whole run.
    pub steps: u64,
    /// Steps of one pass over the data.
    pub steps_per_epoch: u64,
    /// Examples of a micro-batch.
    pub batch: u32,
    /// Micro-batches of a step.
    pub accumulation: u32,
    /// The peak learning rate.
    pub rate: f64,
    /// How the rate moves.
    pub schedule: String,
    /// Steps between the rows on a terminal.
    pub log_every: u32,
    /// What numbers are kept in, by what they are there for.
    pub precision: Vec<(String, String)>,
    /// What it will need.
    pub memory: Estimate,
}

impl PlanSummary {
    /// Takes over what another version of the method says of itself.
    pub(crate) fn of_method(&mut self, method: &PlannedMethod) {
        self.method_version.clone_from(&method.package.manifest.version);
        self.imports.clone_from(&method.package.imports);
        self.settings = values(&method.settings);
    }
}

/// A method's settings as data.
pub(super) fn values(settings: &[(String, SettingValue)]) -> Map<String, Value> {
    settings.iter().map(|(name, value)| (name.clone(), json(value))).collect()
}

/// A plan in figures.
pub(super) fn summary(
    settings: &RunSettings,
    name: &str,
    material: &Material,
    method: &PlannedMethod,
    learning_rate: &LearningRate,
    walk: &Walk,
) -> PlanSummary {
    let (train, package, model) = (&settings.file.train, &method.package, material.policy.model());
    let (adapter, trainable) = (material.policy.adapter(), material.policy.adapter().trainable() as u64);
    PlanSummary {
        name: name.to_owned(),
        model: model.name.clone(),
        family: model.configuration.family.clone(),
        parameters: model.configuration.weights(),
        device: device::describe(adapter.parameters().device()),
        method: package.manifest.name.clone(),
        method_version: package.manifest.version.clone(),
        method_changed: false,
        signer: package.signer.as_ref().map(|signer| signer.key.clone()),
        imports: package.imports.clone(),
        limits: method.limits.changed().map(|(limit, value)| (limit.name.to_owned(), value.into())).collect(),
        settings: values(&method.settings),
        data: material.data.name.clone(),
        records: material.data.examples.len(),
        report: material.data.report.clone(),
        adapter: if trainable == 0 { "none".into() } else { adapter.settings().kind.to_string() },
        rank: if trainable == 0 { 0 } else { adapter.settings().rank },
        trainable,
        steps: learning_rate.steps,
        steps_per_epoch: walk.windows() as u64,
        batch: train.batch,
        accumulation: train.accumulation,
        rate: learning_rate.peak,
        schedule: learning_rate.schedule.to_string(),
        log_every: train.log_every,
        precision: kept(&model.weights),
        memory: memory(settings, material, method),
    }
}

/// What a run will need.
fn memory(settings: &RunSettings, material: &Material, method: &PlannedMethod) -> Estimate {
    let train = &settings.file.train;
    let recompute = if train.recompute { Recompute::Blocks } else { Recompute::None };
    let tokens = Tokens::of(settings, &material.data, method, train.batch);
    Estimate::of(&material.policy, tokens, recompute, material.beside)
}

/// What numbers are kept in, matrices that stay as they are stored counted.
fn kept(weights: &Weights) -> Vec<(String, String)> {
    let precision = weights.precision();
    let linear = match weights.linear_as_stored() {
        (stored, all) if precision.base() == Base::Nf4 && stored > 0 => {
            format!(" ({stored} of {all} as stored: rows that are not whole blocks of 64)")
        }
        _ => String::new(),
    };
    let text = |(name, kept): (&str, Storage)| {
        let counted = if matches!(kept, Storage::Format(_)) { linear.as_str() } else { "" };
        (name.to_owned(), format!("{kept}{counted}"))
    };
    precision.lines().into_iter().map(text).collect()
}

/// A setting's value as JSON.
fn json(value: &SettingValue) -> Value {
    match value {
        SettingValue::Boolean(value) => (*value).into(),
        SettingValue::Integer(value) => (*value).into(),
        SettingValue::Number(value) => (*value).into(),
        SettingValue::Text(value) => value.clone().into(),
    }
}
