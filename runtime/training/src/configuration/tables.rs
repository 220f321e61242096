//! The tables of a run file: every key with its description, default and range. `tunebox help` shows the descriptions.

mod data;
mod train;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tunebox_compute::precision::Base;
use tunebox_sandbox::Limits;

use super::limits;
pub use data::{DataFile, DataTable, ValidationData};
pub use train::{AdapterTable, TrainTable};

/// The folder for runs if `run.folder` is not given.
pub const RUNS_FOLDER: &str = "runs";

/// `train.steps` of a run without an end, as `tunebox dev` starts it: the most that a run file may give.
pub const ENDLESS: u32 = 10_000_000;

/// A run file, usually called `run.toml`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "tunebox run file")]
pub struct RunFile {
    /// The base model.
    pub model: ModelTable,
    /// The training and validation data.
    pub data: DataTable,
    /// The method and its settings.
    pub method: MethodTable,
    /// Frozen models from which the method learns, for methods such as `distill`: one `[[teacher]]` each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub teacher: Vec<TeacherTable>,
    /// The verifiers that score completions, for methods that learn from rewards: one `[[verifier]]` each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verifier: Vec<VerifierTable>,
    /// The environment that answers completions, so that they go on over several turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "EnvironmentTable")]
    pub environment: Option<EnvironmentTable>,
    /// The training loop, the optimizer and the adapter.
    #[serde(default)]
    pub train: TrainTable,
    /// Limits of the method, the verifiers and the environment.
    #[serde(default, serialize_with = "limits::serialize")]
    #[schemars(schema_with = "limits::schema")]
    pub limits: Limits,
    /// The name and folder of the run.
    #[serde(default)]
    pub run: RunTable,
}

impl RunFile {
    /// Returns the values of the key `use` for changing them: of the method, of each verifier that is no reward model,
    /// and of the environment.
    pub(super) fn components_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let verifiers = self.verifier.iter_mut().filter(|verifier| verifier.reward_model().is_none());
        let verifiers = verifiers.map(|verifier| &mut verifier.r#use);
        let environment = self.environment.iter_mut().map(|environment| &mut environment.r#use);
        std::iter::once(&mut self.method.r#use).chain(verifiers).chain(environment)
    }
}

/// `[model]`: the base model.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ModelTable {
    /// The base model: a folder in Hugging Face layout, a `.gguf` file, or a name on the hub. Without an adapter, the
    /// method continues the extra parameters that a run saved there.
    pub path: String,
    /// The adapter to continue training: a folder in the layout of PEFT or mlx-lm. The method also continues the extra
    /// parameters that a run saved there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Reference of methods that compare with one, such as `dpo`, in a run that continues an adapter.
    #[serde(default, skip_serializing_if = "Reference::is_start")]
    // The default is left out of what is serialized, from which the schema takes defaults.
    #[schemars(extend("default" = "start"))]
    pub reference: Reference,
    /// Source of the weights; the model's files unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialize: Option<Initialize>,
    /// Number format of the frozen matrices of the model's blocks.
    #[serde(default, skip_serializing_if = "Base::is_stored")]
    // The default is left out of what is serialized, from which the schema takes defaults.
    #[schemars(extend("default" = "stored"))]
    pub precision: Base,
    /// Revision to fetch for a hub name: a branch, tag or commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Chat template for a model without one, or in place of its own: `chatml`, `gemma` or `llama3`, or a Jinja file.
    /// What the run writes holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<String>,
}

/// Source of weights that are not in the model's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Initialize {
    /// Random weights drawn from `train.seed`; the folder holds a configuration and a tokenizer.
    Random,
}

/// Reference in a run that continues an adapter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reference {
    /// The base model with the adapter as it is before the run.
    #[default]
    Start,
    /// The base model alone, as in TRL.
    Base,
}

impl Reference {
    /// Whether the reference is the model as it is before the run.
    #[must_use]
    pub fn is_start(&self) -> bool {
        *self == Self::Start
    }
}

/// `[method]`: the method. Every further key is a setting of the method.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct MethodTable {
    /// The method: a built-in name, a method folder, a `.wasm` file, or a pulled package as `NAME@VERSION` or
    /// `registry/namespace/name:VERSION`.
    pub r#use: String,
    /// Interfaces that the method may use beyond the default ones: `weights` to edit the model, `text` to read and
    /// write text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Settings of the method, checked against its manifest.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// `[[teacher]]`: a frozen model from which the method learns. It has the vocabulary of the model.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TeacherTable {
    /// The teacher: a folder in Hugging Face layout, a `.gguf` file, or a name on the hub.
    pub path: String,
    /// Name by which the method asks for it.
    #[serde(default = "default_teacher")]
    pub name: String,
    /// Number format of the matrices of its blocks.
    #[serde(default, skip_serializing_if = "Base::is_stored")]
    // The default is left out of what is serialized, from which the schema takes defaults.
    #[schemars(extend("default" = "stored"))]
    pub precision: Base,
    /// Revision to fetch for a hub name: a branch, tag or commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// `[[verifier]]`: a verifier that scores completions. Every further key is a setting of the verifier.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct VerifierTable {
    /// The verifier: a built-in name, a verifier folder, a `.wasm` file, a pulled package as `NAME@VERSION` or
    /// `registry/namespace/name:VERSION`, or `model:` before the folder or hub name of a reward model, which is a
    /// sequence classifier with one label.
    pub r#use: String,
    /// Name of the verifier in metrics; the one of its manifest, or of a reward model's folder, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Factor of the verifier's score in the reward.
    #[serde(default = "default_weight")]
    #[schemars(range(min = -1_000_000.0, max = 1_000_000.0))]
    pub weight: f64,
    /// Field of a record that is passed to the verifier as the reference answer; a reward model gets none.
    #[serde(default = "default_answer_field")]
    pub answer: String,
    /// Verdict on a completion on which the verifier traps or passes a limit, such as 0 for code that does not end.
    /// Without it there is no verdict, and a verifier that fails on more than half of the completions ends the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1_000_000.0, max = 1_000_000.0))]
    pub on_failure: Option<f64>,
    /// Whether every completion gets a new instance of the verifier, for one that runs code of the model: nothing that
    /// this code changes reaches the next verdict. For components only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    /// Settings of the verifier, checked against its manifest.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

impl VerifierTable {
    /// The folder or hub name of the reward model that `use` names; `None` for a component.
    #[must_use]
    pub fn reward_model(&self) -> Option<&str> {
        self.r#use.strip_prefix("model:")
    }
}

/// `[environment]`: an environment that answers completions. Every further key is a setting of the environment.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct EnvironmentTable {
    /// The environment: a folder, a `.wasm` file, or a pulled package as `NAME@VERSION` or
    /// `registry/namespace/name:VERSION`.
    pub r#use: String,
    /// Factor of the episode's reward in the reward.
    #[serde(default = "default_weight")]
    #[schemars(range(min = -1_000_000.0, max = 1_000_000.0))]
    pub weight: f64,
    /// Field of a record that is passed to the environment as the reference answer.
    #[serde(default = "default_answer_field")]
    pub answer: String,
    /// Maximum number of turns of the model in an episode; the last one is answered too, by the end or not at all.
    #[serde(default = "default_max_turns")]
    #[schemars(range(min = 1, max = 1_000))]
    pub max_turns: u32,
    /// Settings of the environment, checked against its manifest.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// An interface that a method may use only if the run file grants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Grant {
    /// Read and edit the weights.
    Weights,
    /// Convert tokens to text and text to tokens.
    Text,
}

impl Grant {
    /// The name of the granted interface in the WIT contract, without package and version: `weights` or `text`.
    #[must_use]
    pub fn interface(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Text => "text",
        }
    }
}

/// `[run]`: the name and folder of the run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RunTable {
    /// Name of the run and of its folder; the method's name and a number unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Folder that holds the runs.
    pub folder: String,
    /// Price of an hour of this machine, in any currency; the run and `check --fit` then show the price of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0.0, "maximum" = 1_000_000.0))]
    pub hourly_price: Option<f64>,
    /// Also write the metrics as event files for TensorBoard, into the folder `tensorboard` of the run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    // The default is left out of what is serialized, from which the schema takes defaults.
    #[schemars(extend("default" = false))]
    pub tensorboard: bool,
}

impl Default for RunTable {
    fn default() -> Self {
        Self { name: None, folder: RUNS_FOLDER.into(), hourly_price: None, tensorboard: false }
    }
}

/// The default of `environment.max-turns`.
fn default_max_turns() -> u32 {
    8
}

/// The default of the `weight` of a verifier, of an environment and of a data file.
fn default_weight() -> f64 {
    1.0
}

/// The default of a teacher's `name`, for which built-in methods ask.
fn default_teacher() -> String {
    "teacher".into()
}

/// The default of the `answer` of a verifier and of an environment: the field with the reference answer.
fn default_answer_field() -> String {
    "answer".into()
}
