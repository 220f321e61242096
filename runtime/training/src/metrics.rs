//! The numbers of a run: put together over a window, and one line each in `metrics.jsonl`.
//!
//! That file is the truth of a run; bars, tables and cards are made from it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tunebox_sandbox::{Combine, Usage};

use crate::error::Error;
use crate::observer::StepEvent;
use crate::run::Revision;
use crate::validation::PassRate;
use crate::verification::Comparison;
use tunebox_foundation::files::{self, Lines};

/// The file's name in a run's folder.
pub(crate) const FILE: &str = "metrics.jsonl";

/// The most bytes that are read of it: those of millions of steps.
pub(crate) const LARGEST: u64 = 4 << 30;

/// Numbers of the micro-batches of a window on their way to one number a name.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    sums: Vec<(String, f64, u32, Combine)>,
}

impl Tally {
    /// Takes what one micro-batch reported.
    pub(crate) fn add(&mut self, metrics: &[(String, f64, Combine)]) {
        for (name, value, combine) in metrics {
            match self.sums.iter_mut().find(|(known, ..)| known == name) {
                Some((_, sum, count, _)) => {
                    *sum += value;
                    *count += 1;
                }
                None => self.sums.push((name.clone(), *value, 1, *combine)),
            }
        }
    }

    /// One number a name, in the order of `names`.
    pub(crate) fn numbers(&self, names: &[String]) -> Vec<(String, f64)> {
        let place = |name: &String| names.iter().position(|known| known == name);
        let mut numbers: Vec<(String, f64)> = self
            .sums
            .iter()
            .map(|(name, sum, count, combine)| {
                let value = if *combine == Combine::Mean { sum / f64::from(*count) } else { *sum };
                (name.clone(), value)
            })
            .collect();
        numbers.sort_by_key(|(name, _)| place(name));
        numbers
    }
}

/// `metrics.jsonl`, open for the next line.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    lines: Lines,
    path: PathBuf,
}

impl MetricsFile {
    /// Opens the file of a run, without the lines after `step`: those steps will run again.
    pub(crate) fn open(run: &Path, step: u64) -> Result<Self, Error> {
        let path = run.join(FILE);
        if path.exists() {
            let bytes = files::read(&path, LARGEST)?;
            let text = String::from_utf8_lossy(&bytes);
            let kept: String =
                text.lines().filter(|line| is_up_to(line, step)).map(|line| format!("{line}\n")).collect();
            if kept != text {
                files::write(&path, kept.as_bytes())?;
            }
        }
        Ok(Self { lines: Lines::append_to(&path)?, path })
    }

    /// Adds the line of a step.
    pub(crate) fn step(&mut self, event: &StepEvent) -> Result<(), Error> {
        let mut row = Map::new();
        row.insert("step".into(), json!(event.step));
        row.insert("epoch".into(), json!(rounded(event.epoch)));
        for (name, value) in &event.metrics {
            row.insert(name.clone(), json!(value));
        }
        row.insert("gradient-norm".into(), json!(event.gradient_norm));
        row.insert("rate".into(), json!(event.rate));
        row.insert("tokens".into(), json!(event.tokens));
        row.insert("targets".into(), json!(event.targets));
        row.insert("tokens-per-second".into(), json!(rounded(event.tokens_per_second)));
        row.insert("seconds".into(), json!(rounded(event.seconds)));
        if event.skipped > 0 {
            row.insert("skipped-updates".into(), json!(event.skipped));
        }
        self.push(row)
    }

    /// Adds the line of a look at the validation data.
    pub(crate) fn validation(&mut self, step: u64, loss: f64) -> Result<(), Error> {
        let row = json!({ "step": step, "validation-loss": loss });
        self.push(row.as_object().cloned().unwrap_or_default())
    }

    /// Adds the line of what the method reported after the last step, if it did.
    pub(crate) fn closing(&mut self, step: u64, metrics: &[(String, f64)]) -> Result<(), Error> {
        if metrics.is_empty() {
            return Ok(());
        }
        let mut row = Map::from_iter([("step".to_owned(), json!(step)), ("closing".to_owned(), json!(true))]);
        row.extend(metrics.iter().map(|(name, value)| (name.clone(), json!(value))));
        self.push(row)
    }

    /// Adds the line of what the method used of its limits in this sitting.
    pub(crate) fn used(&mut self, step: u64, usage: &Usage) -> Result<(), Error> {
        let row = json!({ "step": step, "used": usage });
        self.push(row.as_object().cloned().unwrap_or_default())
    }

    /// Adds the line of a method that changed.
    pub(crate) fn revised(&mut self, revision: &Revision) -> Result<(), Error> {
        let row = json!({ "step": revision.after, "method": revision.sha256 });
        self.push(row.as_object().cloned().unwrap_or_default())
    }

    /// When the method changed, by the lines.
    pub(crate) fn revisions(&self) -> Result<Vec<Revision>, Error> {
        let revision = |row: &Map<String, Value>| {
            let sha256 = row.get("method")?.as_str()?.to_owned();
            Some(Revision { after: row.get("step")?.as_u64()?, sha256 })
        };
        Ok(self.rows()?.iter().filter_map(revision).collect())
    }

    /// Adds the line of a look at the validation prompts.
    pub(crate) fn passes(&mut self, step: u64, rate: PassRate) -> Result<(), Error> {
        let mut row = Map::new();
        row.insert("step".into(), json!(step));
        row.insert("validation-pass-at-1".into(), json!(rate.at_one));
        if rate.k > 1 {
            row.insert(format!("validation-pass-at-{}", rate.k), json!(rate.at_k));
        }
        row.insert("validation-reward".into(), json!(rate.reward));
        self.push(row)
    }

    /// Makes sure that the lines survive a power cut.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        Ok(self.lines.sync()?)
    }

    /// Every line as a JSON object.
    pub(crate) fn rows(&self) -> Result<Vec<Map<String, Value>>, Error> {
        rows(&self.path)
    }

    /// Those of these names that no line has.
    pub(crate) fn unreported<'a>(&self, names: &'a [String]) -> Result<Vec<&'a str>, Error> {
        let rows = self.rows()?;
        let names = names.iter().map(String::as_str);
        Ok(names.filter(|name| !rows.iter().any(|row| row.contains_key(*name))).collect())
    }

    fn push(&mut self, row: Map<String, Value>) -> Result<(), Error> {
        Ok(self.lines.push(&Value::Object(row).to_string())?)
    }
}

fn rows(path: &Path) -> Result<Vec<Map<String, Value>>, Error> {
    let bytes = files::read(path, LARGEST)?;
    Ok(bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// The first number in which the metrics of two runs differ. How long things took is no difference.
pub(crate) fn first_difference(recorded: &Path, found: &Path) -> Result<Option<Comparison>, Error> {
    let lasting = |(name, _): &(&String, &Value)| !name.contains("second");
    let learned = |run: &Path| -> Result<Vec<_>, Error> {
        // What was used of the limits is told of each sitting, and a replay has one only.
        Ok(rows(&run.join(FILE))?.into_iter().filter(|row| !row.contains_key("used")).collect())
    };
    let (then, now) = (learned(recorded)?, learned(found)?);
    for (row, again) in then.iter().zip(&now) {
        let step = row.get("step").map_or_else(String::new, |step| format!(" of step {step}"));
        let missing = again.iter().filter(lasting).find(|(name, _)| !row.contains_key(*name));
        let changed = row.iter().filter(lasting).find(|(name, value)| again.get(*name) != Some(value));
        if let Some((name, _)) = changed.or(missing) {
            let number = |row: &Map<String, Value>| row.get(name).map_or("absent".to_owned(), Value::to_string);
            return Ok(Some(Comparison { what: format!("{name}{step}"), recorded: number(row), found: number(again) }));
        }
    }
    let lines = |count: usize| format!("{count} line{}", if count == 1 { "" } else { "s" });
    let longer = Comparison { what: FILE.into(), recorded: lines(then.len()), found: lines(now.len()) };
    Ok(Some(longer).filter(|longer| !longer.same()))
}

/// Whether a line is of a step up to `step`; half a line, as a crash leaves it, is not.
fn is_up_to(line: &str, step: u64) -> bool {
    let row: Option<Value> = serde_json::from_str(line).ok();
    row.and_then(|row| row["step"].as_u64()).is_some_and(|number| number <= step)
}

/// Enough digits for a person; the numbers that training depends on are not rounded.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_added_and_means_are_averaged_over_micro_batches() {
        let mut tally = Tally::default();
        tally.add(&[("loss".into(), 1.0, Combine::Sum), ("accuracy".into(), 0.5, Combine::Mean)]);
        tally.add(&[("loss".into(), 2.0, Combine::Sum), ("accuracy".into(), 1.0, Combine::Mean)]);
        let names = ["accuracy".to_owned(), "loss".to_owned()];

        assert_eq!(tally.numbers(&names), [("accuracy".into(), 0.75), ("loss".into(), 3.0)]);
    }

    #[test]
    fn the_first_number_that_differs_is_found_and_times_are_not() {
        let run = |lines: &str| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(FILE), lines).unwrap();
            folder
        };
        let one = run("{\"step\":1,\"loss\":2.5,\"seconds\":1.0}\n{\"step\":2,\"loss\":2.25}\n");
        let slower = run("{\"step\":1,\"loss\":2.5,\"seconds\":9.0}\n{\"step\":2,\"loss\":2.25}\n");
        let other = run("{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":2.2500000000000004}\n");
        let shorter = run("{\"step\":1,\"loss\":2.5}\n");
        let found = |folder: &tempfile::TempDir| first_difference(one.path(), folder.path()).unwrap();

        assert_eq!(found(&slower), None);
        assert_eq!(found(&other).unwrap().what, "loss of step 2");
        assert_eq!(found(&shorter).unwrap().found, "1 line");
    }

    #[test]
    fn lines_after_the_checkpoint_and_half_lines_go_when_a_run_resumes() {
        let run = tempfile::tempdir().unwrap();
        let text = "{\"step\":1,\"loss\":2.5}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4,\"lo";
        std::fs::write(run.path().join(FILE), text).unwrap();

        let file = MetricsFile::open(run.path(), 2).unwrap();

        assert_eq!(
            std::fs::read_to_string(run.path().join(FILE)).unwrap(),
            "{\"step\":1,\"loss\":2.5}\n{\"step\":2}\n"
        );
        assert_eq!(file.rows().unwrap().len(), 2);
    }

    #[test]
    fn a_metric_that_no_line_has_was_not_reported() {
        let run = tempfile::tempdir().unwrap();
        let text = "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"closing\":true,\"norm\":1.0}\n";
        std::fs::write(run.path().join(FILE), text).unwrap();
        let names = ["norm", "accuracy", "loss"].map(str::to_owned);

        assert_eq!(MetricsFile::open(run.path(), 2).unwrap().unreported(&names).unwrap(), ["accuracy"]);
    }
}
