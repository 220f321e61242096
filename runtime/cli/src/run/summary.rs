//! The report at the end of a run: what it wrote, how the model answers now, and what to type next.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tunebox_compute::Device;
use tunebox_compute::precision::Base;
use tunebox_foundation::explain::Exit;
use tunebox_foundation::files;
use tunebox_foundation::format::{bytes, duration, group_digits, number, pluralize};
use tunebox_model::chat::Message;
use tunebox_model::generate::Sampling;
use tunebox_model::vectors::Vectors;
use tunebox_model::{Model, Policy, PolicySettings, Source};
use tunebox_training::configuration::{ENDLESS, ValidationData};
use tunebox_training::{
    EvaluationSettings, Outcome, REPORT_FILE, RunSettings, Summary, base_precision, evaluate, newest_checkpoint,
};

use crate::evaluation::{emit_evaluation, evaluation_table};
use crate::generation::{complete, encode_chat};
use crate::processes::compile_settings;
use crate::steering::default_coefficient;
use crate::terminal::shell::quote;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

/// The warning after a run that wrote nothing to load.
const NO_ARTIFACT_WARNING: &str =
    "no adapter was written: no step made an update; `backward(&loss)?` in the method's `step` asks for one";

/// Shows how a run ended and emits a `finished` or `stopped` event. After a finished run with `sample`, also shows the
/// model's answers before and after the run. Returns exit code 130 if the run was interrupted, else success.
pub(crate) fn show_summary(terminal: Terminal, summary: &Summary, sample: Option<&SampleReport>) -> CommandResult {
    let (name, status) = match summary.interrupted {
        true => ("stopped", show_stopped(terminal, summary)),
        false => ("finished", show_finished(terminal, summary, sample)?),
    };
    // A run without a step leaves no folder.
    let folder = Some(&summary.folder).filter(|folder| folder.exists());
    terminal.event(json!({
        "event": name, "name": summary.name, "folder": folder, "step": summary.step, "total": summary.total,
        "seconds": summary.seconds, "tokens": summary.tokens,
        "checkpoint": summary.checkpoint.as_ref().map(|(_, path)| path),
        "result": summary.outcome.as_ref().map(Outcome::table),
        "longer": summary.outcome.as_ref().and_then(|outcome| outcome.longer.as_ref()), "cost": summary.cost,
        "estimated": summary.estimate.as_ref().map(|(step, cost)| json!({ "step": step, "cost": cost })),
    }));
    Ok(status)
}

/// Shows an interrupted run with its checkpoint and its report, and suggests the commands that resume it and, if the
/// checkpoint has an adapter, chat with it. Without a checkpoint, only shows that there is nothing to save. Returns
/// exit code 130.
fn show_stopped(terminal: Terminal, summary: &Summary) -> ExitStatus {
    let of = if summary.total == u64::from(ENDLESS) { String::new() } else { format!(" of {}", summary.total) };
    if let Some((_, saved)) = &summary.checkpoint {
        terminal.status("Stopped", format!("at step {}{of}, saved {}", summary.step, saved.display()));
        show_report(terminal, summary);
        // A checkpoint of a method that does not learn has no adapter to chat with.
        let has_adapter = newest_checkpoint(&summary.folder).ok().flatten().is_some();
        let chat = if has_adapter { format!("\n{}", chat_command(&summary.folder)) } else { String::new() };
        terminal.suggest(format!("{}{chat}", resume_command(&summary.name)));
    } else {
        terminal.status("Stopped", "before a step was done: there is nothing to save");
    }
    ExitStatus::Code(Exit::Interrupted)
}

/// Shows steps, time, last loss and accuracy, the written files and the report of a finished run, and how it ended. If
/// the run wrote no `.safetensors` file, warns and returns; else shows the report of `sample`, if given, and suggests
/// the next command if the run can answer. Returns success.
fn show_finished(terminal: Terminal, summary: &Summary, sample: Option<&SampleReport>) -> CommandResult {
    let metric = |name: &str| summary.last.as_ref().and_then(|step| step.metric(name));
    let loss = metric("loss").map_or(String::new(), |loss| format!(", loss {}", number(loss, 3, 12)));
    let accuracy = metric("accuracy").map_or(String::new(), |value| format!(", accuracy {value:.2}"));
    let is_early = summary.step < summary.total;
    let of = if is_early { format!("{} of ", group_digits(summary.step)) } else { String::new() };
    let (steps, time) = (format!("{of}{}", pluralize(summary.total, "step")), duration(summary.seconds));
    terminal.status("Done", format!("{steps} in {time}{loss}{accuracy}"));
    let files: Vec<String> = summary
        .written
        .iter()
        .map(|file| {
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            format!("{name} {}", bytes(file.bytes))
        })
        .collect();
    terminal.status("Wrote", format!("{}  {}", summary.folder.display(), files.join(", ")));
    show_cost(terminal, summary);
    show_outcome(terminal, summary);
    show_report(terminal, summary);
    if !has_file(summary, "safetensors") {
        terminal.warn(NO_ARTIFACT_WARNING);
        return Ok(ExitStatus::Success);
    }
    if let Some(sample) = sample {
        sample.show(terminal, &summary.folder)?;
    }
    if can_answer(&summary.folder) {
        terminal.suggest(chat_command(&summary.folder));
    }
    Ok(ExitStatus::Success)
}

/// Shows what a run cost beside the estimate of its first steps. Shows nothing for a run that was too short for one.
fn show_cost(terminal: Terminal, summary: &Summary) {
    if let (Some(cost), Some((step, estimate))) = (&summary.cost, &summary.estimate) {
        let estimated = format!("estimated after step {step}: {}", duration(estimate.seconds));
        terminal.status("Cost", format!("{cost}\n{estimated}"));
    }
}

/// Shows which step a run shipped and what its validations show; and if the loss was still falling, the command that
/// trains longer.
fn show_outcome(terminal: Terminal, summary: &Summary) {
    let Some(outcome) = &summary.outcome else { return };
    let sentences = outcome.sentences();
    if !sentences.is_empty() {
        terminal.status("Result", sentences.join("\n"));
    }
    if let Some(longer) = &outcome.longer {
        let command = format!("{} --set {longer}", resume_command(&summary.name));
        terminal.note(format!("the loss was still falling at the end: a longer run may be better:\n{command}"));
    }
}

/// Shows the path of the run's report; nothing if the run has none.
fn show_report(terminal: Terminal, summary: &Summary) {
    let report = summary.folder.join(REPORT_FILE);
    if report.is_file() {
        terminal.status("Report", report.display());
    }
}

/// The files of which a finished run has one if it can answer: an adapter, a model, or steering vectors.
const ANSWERING_FILES: [&str; 3] = ["adapter_config.json", "config.json", "vectors.safetensors"];

/// Whether the folder of a finished run has an adapter, a model or steering vectors.
pub(crate) fn can_answer(folder: &Path) -> bool {
    ANSWERING_FILES.iter().any(|name| folder.join(name).is_file())
}

/// The command that chats with a model, an adapter or a run in a folder, which is quoted for a shell.
pub(crate) fn chat_command(folder: &Path) -> String {
    format!("tunebox chat {}", quote(&folder.display().to_string()))
}

/// Whether a run wrote a file with this extension, given without the dot.
fn has_file(summary: &Summary, extension: &str) -> bool {
    summary.written.iter().any(|file| file.path.extension().is_some_and(|found| found == extension))
}

/// The command that resumes the run `name`: the one that was typed, with `--resume --name NAME`, quoted for a shell.
fn resume_command(name: &str) -> String {
    let typed: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    with_resume(&typed, name)
}

/// Returns a command line with its `--name`, `--resume` and `--supervised` removed and `--resume --name NAME` added,
/// before any `--`. Each word is quoted for a shell; `typed` excludes the program's name.
fn with_resume(typed: &[String], name: &str) -> String {
    let mut words = vec!["tunebox"];
    let mut given = typed.iter().map(String::as_str);
    // Words after `--` are not flags.
    let rest: Vec<&str> = loop {
        match given.next() {
            None => break Vec::new(),
            Some("--") => break std::iter::once("--").chain(given).collect(),
            // The parent process of a supervised command adds `--supervised`.
            Some("--resume" | "--supervised") => {}
            Some("--name") => {
                given.next();
            }
            Some(word) if word.starts_with("--name=") => {}
            Some(word) => words.push(word),
        }
    };
    words.extend(["--resume", "--name", name]);
    words.extend(rest);
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// The question asked if the first record has none.
const DEFAULT_QUESTION: &str = "What is the capital of Italy?";

/// The question asked after a run of directions between two kinds of prompts: neither kind, so that the answer can be
/// led to both sides.
const NEUTRAL_QUESTION: &str = "Please feed the cat.";

/// Explains the margins of pairs, because a method may report other values under these names.
const MARGIN_NOTE: &str = "chosen minus rejected, whatever the method reports: `margin` in log-probability per\n\
                           target token, `reward-margin` in that of a whole answer, minus the base model's";

/// The model and data of a run on the sample.
pub(crate) struct SampleReport {
    model: PathBuf,
    /// The teacher of a run that begins with random weights, which answer nothing; `None` for other runs.
    teacher: Option<PathBuf>,
    data: PathBuf,
    validation: Option<PathBuf>,
}

/// A policy and the label of its answers.
type LabeledPolicy = (String, Policy);

impl SampleReport {
    /// Remembers the model, the teacher, the data and the file of validation data that the settings of a run name, as
    /// resolved paths.
    pub(crate) fn new(settings: &RunSettings) -> Self {
        let (data, model) = (&settings.file.data, &settings.file.model);
        let teacher = settings.file.teacher.first().filter(|_| model.initialize.is_some());
        Self {
            model: settings.path("model.path", &model.path),
            teacher: teacher.map(|teacher| settings.path("teacher.0.path", &teacher.path)),
            data: settings.path("data.path", &data.path),
            validation: data
                .validation
                .as_ref()
                .and_then(ValidationData::path)
                .map(|path| settings.path("data.validation", path)),
        }
    }

    /// Shows answers to one question by the base model, or the teacher of a model of random weights, and by what the
    /// run wrote to `folder`. If the sample has validation data, and the run did not begin with random weights, also
    /// evaluates both models on it; of two steered models only the positive one.
    fn show(&self, terminal: Terminal, folder: &Path) -> Result<(), Failure> {
        let precision = base_precision(folder)?.unwrap_or_default();
        let (name, model) = self.teacher.as_ref().map_or(("before", &self.model), |teacher| ("teacher", teacher));
        let base = open_policy(model, None, precision)?;
        let question = first_question(self.validation.as_ref().unwrap_or(&self.data));
        let after = self.open_results(folder, precision)?;
        show_answers(terminal, &question, (name, &base), &after)?;
        let Some(data) = self.validation.as_ref().filter(|_| self.teacher.is_none()) else { return Ok(()) };
        let settings = EvaluationSettings { length: 1024, batch: 16, sampling: greedy_sampling() };
        let mut rewards = RunSettings::load(&folder.join("run.toml"), &[])?;
        rewards.compiling = compile_settings()?;
        let result = evaluate(
            &base,
            after.last().map(|(_, policy)| policy),
            std::slice::from_ref(data),
            &settings,
            Some(&rewards),
        )?;
        terminal.status("Held out", format!("{}, each {}", pluralize(result.records as u64, "record"), result.shape));
        if result.figures.iter().any(|figure| figure.name == "margin") {
            terminal.status("", MARGIN_NOTE);
        }
        for line in evaluation_table(&result, true) {
            terminal.status("", line);
        }
        emit_evaluation(terminal, data, &result);
        Ok(())
    }

    /// Opens the result of the run as policies with labels: the model with the adapter, or the edited model, labeled
    /// `after`; for steering vectors two policies, steered at all layers with the negative and with the positive
    /// recommended scale, labeled with the scale. Fails if the run wrote none of these.
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

/// The sampling parameters for all completions in the report at the end of a run: greedy decoding (temperature 0) of at
/// most 48 tokens.
fn greedy_sampling() -> Sampling {
    Sampling { temperature: 0.0, max_tokens: 48, ..Sampling::default() }
}

/// Shows the answers of the base model, with its label, and of each policy in `after` to one question, and emits them
/// as one `asked` event.
fn show_answers(
    terminal: Terminal,
    question: &str,
    base: (&str, &Policy),
    after: &[LabeledPolicy],
) -> Result<(), Failure> {
    terminal.status("Asked", question);
    let mut answers = Vec::new();
    let policies = after.iter().map(|(name, policy)| (name.as_str(), policy));
    for (name, policy) in std::iter::once(base).chain(policies) {
        let prompt = encode_chat(policy, &[Message::new("user", question)])?;
        let (_, text) = complete(policy, &prompt, &greedy_sampling(), &mut |_| true)?;
        terminal.status(name, text.trim());
        answers.push(json!({ "by": name, "answer": text.trim() }));
    }
    terminal.event(json!({ "event": "asked", "question": question, "answers": answers }));
    Ok(())
}

/// Reads a question from the first record of a JSONL file: the first of `prompt`, `messages` and `harmful` that is a
/// string or a list with a user message, whose last one it takes. Returns [`NEUTRAL_QUESTION`] for a record with
/// `positive`, and [`DEFAULT_QUESTION`] if the file is larger than 64 MiB or cannot be read, or the record has no such
/// field.
fn first_question(data: &Path) -> String {
    let text = files::read_text(data).unwrap_or_default();
    let record: Value = text.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    if record.get("positive").is_some() {
        return NEUTRAL_QUESTION.to_owned();
    }
    let fields = ["prompt", "messages", "harmful"];
    fields.into_iter().find_map(|field| user_text(&record[field])).unwrap_or(DEFAULT_QUESTION).to_owned()
}

/// The value itself if it is a string, or the content of the last user message if it is a list of messages; else
/// `None`.
fn user_text(value: &Value) -> Option<&str> {
    let is_user = |message: &&Value| message["role"] == "user";
    value.as_str().or_else(|| value.as_array()?.iter().rev().find(is_user)?["content"].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resume_command_is_the_typed_one_with_the_name_of_the_run() {
        for (given, wanted) in [
            ("dev calm", "tunebox dev calm --resume --name calm-1"),
            ("dev calm --name a", "tunebox dev calm --resume --name calm-1"),
            ("--supervised dev calm", "tunebox dev calm --resume --name calm-1"),
            (
                "dev --name=a --resume calm --set train.rate=1e-4",
                "tunebox dev calm --set train.rate=1e-4 --resume --name calm-1",
            ),
            ("train --sample --method=dpo", "tunebox train --sample --method=dpo --resume --name calm-1"),
            ("-C work dev --json -- calm", "tunebox -C work dev --json --resume --name calm-1 -- calm"),
        ] {
            let typed: Vec<String> = given.split(' ').map(str::to_owned).collect();
            assert_eq!(with_resume(&typed, "calm-1"), wanted);
        }
        let typed = ["dev", "my calm", "--set", "train.schedule=\"linear\""].map(str::to_owned);
        let wanted = "tunebox dev 'my calm' --set 'train.schedule=\"linear\"' --resume --name calm-1";
        assert_eq!(with_resume(&typed, "calm-1"), wanted);
    }
}
