//! After a sample run: one question answered before and after, and the held-out data measured.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tunebox_compute::Device;
use tunebox_compute::precision::Base;
use tunebox_model::chat::Message;
use tunebox_model::generate::{Sampling, generate};
use tunebox_model::vectors::Vectors;
use tunebox_model::{Model, Policy, PolicySettings, Source, View};
use tunebox_training::{EvaluationSettings, RunSettings, base_precision, evaluate};

use super::super::{eval, worker};
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use tunebox_foundation::format::counted;

/// A question for data whose first record holds none.
const QUESTION: &str = "What is the capital of Italy?";

/// What the margins of pairs are, which a method may call others by.
const OF_PAIRS: &str = "chosen less rejected, whatever the method reports: `margin` in the log-probability\n\
                        of a target token, `reward-margin` in that of a whole answer, less the base's";

/// Where a sample run starts from.
pub(super) struct Before {
    model: PathBuf,
    data: PathBuf,
    held_out: Option<PathBuf>,
}

/// A policy, and what it is called beside the others.
type Named = (String, Policy);

impl Before {
    /// What the settings say, before the run takes them.
    pub(super) fn of(settings: &RunSettings) -> Self {
        let data = &settings.file.data;
        Self {
            model: settings.path("model.path", &settings.file.model.path),
            data: settings.path("data.path", &data.path),
            held_out: data.validation.as_ref().map(|path| settings.path("data.validation", path)),
        }
    }

    /// Shows the answers of the base and of what the run left, and how both do on data that nobody learned from.
    pub(super) fn compare(&self, terminal: Terminal, folder: &Path) -> Result<(), Failure> {
        let kept = base_precision(folder)?.unwrap_or_default();
        let base = open(&self.model, None, kept)?;
        let question = question(self.held_out.as_ref().unwrap_or(&self.data));
        let after = self.after(folder, kept)?;
        ask(terminal, &question, &base, &after)?;
        let Some(held_out) = &self.held_out else { return Ok(()) };
        let sampling = Sampling { temperature: 0.0, max_tokens: 48, ..Sampling::default() };
        let settings = EvaluationSettings { length: 1024, batch: 16, sampling };
        let mut rewards = RunSettings::load(&folder.join("run.toml"), &[])?;
        rewards.compiling = worker::compiling()?;
        let found = evaluate(&base, after.last().map(|(_, policy)| policy), held_out, &settings, Some(&rewards))?;
        terminal.say("Held out", format!("{}, each {}", counted(found.records as u64, "record"), found.shape));
        if found.figures.iter().any(|figure| figure.name == "margin") {
            terminal.say("", OF_PAIRS);
        }
        for line in eval::table(&found, true) {
            terminal.say("", line);
        }
        if terminal.json {
            terminal.object(json!({ "event": "evaluated", "data": held_out, "shape": found.shape, "records": found.records, "figures": found.figures }));
        }
        Ok(())
    }

    /// What the run left: an adapter, an edited model, or directions, which show against and along.
    fn after(&self, folder: &Path, kept: Base) -> Result<Vec<Named>, Failure> {
        if folder.join("adapter_config.json").is_file() {
            return Ok(vec![("after".into(), open(&self.model, Some(folder), kept)?)]);
        }
        if folder.join("model.safetensors").is_file() {
            return Ok(vec![("after".into(), open(folder, None, Base::Stored)?)]);
        }
        let vectors = Vectors::load(&folder.join("vectors.safetensors"))?;
        let scale: f32 = vectors.facts.get("scale").and_then(|scale| scale.parse().ok()).unwrap_or(1.0);
        let steered = |coefficient: f32| {
            let mut policy = open(&self.model, None, kept)?;
            let last = policy.model().configuration.layers.saturating_sub(1);
            policy.steer(&vectors, coefficient, &(0..=last))?;
            Ok((format!("{coefficient:+}"), policy))
        };
        [-scale, scale].into_iter().map(steered).collect()
    }
}

fn open(model: &Path, adapter: Option<&Path>, kept: Base) -> Result<Policy, Failure> {
    let source = Source::open(&model.display().to_string(), true)?;
    Ok(Policy::open(Arc::new(Model::open_in(&source, &Device::Cpu, kept)?), adapter, PolicySettings::default())?)
}

fn ask(terminal: Terminal, question: &str, base: &Policy, after: &[Named]) -> Result<(), Failure> {
    terminal.say("Asked", question);
    let before = answer(base, question)?;
    terminal.say("before", &before);
    let mut answers = vec![json!({ "by": "before", "answer": before })];
    for (name, policy) in after {
        let answer = answer(policy, question)?;
        terminal.say(name, &answer);
        answers.push(json!({ "by": name, "answer": answer }));
    }
    if terminal.json {
        terminal.object(json!({ "event": "asked", "question": question, "answers": answers }));
    }
    Ok(())
}

fn answer(policy: &Policy, question: &str) -> Result<String, Failure> {
    let tokenizer = policy.model().tokenizer()?;
    let text = policy.model().template()?.render(&[Message::new("user", question)], true, None)?;
    let prompt = tokenizer.encode(&text, false)?;
    let sampling = Sampling { temperature: 0.0, max_tokens: 48, ..Sampling::default() };
    let completions = generate(policy, &View::Policy, &[prompt], &sampling, &mut |_, _| true)?;
    let ids = completions.first().map(|completion| completion.ids.as_slice()).unwrap_or_default();
    Ok(tokenizer.decode(ids, true)?.trim().to_owned())
}

/// What the user says in the first record.
fn question(data: &Path) -> String {
    let text = std::fs::read_to_string(data).unwrap_or_default();
    let record: Value = text.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    let fields = ["prompt", "messages", "harmful", "positive"];
    fields.into_iter().find_map(|field| said(&record[field])).unwrap_or(QUESTION).to_owned()
}

/// The text itself, or the last message of the user.
fn said(value: &Value) -> Option<&str> {
    let user = |message: &&Value| message["role"] == "user";
    value.as_str().or_else(|| value.as_array()?.iter().rev().find(user)?["content"].as_str())
}
