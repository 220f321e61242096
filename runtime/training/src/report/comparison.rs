//! Several runs beside each other: their outcomes, the settings in which they differ, and a page with their lines in
//! common plots.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};
use tunebox_foundation::format::{bytes, duration, group_digits, pluralize};

use super::content::Content;
use super::figures::{figure, metric_label};
use super::html;
use super::plot::{Line, Plot};
use super::text::{printable_lines, short};
use super::verdict::goal;
use crate::checkpoint::reject_links;
use crate::error::Error;
use crate::lock;
use crate::verification::append_leaves;

/// The tables and values of `run.lock` that are compared.
const COMPARED: [&str; 12] = [
    "method",
    "model",
    "data",
    "validation",
    "verifier",
    "environment",
    "settings",
    "steps",
    "device",
    "compute",
    "processor",
    "tunebox",
];

/// Keys that are not compared, by their beginnings: settings of the method are there with their defaults, under
/// `method.settings`, and so is the number of steps, under `steps`.
const NOT_COMPARED: [&str; 5] =
    ["settings.run.", "settings.method.", "settings.train.steps", "settings.train.epochs", "method.imports"];

/// The most bytes of a value on the page.
const MAX_CELL: usize = 120;

/// Runs beside each other.
#[derive(Debug, Serialize)]
pub struct RunComparison {
    /// The runs, in the order in which they were given.
    pub runs: Vec<ComparedRun>,
    /// The settings and inputs in which they differ.
    pub differences: Vec<Difference>,
    /// The page that shows them, as HTML.
    #[serde(skip)]
    pub page: String,
}

/// A run and how it went.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ComparedRun {
    /// The run's name.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The method and its version.
    pub method: String,
    /// The model as the settings name it.
    pub model: String,
    /// Finished steps.
    pub steps: u64,
    /// Planned steps; `None` for a run without an end.
    pub planned: Option<u64>,
    /// Whether all steps are done.
    pub finished: bool,
    /// The sum of the seconds of all steps.
    pub seconds: f64,
    /// The mean of tokens per second; `None` before the first step.
    pub tokens_per_second: Option<f64>,
    /// The peak memory; `None` if it is unknown.
    pub peak_bytes: Option<u64>,
    /// The name of the metric that it is judged by.
    pub goal: Option<&'static str>,
    /// Every metric in figures.
    pub metrics: Vec<MetricSummary>,
}

/// A metric of a run in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricSummary {
    /// Its name.
    pub name: String,
    /// The first number.
    pub first: f64,
    /// The last number.
    pub last: f64,
    /// The smallest number.
    pub lowest: f64,
    /// The largest number.
    pub highest: f64,
}

/// A key in which runs differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The key, such as `train.rate` or `data.sha256`.
    pub key: String,
    /// The value of each run; `None` where the run has none.
    pub values: Vec<Option<String>>,
}

impl Difference {
    /// The values for a table: a digest shortened to 12 characters, a long text cut, a dash for none.
    #[must_use]
    pub fn short_values(&self) -> Vec<String> {
        let is_digest = |value: &str| value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
        let short_value = |value: &Option<String>| match value.as_deref() {
            None => "–".to_owned(),
            Some(value) if is_digest(value) => format!("{}…", &value[..12]),
            Some(value) => printable_lines(value, MAX_CELL),
        };
        self.values.iter().map(short_value).collect()
    }
}

impl ComparedRun {
    /// Takes the figures of a run from what its folder says.
    fn of(content: &Content) -> Self {
        let metric = |(name, series): &(String, super::series::Series)| MetricSummary {
            name: name.clone(),
            first: series.first.1,
            last: series.last.1,
            lowest: series.lowest.1,
            highest: series.highest.1,
        };
        Self {
            name: content.name(),
            folder: content.folder.clone(),
            method: format!("{} {}", content.text("method.name"), content.text("method.version")),
            model: content.text("model.name"),
            steps: content.step,
            planned: content.planned_steps(),
            finished: lock::is_finished(&content.lock),
            seconds: content.seconds,
            tokens_per_second: (content.seconds > 0.0).then(|| content.tokens / content.seconds),
            peak_bytes: content.peak.as_ref().map(|peak| peak.last.1 as u64),
            goal: goal(content).map(|goal| goal.name),
            metrics: content.series.iter().map(metric).collect(),
        }
    }

    /// The figures of a metric; `None` if the run does not report it.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&MetricSummary> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

/// Compares the runs in these folders, and makes the page that shows them.
///
/// # Errors
/// A folder without a readable `run.lock` or with a link in it, and files of a run that cannot be read.
pub fn compare_runs(folders: &[PathBuf]) -> Result<RunComparison, Error> {
    let read = |folder: &PathBuf| reject_links(folder).and_then(|()| Content::read(folder));
    let contents = folders.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
    let runs: Vec<ComparedRun> = contents.iter().map(ComparedRun::of).collect();
    let differences = find_differences(&contents);
    let page = render(&contents, &runs, &differences);
    Ok(RunComparison { runs, differences, page })
}

/// The key of the learning rate. A run file may leave it out with AdamW, whose default rate depends on adapter and
/// records.
const RATE: &str = "settings.train.rate";

/// Returns the keys of a run's lock that are compared, with their values as text. A learning rate that the run file
/// leaves out is taken from the plan, unless nothing is trained.
fn compared_leaves(content: &Content) -> Vec<(String, String)> {
    let mut leaves = Vec::new();
    for key in COMPARED {
        content.lock.get(key).into_iter().for_each(|value| append_leaves(key, value, &mut leaves));
    }
    leaves.retain(|(key, _)| {
        key == "settings.method.use" || !NOT_COMPARED.iter().any(|beginning| key.starts_with(beginning))
    });
    let trained = content.figures.as_ref().filter(|figures| figures.trainable > 0);
    if let Some(figures) = trained.filter(|_| !leaves.iter().any(|(key, _)| key == RATE)) {
        append_leaves(RATE, &toml::Value::Float(figures.rate), &mut leaves);
    }
    leaves
}

/// Finds the keys of the locks whose values are not the same in all runs, in the order of their first appearance.
fn find_differences(contents: &[Content]) -> Vec<Difference> {
    let all: Vec<Vec<(String, String)>> = contents.iter().map(compared_leaves).collect();
    let mut keys: Vec<&String> = Vec::new();
    for (key, _) in all.iter().flatten() {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let values_of = |key: &String| -> Vec<Option<String>> {
        let value = |leaves: &Vec<(String, String)>| {
            leaves.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone())
        };
        all.iter().map(value).collect()
    };
    let differing = keys
        .into_iter()
        .map(|key| (key, values_of(key)))
        .filter(|(_, values)| values.windows(2).any(|two| two[0] != two[1]));
    let shorter = |key: &String| key.strip_prefix("settings.").unwrap_or(key).to_owned();
    differing.map(|(key, values)| Difference { key: shorter(key), values }).collect()
}

/// Renders the page: a table of outcomes, the settings that differ, and a plot for each metric that at least two runs
/// report. The main plot is of the first run's goal, or that of the next run that has one; there is none if only one
/// run reports that metric.
fn render(contents: &[Content], runs: &[ComparedRun], differences: &[Difference]) -> String {
    let names = common_metrics(contents);
    let main = runs.iter().find_map(|run| run.goal).filter(|goal| names.iter().any(|name| name == goal));
    let others = names.iter().filter(|name| Some(name.as_str()) != main);
    let columns: Vec<&String> = main_columns(&names);
    let setting = |one: &Difference| json!({ "key": printable_lines(&one.key, MAX_CELL), "shown": one.short_values() });
    let heads = ["state", "steps"].map(str::to_owned).into_iter().chain(columns.iter().map(|name| metric_label(name)));
    let page = json!({
        "title": format!("{} compared", pluralize(runs.len() as u64, "run")),
        "subtitle": runs.iter().map(|run| printable_lines(&run.name, MAX_CELL)).collect::<Vec<_>>().join(", "),
        "columns": heads.chain(["tokens/s", "time", "peak memory"].map(str::to_owned)).collect::<Vec<_>>(),
        "runs": runs.iter().enumerate().map(|(at, run)| run_row(at, run, &columns)).collect::<Vec<_>>(),
        "settings": differences.iter().map(setting).collect::<Vec<_>>(),
        "main_plot": main.map(|name| figure(&plot(contents, runs, name, true))),
        "plots": others.map(|name| figure(&plot(contents, runs, name, false))).collect::<Vec<_>>(),
    });
    html::render("compare.html", &page)
}

/// The metrics that at least two runs report, in the order of the first run.
fn common_metrics(contents: &[Content]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in contents.iter().flat_map(|content| &content.series) {
        let count = contents.iter().filter(|content| content.series(name).is_some()).count();
        if count > 1 && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Of the common metrics those that the table of outcomes shows, in its order.
fn main_columns(names: &[String]) -> Vec<&String> {
    const SHOWN: [&str; 6] =
        ["loss", "reward", "validation-loss", "validation-reward", "validation-pass-at-1", "accuracy"];
    SHOWN.iter().filter_map(|shown| names.iter().find(|name| name == shown)).collect()
}

/// Builds a run's row of the table of outcomes, with its name and the number of its color: state, steps, the last value
/// of each metric in `columns`, speed, time and peak memory; a dash for what is not known.
fn run_row(color: usize, run: &ComparedRun, columns: &[&String]) -> Value {
    let dash = || "–".to_owned();
    let steps = run.planned.filter(|planned| *planned != run.steps);
    let steps = steps.map_or_else(
        || group_digits(run.steps),
        |planned| format!("{} of {}", group_digits(run.steps), group_digits(planned)),
    );
    let values = columns.iter().map(|name| run.metric(name).map_or_else(dash, |metric| short(metric.last)));
    let state = if run.finished { "finished" } else { "not finished" };
    let speed = run.tokens_per_second.map_or_else(dash, |speed| short(speed.round()));
    let peak = run.peak_bytes.map_or_else(dash, bytes);
    let cells = [state.to_owned(), steps].into_iter().chain(values).chain([speed, duration(run.seconds), peak]);
    json!({ "color": color, "name": printable_lines(&run.name, MAX_CELL), "cells": cells.collect::<Vec<_>>() })
}

/// The plot of a metric with the lines of all runs that report it, each in the color of its run.
fn plot(contents: &[Content], runs: &[ComparedRun], name: &str, is_main: bool) -> Plot {
    let line = |(color, (content, run)): (usize, (&Content, &ComparedRun))| {
        Some(Line { label: printable_lines(&run.name, 40), color, points: content.series(name)?.points() })
    };
    let lines = contents.iter().zip(runs).enumerate().filter_map(line).collect();
    Plot { title: metric_label(name), lines, is_main }
}
