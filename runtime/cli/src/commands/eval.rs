//! `tunebox eval`: how good a model is on a data file, base beside adapted.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tunebox_foundation::explain::Exit;
use tunebox_foundation::printable::printable;
use tunebox_model::generate::Sampling;
use tunebox_package::builtin;
use tunebox_training::{Evaluation, EvaluationSettings, Figure, RunSettings, evaluate};

use super::generate::sampling;
use super::subject::Subject;
use super::{Ending, Outcome, worker};
use crate::arguments::{Global, Writing};
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use tunebox_foundation::format::counted;

/// What the figures are.
const FIGURES: &str = "Figures of answers: `loss`, the negative log-likelihood of a target token; `perplexity`, its \
    exponential; `accuracy`, the share of target tokens that are the first choice. Of pairs, chosen less rejected: `margin` \
    in the log-probability of a target token, `reward-margin` in that of a whole answer, less the base's; `accuracy` and \
    `reward-accuracy`, the shares of pairs where they are above 0.";

#[derive(Debug, Args)]
#[command(after_long_help = FIGURES)]
pub(crate) struct Eval {
    #[command(flatten)]
    subject: Subject,
    /// A JSONL file: answers to score, pairs to compare, or prompts to answer
    #[arg(long)]
    data: PathBuf,
    /// Tokens of the longest example; what is longer loses its end
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=1_048_576))]
    max_length: u32,
    /// Examples that are scored together; changes memory, not results
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// A run file whose `[[verifier]]` list judges the answers to prompts; that of a run's own folder does without being
    /// named where it lists only what is built in
    #[arg(long, value_name = "RUN_FILE")]
    rewards: Option<PathBuf>,
    /// Answers to each prompt; with more than 1, raise the temperature as well
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    completions: u32,
    /// A bar for a figure, such as `accuracy=0.9`; exit code 1 below it. May be given several times
    #[arg(long = "at-least", value_name = "FIGURE=VALUE", value_parser = bar)]
    at_least: Vec<Bar>,
    /// A bar for a figure, such as `loss=1.2`; exit code 1 above it. May be given several times
    #[arg(long = "at-most", value_name = "FIGURE=VALUE", value_parser = bar)]
    at_most: Vec<Bar>,
    #[command(flatten)]
    writing: Writing,
}

/// A figure and a value for it.
#[derive(Debug, Clone)]
struct Bar {
    name: String,
    value: f64,
}

fn bar(text: &str) -> Result<Bar, String> {
    let (name, value) = text.split_once('=').ok_or("write it as FIGURE=VALUE")?;
    let value: f64 = value.parse().map_err(|_| format!("`{value}` is not a number"))?;
    Ok(Bar { name: name.to_owned(), value })
}

impl Eval {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        let loaded = self.subject.load(terminal, global)?;
        let base = loaded.base()?;
        let settings = EvaluationSettings {
            length: self.max_length as usize,
            batch: self.batch as usize,
            sampling: Sampling { completions: self.completions as usize, ..sampling(&self.writing) },
        };
        let adapted = loaded.adapted.then_some(&loaded.policy);
        let rewards = self.rewards(terminal)?;
        let found = evaluate(&base, adapted, &self.data, &settings, rewards.as_ref())?;
        if terminal.json {
            terminal.object(json!({ "event": "evaluated", "data": self.data, "shape": found.shape, "records": found.records, "figures": found.figures }));
        } else {
            show(terminal, &found, loaded.adapted);
        }
        self.judge(terminal, &found)
    }

    /// The run file whose verifiers judge: the one that is named, else the run's own.
    fn rewards(&self, terminal: Terminal) -> Result<Option<RunSettings>, Failure> {
        let own = || self.subject.folder().map(|folder| folder.join("run.toml")).filter(|path| path.is_file());
        let settings = match &self.rewards {
            Some(file) => Some(RunSettings::load(file, &[])?),
            None => own().map(|file| unnamed(terminal, &file)).transpose()?.flatten(),
        };
        let Some(mut settings) = settings else { return Ok(None) };
        settings.compiling = worker::compiling()?;
        Ok(Some(settings))
    }

    /// Whether every bar is met.
    fn judge(&self, terminal: Terminal, found: &Evaluation) -> Outcome {
        let mut met = true;
        let above = self.at_least.iter().map(|bar| (bar, true));
        let below = self.at_most.iter().map(|bar| (bar, false));
        for (bar, least) in above.chain(below) {
            let figure = figure(found, &bar.name)?;
            let value = figure.adapted.or(figure.base).unwrap_or(f64::NAN);
            let fine = if least { value >= bar.value } else { value <= bar.value };
            if !fine {
                let side = if least { "below" } else { "above" };
                terminal.say("No", format!("{} is {}, {side} the bar of {}", bar.name, number(value), bar.value));
            }
            met &= fine;
        }
        Ok(if met { Ending::Done } else { Ending::Exit(Exit::No) })
    }
}

/// The run file of a folder, which whoever made the folder wrote: a verifier of theirs runs only if a person names the
/// file. None: it lists one.
fn unnamed(terminal: Terminal, file: &Path) -> Result<Option<RunSettings>, Failure> {
    let settings = RunSettings::load(file, &[])?;
    let foreign = settings.file.verifier.iter().find(|verifier| builtin::find_verifier(&verifier.r#use).is_none());
    let Some(verifier) = foreign else { return Ok(Some(settings)) };
    let (file, name) = (file.display(), printable(&verifier.r#use, 80));
    terminal.say("Warning", format!("no verifier judges: `{name}` is not built in; `--rewards {file}` takes it"));
    Ok(None)
}

fn figure<'a>(found: &'a Evaluation, name: &str) -> Result<&'a Figure, Failure> {
    found.figures.iter().find(|figure| figure.name == name).ok_or_else(|| {
        let names: Vec<&str> = found.figures.iter().map(|figure| figure.name).collect();
        Failure::usage(format!("there is no figure `{name}`"), format!("this data gives {}", names.join(", ")))
    })
}

fn show(terminal: Terminal, found: &Evaluation, adapted: bool) {
    terminal.say("Evaluated", format!("{}, each {}", counted(found.records as u64, "record"), found.shape));
    for line in table(found, adapted) {
        terminal.data(line);
    }
}

/// A row for each figure, the base's number beside the adapted one's.
pub(super) fn table(found: &Evaluation, adapted: bool) -> Vec<String> {
    let heading = format!("{:17}{:>10}{:>10}", "", "base", if adapted { "adapted" } else { "" });
    let cell = |value: Option<f64>| value.map_or_else(String::new, number);
    let rows = found
        .figures
        .iter()
        .map(|figure| format!("{:17}{:>10}{:>10}", figure.name, cell(figure.base), cell(figure.adapted)));
    std::iter::once(heading).chain(rows).map(|line| line.trim_end().to_owned()).collect()
}

/// Four digits that matter.
fn number(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_that_only_the_folder_names_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        let quiet = Terminal { json: false, quiet: true, verbose: false };
        let verifiers = |list: &[&str]| {
            let list: String = list.iter().map(|name| format!("[[verifier]]\nuse = \"{name}\"\n")).collect();
            let text = format!("[model]\npath = \"m\"\n[data]\npath = \"d.jsonl\"\n[method]\nuse = \"rlvr\"\n{list}");
            std::fs::write(&file, text).unwrap();
            unnamed(quiet, &file).ok().unwrap().map(|settings| settings.file.verifier.len())
        };
        assert_eq!(verifiers(&["number", "exact"]), Some(2));
        assert_eq!(verifiers(&["number", "./number.wasm"]), None);
        assert_eq!(verifiers(&["calm@0.1.0"]), None);
    }
}
