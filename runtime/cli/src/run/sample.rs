//! The report after a run on the sample: one question answered before and after, and the held-out data measured.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tunebox_compute::Device;
use tunebox_compute::precision::Base;
use tunebox_foundation::files;
use tunebox_model::chat::Message;
use tunebox_model::generate::Sampling;
use tunebox_model::vectors::Vectors;
use tunebox_model::{Model, Policy, PolicySettings, Source};
use tunebox_training::{EvaluationSettings, RunSettings, base_precision, evaluate};

use crate::evaluation::{emit_evaluation, evaluation_table};
use crate::generation::{complete, encode_chat};
use crate::processes::compiling;
use crate::steering::default_coefficient;
use crate::terminal::{Failure, Terminal};
use tunebox_foundation::format::counted;

/// The question asked if the first record has none.
const DEFAULT_QUESTION: &str = "What is the capital of Italy?";

/// Explains the margins of pairs, because a method may report other values under these names.
const MARGIN_NOTE: &str = "chosen minus rejected, whatever the method reports: `margin` in log-probability per\n\
                           target token, `reward-margin` in that of a whole answer, minus the base model's";

/// The model and data of a run on the sample.
pub(crate) struct SampleReport {
    model: PathBuf,
    data: PathBuf,
    validation: Option<PathBuf>,
}

/// A policy and the label of its answers.
type LabeledPolicy = (String, Policy);

impl SampleReport {
    /// Remembers the model, the data and the validation data that the settings of a run name, as resolved paths.
    pub(crate) fn new(settings: &RunSettings) -> Self {
        let data = &settings.file.data;
        Self {
            model: settings.path("model.path", &settings.file.model.path),
            data: settings.path("data.path", &data.path),
            validation: data.validation.as_ref().map(|path| settings.path("data.validation", path)),
        }
    }

    /// Shows answers to one question by the base model and by what the run wrote to `folder`. If the sample has
    /// validation data, also evaluates both models on it; of two steered models only the positive one.
    pub(super) fn show(&self, terminal: Terminal, folder: &Path) -> Result<(), Failure> {
        let precision = base_precision(folder)?.unwrap_or_default();
        let base = open_policy(&self.model, None, precision)?;
        let question = first_question(self.validation.as_ref().unwrap_or(&self.data));
        let after = self.open_results(folder, precision)?;
        show_answers(terminal, &question, &base, &after)?;
        let Some(data) = &self.validation else { return Ok(()) };
        let settings = EvaluationSettings { length: 1024, batch: 16, sampling: sampling() };
        let mut rewards = RunSettings::load(&folder.join("run.toml"), &[])?;
        rewards.compiling = compiling()?;
        let result = evaluate(&base, after.last().map(|(_, policy)| policy), data, &settings, Some(&rewards))?;
        terminal.status("Held out", format!("{}, each {}", counted(result.records as u64, "record"), result.shape));
        if result.figures.iter().any(|figure| figure.name == "margin") {
            terminal.status("", MARGIN_NOTE);
        }
        for line in evaluation_table(&result, true) {
            terminal.status("", line);
        }
        emit_evaluation(terminal, data, &result);
        Ok(())
    }

    /// Opens what the run wrote, with labels: one policy with the adapter, or one of the edited model. For steering
    /// vectors two policies, steered with the negative and the positive recommended scale, in this order.
    fn open_results(&self, folder: &Path, precision: Base) -> Result<Vec<LabeledPolicy>, Failure> {
        if folder.join("adapter_config.json").is_file() {
            return Ok(vec![("after".into(), open_policy(&self.model, Some(folder), precision)?)]);
        }
        if folder.join("model.safetensors").is_file() {
            return Ok(vec![("after".into(), open_policy(folder, None, Base::Stored)?)]);
        }
        let vectors = Vectors::load(&folder.join("vectors.safetensors"))?;
        let scale = default_coefficient(&vectors);
        let steered = |coefficient: f32| {
            let mut policy = open_policy(&self.model, None, precision)?;
            let last = policy.model().configuration.layers.saturating_sub(1);
            policy.steer(&vectors, coefficient, &(0..=last))?;
            Ok((format!("{coefficient:+}"), policy))
        };
        [-scale, scale].into_iter().map(steered).collect()
    }
}

/// Opens a local model on the CPU, with an adapter if one is given.
fn open_policy(model: &Path, adapter: Option<&Path>, precision: Base) -> Result<Policy, Failure> {
    let source = Source::open(&model.display().to_string(), true)?;
    let model = Arc::new(Model::open_in(&source, &Device::Cpu, precision)?);
    Ok(Policy::open(model, adapter, PolicySettings::default())?)
}

/// The sampling parameters of the report: greedy decoding of at most 48 tokens.
fn sampling() -> Sampling {
    Sampling { temperature: 0.0, max_tokens: 48, ..Sampling::default() }
}

/// Shows the answers of the base model (`before`) and of each policy in `after` to one question, and emits them as one
/// `asked` event.
fn show_answers(terminal: Terminal, question: &str, base: &Policy, after: &[LabeledPolicy]) -> Result<(), Failure> {
    terminal.status("Asked", question);
    let mut answers = Vec::new();
    let policies = after.iter().map(|(name, policy)| (name.as_str(), policy));
    for (name, policy) in std::iter::once(("before", base)).chain(policies) {
        let prompt = encode_chat(policy, &[Message::new("user", question)])?;
        let (_, text) = complete(policy, &prompt, &sampling(), &mut |_| {})?;
        terminal.status(name, text.trim());
        answers.push(json!({ "by": name, "answer": text.trim() }));
    }
    terminal.event(json!({ "event": "asked", "question": question, "answers": answers }));
    Ok(())
}

/// Reads a question from the first record of a JSONL file: its prompt, or its last user message. Returns
/// [`DEFAULT_QUESTION`] if the file is larger than 64 MiB or cannot be read, or the record has no such field.
fn first_question(data: &Path) -> String {
    let text = files::read_text(data).unwrap_or_default();
    let record: Value = text.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    let fields = ["prompt", "messages", "harmful", "positive"];
    fields.into_iter().find_map(|field| user_text(&record[field])).unwrap_or(DEFAULT_QUESTION).to_owned()
}

/// The value itself if it is a string, or the content of the last user message if it is a list of messages; else
/// `None`.
fn user_text(value: &Value) -> Option<&str> {
    let is_user = |message: &&Value| message["role"] == "user";
    value.as_str().or_else(|| value.as_array()?.iter().rev().find(is_user)?["content"].as_str())
}
