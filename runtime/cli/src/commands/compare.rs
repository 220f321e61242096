//! `tunebox compare`: lays runs over each other in one page, and prints their outcomes and where their settings differ.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tunebox_foundation::files;
use tunebox_foundation::format::{duration, group_digits, number};
use tunebox_training::{ComparedRun, Difference, RunComparison, compare_runs, find_run};

use crate::browser::open_page;
use crate::terminal::{CommandResult, ExitStatus, Terminal, cut, escape};

/// The width of the table of outcomes, and of the names in it.
const WIDTH: usize = 80;
const NAME_WIDTH: usize = 22;

/// Metrics of validation data, of which the table shows the first that a run reports.
const VALIDATION: [&str; 3] = ["validation-loss", "validation-reward", "validation-pass-at-1"];

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Runs, two to eight: their folders, or their names in `runs`
    #[arg(required = true, num_args = 2..=8, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// File for the page
    #[arg(long, value_name = "FILE", default_value = "compare.html")]
    out: PathBuf,
    /// Open the page in the browser
    #[arg(long)]
    open: bool,
}

impl Compare {
    /// Writes the page, in place of an existing file, and prints the outcomes and the differences of the settings.
    pub(crate) fn run(self, terminal: Terminal) -> CommandResult {
        let folders = self.runs.iter().map(|run| find_run(run)).collect::<Result<Vec<_>, _>>()?;
        let RunComparison { runs, differences, page } = compare_runs(&folders)?;
        files::write(&self.out, page.as_bytes())?;
        terminal.event(json!({ "event": "compared", "out": self.out, "runs": runs, "differences": differences }));
        if !terminal.json {
            for line in outcome_lines(&runs).into_iter().chain(difference_lines(&differences)) {
                terminal.print_line(escape(&line));
            }
        }
        terminal.status("Wrote", self.out.display());
        if self.open {
            open_page(terminal, &self.out);
        }
        Ok(ExitStatus::Success)
    }
}

/// Formats the table of outcomes, a heading and a line for each run: steps, the last value of the main metric and of
/// the first metric in [`VALIDATION`] that a run reports, speed and time. The main metric is that of the first run
/// which has one. A dash stands for what a run lacks.
fn outcome_lines(runs: &[ComparedRun]) -> Vec<String> {
    let goal = runs.iter().find_map(|run| run.goal).unwrap_or("loss");
    let validation = VALIDATION.into_iter().find(|name| runs.iter().any(|run| run.metric(name).is_some()));
    let columns: Vec<&str> = [Some(goal), validation].into_iter().flatten().collect();
    let heads: String =
        columns.iter().map(|name| format!("{:>11}", cut(&name.replace("validation-", "val. "), 10))).collect();
    let head = format!("{:NAME_WIDTH$}{:>10}{heads}{:>13}{:>12}", "run", "steps", "tokens", "time");
    let row = |run: &ComparedRun| {
        let cell = |name: &&str| run.metric(name).map_or_else(|| "–".to_owned(), |metric| number(metric.last, 4, 10));
        let cells: String = columns.iter().map(|name| format!("{:>11}", cell(name))).collect();
        let speed = run
            .tokens_per_second
            .map_or_else(|| "–".to_owned(), |speed| format!("{}/s", group_digits(speed.round() as u64)));
        let name = cut(&run.name, NAME_WIDTH - 1);
        format!("{name:NAME_WIDTH$}{:>10}{cells}{speed:>13}{:>12}", group_digits(run.steps), duration(run.seconds))
    };
    std::iter::once(head).chain(runs.iter().map(row)).map(|line| line.trim_end().to_owned()).collect()
}

/// Formats the settings in which runs differ, a line each with the values in the order of the runs, cut to [`WIDTH`];
/// says so if there are none.
fn difference_lines(differences: &[Difference]) -> Vec<String> {
    if differences.is_empty() {
        return vec![String::new(), "Model, data, method and settings are the same.".into()];
    }
    let line = |difference: &Difference| {
        cut(&format!("  {:24} {}", difference.key, difference.short_values().join(" | ")), WIDTH)
    };
    [String::new(), "Settings that differ:".into()].into_iter().chain(differences.iter().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use tunebox_training::MetricSummary;

    use super::*;

    #[test]
    fn the_tables_fit_a_terminal() {
        let metric =
            |name: &str| MetricSummary { name: name.into(), first: 8.0, last: 1e30, lowest: 0.1, highest: 8.0 };
        let run = ComparedRun {
            name: "n".repeat(100),
            folder: "runs/n".into(),
            method: "lora 0.1.0".into(),
            model: "tiny".into(),
            steps: 9_999_999,
            planned: None,
            finished: true,
            seconds: 359_999.0,
            tokens_per_second: Some(12_345_678.0),
            peak_bytes: None,
            goal: Some("loss"),
            metrics: vec![metric("loss"), metric("validation-pass-at-1")],
        };
        let difference =
            Difference { key: "train.rate".into(), values: vec![Some("a".repeat(64)), None, Some("x".repeat(90))] };
        let lines = [outcome_lines(&[run]), difference_lines(&[difference])].concat();
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        assert!(lines[4].contains("aaaaaaaaaaaa… | – | xx"), "{lines:#?}");
    }
}
