//! `tunebox eval`: measures a model on a data file, with and without its adapter.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tunebox_foundation::explain::Exit;
use tunebox_foundation::files;
use tunebox_foundation::printable::printable;
use tunebox_model::generate::Sampling;
use tunebox_package::builtin;
use tunebox_training::data::find_files;
use tunebox_training::plan::admit_run_file;
use tunebox_training::{Evaluation, EvaluationSettings, Figure, RunSettings, component_files, data_files, evaluate};

use crate::access::{Access, compile_run};
use crate::arguments::{Global, SamplingOptions};
use crate::evaluation::{emit_evaluation, evaluation_table, format_figure};
use crate::generation::sampling_parameters;
use crate::model::ModelOptions;
use crate::package::trust::TrustOptions;
use crate::processes::compile_settings;
use crate::run::display::format_samples;
use crate::steering::SteeringOptions;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};
use tunebox_foundation::format::pluralize;

/// Explains the metrics in the long help.
const METRICS_HELP: &str = "Metrics of answers: `loss`, negative log-likelihood per target token; `perplexity`, its \
    exponential; `accuracy`, fraction of target tokens that are the most likely ones. Metrics of pairs, chosen minus \
    rejected: `margin`, log-probability per target token; `reward-margin`, log-probability of the whole answer minus that \
    of the base model; `accuracy` and `reward-accuracy`, fraction of pairs with a positive margin.";

#[derive(Debug, Args)]
#[command(after_long_help = METRICS_HELP)]
pub(crate) struct Eval {
    #[command(flatten)]
    model: ModelOptions,
    /// Data with answers to score, pairs to compare, or prompts to answer: a file, or a folder in the layout of Hugging
    /// Face data sets, also on the hub, `hf://datasets/owner/name`
    #[arg(long)]
    data: PathBuf,
    /// Split of the files in a folder [default: `test`, else `validation`]
    #[arg(long)]
    split: Option<String>,
    /// Maximum tokens per example; longer ones are truncated at the end
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=1_048_576))]
    max_length: u32,
    /// Examples scored in one batch; affects memory and speed, not results
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// Run file whose `[[verifier]]` list judges the answers to prompts [default: that of the run's folder, if it lists
    /// only built-in verifiers]
    #[arg(long, value_name = "RUN_FILE")]
    rewards: Option<PathBuf>,
    #[command(flatten)]
    trust: TrustOptions,
    /// Completions per prompt; with more than 1, raise `--temperature` as well
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    completions: u32,
    /// Exit with code 1 if a metric is below a value, for example `accuracy=0.9`. Can be repeated
    #[arg(long = "at-least", value_name = "METRIC=VALUE", value_parser = parse_threshold)]
    at_least: Vec<(String, f64)>,
    /// Exit with code 1 if a metric is above a value, for example `loss=1.2`. Can be repeated
    #[arg(long = "at-most", value_name = "METRIC=VALUE", value_parser = parse_threshold)]
    at_most: Vec<(String, f64)>,
    #[command(flatten)]
    sampling: SamplingOptions,
}

/// Parses `METRIC=VALUE` to (name, value). Fails without `=` or if the value is not a number; the name is checked
/// later.
fn parse_threshold(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("write it as METRIC=VALUE")?;
    let value: f64 = value.parse().map_err(|_| format!("`{value}` is not a number"))?;
    Ok((name.to_owned(), value))
}

impl Eval {
    /// In the parent, asks whether to accept what the run file of `--rewards` requests, fetches model and data, and
    /// compiles the verifiers. Returns the files that the command reads; `None` if it computes on an accelerator. Fails
    /// if the data file cannot be opened.
    pub(super) fn prepare(&self, terminal: Terminal, global: &Global) -> Result<Option<Access>, Failure> {
        let data = self.find_files(global)?;
        data.iter().try_for_each(|file| files::open(file).map(drop))?;
        let quiet = Terminal { json: false, quiet: true, verbose: false };
        let rewards = self.reward_settings(quiet, global.offline)?;
        if let Some(settings) = rewards.as_ref().filter(|_| !global.supervised && self.rewards.is_some()) {
            self.trust.check_run(terminal, settings)?;
        }
        let Some(mut access) = self.model.prepare(global)? else { return Ok(None) };
        let linked = data.iter().flat_map(|file| data_files(file));
        access.read.extend(linked.chain(self.rewards.iter().chain([&self.data]).cloned()));
        if let Some(settings) = rewards {
            access.read.extend(component_files(&settings));
            if !global.supervised {
                access.code = Some(compile_run(terminal, &settings, false)?);
            }
        }
        Ok(Some(access))
    }

    /// Evaluates the base model, and the adapted one if there is an adapter, prints the figures, with `--json` as an
    /// event in place of the table, and checks the thresholds.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        let mut loaded = self.model.load(terminal, global)?;
        let is_steered = SteeringOptions::default().add_vectors(terminal, &mut loaded)?;
        let base = loaded.base_policy()?;
        let settings = EvaluationSettings {
            length: self.max_length as usize,
            batch: self.batch as usize,
            sampling: Sampling { completions: self.completions as usize, ..sampling_parameters(&self.sampling) },
        };
        let is_changed = loaded.has_adapter || is_steered;
        let adapted = is_changed.then_some(&loaded.policy);
        let rewards = self.reward_settings(terminal, global.offline)?;
        let result = evaluate(&base, adapted, &self.find_files(global)?, &settings, rewards.as_ref())?;
        emit_evaluation(terminal, &self.data, &result);
        terminal.status("Evaluated", format!("{}, each {}", pluralize(result.records as u64, "record"), result.shape));
        if terminal.verbose && !result.completions.is_empty() {
            terminal.event(json!({ "event": "completions", "completions": result.completions }));
            terminal.status("Sampled", format!("reward and completion\n{}", format_samples(&result.completions)));
        }
        if !terminal.json {
            evaluation_table(&result, is_changed).iter().for_each(|line| terminal.print_line(line));
        }
        self.check_thresholds(terminal, &result)
    }

    /// The files of the data: the file itself, or those of a split in a folder or at an address on a hub. Without
    /// `--split`, takes `test`, else `validation`. Fails for a folder without a file of the split, and for data that
    /// cannot be fetched.
    fn find_files(&self, global: &Global) -> Result<Vec<PathBuf>, Failure> {
        let find = |split: &str| find_files(&self.data, split, global.offline);
        let found = match &self.split {
            Some(split) => find(split),
            None => find("test").or_else(|error| find("validation").map_err(|_| error)),
        };
        found.map_err(|error| {
            let mut failure = Failure::from(error);
            let hint = failure.explanation.hint.take();
            failure.explanation.hint = hint.map(|text| text.replace("set `data.split`", "choose one with `--split`"));
            failure
        })
    }

    /// Reads the settings of the run whose verifiers judge completions: from the file of `--rewards`, else from
    /// `run.toml` in the folder of the model. `None` without either, and, with a warning, if that `run.toml` names a
    /// verifier that is not built in or asks for more than the defaults.
    fn reward_settings(&self, terminal: Terminal, offline: bool) -> Result<Option<RunSettings>, Failure> {
        let own = || self.model.existing_folder().map(|folder| folder.join("run.toml")).filter(|path| path.is_file());
        let settings = match &self.rewards {
            Some(file) => Some(RunSettings::load(file, &[])?),
            None => own().map(|file| load_run_rewards(terminal, &file)).transpose()?.flatten(),
        };
        let Some(mut settings) = settings else { return Ok(None) };
        (settings.offline, settings.compiling) = (offline, compile_settings()?);
        Ok(Some(settings))
    }

    /// Shows each threshold of `--at-least` and `--at-most` that the figures miss; returns exit code 1 if there is one.
    /// A value equal to its threshold is no miss. Compares the adapted model's value if there is one, else the base
    /// model's. Fails if a figure does not exist.
    fn check_thresholds(&self, terminal: Terminal, result: &Evaluation) -> CommandResult {
        let mut status = ExitStatus::Success;
        let minimums = self.at_least.iter().map(|threshold| (threshold, true));
        let maximums = self.at_most.iter().map(|threshold| (threshold, false));
        for ((name, limit), is_minimum) in minimums.chain(maximums) {
            let figure = find_figure(result, name)?;
            let value = figure.adapted.or(figure.base).unwrap_or(f64::NAN);
            let is_met = if is_minimum { value >= *limit } else { value <= *limit };
            if !is_met {
                let bound = if is_minimum { "below the minimum" } else { "above the maximum" };
                terminal.status("No", format!("{name} is {}, {bound} of {limit}", format_figure(value)));
                status = ExitStatus::Code(Exit::No);
            }
        }
        Ok(status)
    }
}

/// Loads the run file of a run's folder for its verifiers. Returns `None`, with a warning, if a verifier is not built
/// in, or if the file asks for more than the defaults and this was not accepted before: such a file is used only if the
/// user names it with `--rewards`. Never asks.
fn load_run_rewards(terminal: Terminal, file: &Path) -> Result<Option<RunSettings>, Failure> {
    let settings = RunSettings::load(file, &[])?;
    let foreign = settings.file.verifier.iter().find(|verifier| builtin::find_verifier(&verifier.r#use).is_none());
    let why = match foreign {
        Some(verifier) => format!("`{}` is not built in", printable(&verifier.r#use, 80)),
        None if admit_run_file(&settings, false, &mut |_| false).is_err() => {
            "the run file asks for more than the defaults".to_owned()
        }
        None => return Ok(Some(settings)),
    };
    terminal.warn(format!("no verifier judges the answers: {why}; `--rewards {}` uses it", file.display()));
    Ok(None)
}

/// Finds a figure of an evaluation by its name. Fails with the list of existing names.
fn find_figure<'a>(result: &'a Evaluation, name: &str) -> Result<&'a Figure, Failure> {
    result.figures.iter().find(|figure| figure.name == name).ok_or_else(|| {
        let names: Vec<&str> = result.figures.iter().map(|figure| figure.name).collect();
        Failure::usage(format!("there is no metric `{name}`"), format!("this data gives {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_that_only_the_folder_names_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        let quiet = Terminal { json: false, quiet: true, verbose: false };
        let verifiers = |list: &[&str]| {
            let list: String = list.iter().map(|name| format!("[[verifier]]\nuse = \"{name}\"\n")).collect();
            let text = format!("[model]\npath = \"m\"\n[data]\npath = \"d.jsonl\"\n[method]\nuse = \"rlvr\"\n{list}");
            std::fs::write(&file, text).unwrap();
            load_run_rewards(quiet, &file).ok().unwrap().map(|settings| settings.file.verifier.len())
        };
        assert_eq!(verifiers(&["number", "exact"]), Some(2));
        assert_eq!(verifiers(&["number", "./number.wasm"]), None);
        assert_eq!(verifiers(&["calm@0.1.0"]), None);
    }
}
