//! The metrics of a run: combined over a window, and written to `metrics.jsonl`, a row per line.
//!
//! Progress bars, tables and cards are made from that file. `event_file` writes the same numbers for TensorBoard.

mod event_file;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tunebox_foundation::files::{self, Lines};
use tunebox_foundation::format::seven_digits;
use tunebox_sandbox::Combine;

use crate::error::Error;
use crate::observer::StepEvent;
use crate::outcome::Outcome;
use crate::plan::Revision;
use crate::validation::PassRate;
use event_file::EventFile;

/// The file's name in a run's folder.
pub(crate) const FILE: &str = "metrics.jsonl";

/// The most bytes of the file that are read: enough for millions of steps.
const MAX_BYTES: u64 = 4 << 30;

/// Combines the metrics of the micro-batches of a window to one number for each name.
#[derive(Debug, Default)]
pub(crate) struct MetricTotals {
    /// For each metric: name, sum of its values, number of values, and how they are combined.
    sums: Vec<(String, f64, u32, Combine)>,
}

impl MetricTotals {
    /// Adds the metrics of one micro-batch: name, value, and how the values of a window are combined. The first report
    /// of a name decides how. Every value counts, also several of one name in one micro-batch.
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

    /// Returns the combined metrics, a sum or a mean for each name, in the order of `names`; those that are not in
    /// `names` come first, in the order of their first report. Rounds to seven significant digits again, since a sum of
    /// rounded numbers may have more.
    pub(crate) fn numbers(&self, names: &[String]) -> Vec<(String, f64)> {
        let position = |name: &String| names.iter().position(|known| known == name);
        let combined = self.sums.iter().map(|(name, sum, count, combine)| {
            let value = if *combine == Combine::Mean { sum / f64::from(*count) } else { *sum };
            (name.clone(), seven_digits(value))
        });
        let mut numbers: Vec<(String, f64)> = combined.collect();
        numbers.sort_by_key(|(name, _)| position(name));
        numbers
    }
}

/// `metrics.jsonl`, open for appending.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    lines: Lines,
    path: PathBuf,
    /// The event file for TensorBoard, if the run writes one.
    events: Option<EventFile>,
}

impl MetricsFile {
    /// Creates an empty metrics file in the run's folder `run`, in place of an existing one, such as that of a run that
    /// left no checkpoint. Opens it for appending.
    pub(crate) fn create(run: &Path) -> Result<Self, Error> {
        files::write(&run.join(FILE), b"")?;
        Self::resume(run, 0)
    }

    /// Opens the metrics file in the run's folder `run` for appending, and creates it if it does not exist. First
    /// rewrites the file without the rows of steps after `step` and those of the run's end (of `finish`, and of what
    /// was shipped), which will be written again, and without lines that are not rows with a `step`; leaves it alone if
    /// there are none. Opens no file of events.
    pub(crate) fn resume(run: &Path, step: u64) -> Result<Self, Error> {
        let path = run.join(FILE);
        if path.exists() {
            let bytes = files::read(&path, MAX_BYTES)?;
            let text = String::from_utf8_lossy(&bytes);
            let is_kept =
                |line: &&str| serde_json::from_str(line).is_ok_and(|row| is_up_to(&row, step) && !is_of_end(&row));
            let kept: String = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
            if kept != text {
                files::write(&path, kept.as_bytes())?;
            }
        }
        Ok(Self { lines: Lines::append_to(&path)?, path, events: None })
    }

    /// Also writes every further row to an event file for TensorBoard, in the run's folder. `step` is that of the
    /// checkpoint that the run goes on from, 0 for a new run.
    pub(crate) fn write_events(&mut self, run: &Path, step: u64) -> Result<(), Error> {
        self.events = Some(EventFile::create(run, step)?);
        Ok(())
    }

    /// Appends a row, given as a JSON object, with every number in it rounded to seven significant digits
    /// ([`round_numbers`]). Does not sync it to the disk. Also appends its numbers to the event file, if there is one.
    pub(crate) fn add_row(&mut self, row: &Value) -> Result<(), Error> {
        let mut row = row.clone();
        round_numbers(&mut row);
        self.lines.push(&row.to_string())?;
        match (&mut self.events, &row) {
            (Some(events), Value::Object(row)) => events.add_row(row),
            _ => Ok(()),
        }
    }

    /// Appends the row of a step: its number, epoch, metrics, gradient norm, rate, counts and times; `skipped-updates`
    /// only if there are any. Rounds the epoch, the seconds and the tokens per second to four decimals.
    pub(crate) fn add_step(&mut self, event: &StepEvent) -> Result<(), Error> {
        let mut row = json!({ "step": event.step, "epoch": round_to_4_decimals(event.epoch) });
        for (name, value) in &event.metrics {
            row[name] = json!(value);
        }
        row["gradient-norm"] = json!(event.gradient_norm);
        row["rate"] = json!(event.rate);
        row["tokens"] = json!(event.tokens);
        row["targets"] = json!(event.targets);
        row["tokens-per-second"] = json!(round_to_4_decimals(event.tokens_per_second));
        row["seconds"] = json!(round_to_4_decimals(event.seconds));
        if event.skipped > 0 {
            row["skipped-updates"] = json!(event.skipped);
        }
        self.add_row(&row)
    }

    /// Appends the row of the metrics that the method reported after the last step, number `step`, with the key
    /// `closing`; does nothing if there are none.
    pub(crate) fn add_closing(&mut self, step: u64, metrics: &[(String, f64)]) -> Result<(), Error> {
        if metrics.is_empty() {
            return Ok(());
        }
        let mut row = json!({ "step": step, "closing": true });
        for (name, value) in metrics {
            row[name] = json!(value);
        }
        self.add_row(&row)
    }

    /// Appends the row of a pass rate of the validation prompts after `step` steps: `validation-pass-at-1`,
    /// `validation-pass-at-K` if k is above 1, and `validation-reward`, the mean reward.
    pub(crate) fn add_pass_rate(&mut self, step: u64, rate: PassRate) -> Result<(), Error> {
        let mut row = json!({ "step": step, "validation-pass-at-1": rate.at_one });
        if rate.k > 1 {
            row[format!("validation-pass-at-{}", rate.k)] = json!(rate.at_k);
        }
        row["validation-reward"] = json!(rate.reward);
        self.add_row(&row)
    }

    /// Appends the row of a run's end: which step was shipped, and the best and the last validation score. Does nothing
    /// without a validation after an update.
    pub(crate) fn add_outcome(&mut self, outcome: &Outcome) -> Result<(), Error> {
        outcome.row().map_or(Ok(()), |row| self.add_row(&row))
    }

    /// Appends the row of a change of the method: `step`, the finished steps, and `method`, the new component's
    /// SHA-256.
    pub(crate) fn add_revision(&mut self, revision: &Revision) -> Result<(), Error> {
        self.add_row(&json!({ "step": revision.after, "method": revision.sha256 }))
    }

    /// Reads the changes of the method from the rows with a text `method` and a whole `step`, as
    /// [`MetricsFile::add_revision`] writes them, in order.
    pub(crate) fn revisions(&self) -> Result<Vec<Revision>, Error> {
        let revision = |row: &Map<String, Value>| {
            let sha256 = row.get("method")?.as_str()?.to_owned();
            Some(Revision { after: row.get("step")?.as_u64()?, sha256 })
        };
        Ok(self.read_rows()?.iter().filter_map(revision).collect())
    }

    /// Syncs the rows to the disk, so that they survive a power failure.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        Ok(self.lines.sync()?)
    }

    /// Reads every row of the file as a JSON object; see [`read_rows`].
    pub(crate) fn read_rows(&self) -> Result<Vec<Map<String, Value>>, Error> {
        read_rows(&self.path)
    }

    /// Returns those of `names`, in their order, that are a key of no row in the file.
    pub(crate) fn unreported<'a>(&self, names: &'a [String]) -> Result<Vec<&'a str>, Error> {
        let rows = self.read_rows()?;
        let names = names.iter().map(String::as_str);
        Ok(names.filter(|name| !rows.iter().any(|row| row.contains_key(*name))).collect())
    }
}

/// Reads the rows of a metrics file; skips lines that are not JSON objects, such as half a line after a crash. Fails if
/// the file cannot be read or has more than [`MAX_BYTES`].
pub(crate) fn read_rows(path: &Path) -> Result<Vec<Map<String, Value>>, Error> {
    let bytes = files::read(path, MAX_BYTES)?;
    Ok(bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// Whether the `step` of a row is a whole number of at most `step`.
fn is_up_to(row: &Value, step: u64) -> bool {
    row["step"].as_u64().is_some_and(|number| number <= step)
}

/// Whether a row is written at the end of a run only: the metrics of `finish`, or what was shipped.
fn is_of_end(row: &Value) -> bool {
    row.get("closing").is_some() || row.get("shipped").is_some()
}

/// Rounds every number in a value, at any depth, to seven significant digits, integers of eight digits or more
/// included: a method could hide data in the number of its calls to the host. Integers that are not negative stay
/// integers.
fn round_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let is_short = number.as_u64().is_some_and(|number| number < 10_000_000);
            let rounded = number.as_f64().filter(|_| !is_short).map(seven_digits);
            *value = match (rounded, number.is_u64()) {
                (Some(rounded), true) => json!(rounded as u64),
                (Some(rounded), false) => json!(rounded),
                (None, _) => return,
            };
        }
        Value::Array(items) => items.iter_mut().for_each(round_numbers),
        Value::Object(members) => members.values_mut().for_each(round_numbers),
        _ => {}
    }
}

/// Rounds a number to four decimals, for numbers that training does not depend on.
fn round_to_4_decimals(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_added_and_means_are_averaged_over_micro_batches() {
        let mut tally = MetricTotals::default();
        tally.add(&[("loss".into(), 1.0, Combine::Sum), ("accuracy".into(), 0.5, Combine::Mean)]);
        tally.add(&[("loss".into(), 2.0, Combine::Sum), ("accuracy".into(), 1.0, Combine::Mean)]);
        let names = ["accuracy".to_owned(), "loss".to_owned()];

        assert_eq!(tally.numbers(&names), [("accuracy".into(), 0.75), ("loss".into(), 3.0)]);
    }

    /// A run whose metrics file holds a text.
    fn run(text: &str) -> tempfile::TempDir {
        let run = tempfile::tempdir().unwrap();
        std::fs::write(run.path().join(FILE), text).unwrap();
        run
    }

    #[test]
    fn no_row_carries_more_than_seven_digits_of_a_number() {
        let mut tally = MetricTotals::default();
        let parts = [1.0, 1e-7, 3e-14].map(|value| ("loss".to_owned(), value, Combine::Sum));
        tally.add(&parts);
        assert_eq!(tally.numbers(&[]), [("loss".to_owned(), 1.0)]);

        let run = tempfile::tempdir().unwrap();
        let mut file = MetricsFile::create(run.path()).unwrap();
        let used = json!({ "work": 123_456_789_u64, "calls": 9_999_999, "times": [0.123_456_789, 1.0] });
        file.add_row(&json!({ "step": 3, "validation-loss": 2.345_678_91, "used": used })).unwrap();
        file.sync().unwrap();
        let used = json!({ "work": 123_456_800_u64, "calls": 9_999_999, "times": [0.123_456_8, 1.0] });
        let row = json!({ "step": 3, "validation-loss": 2.345_679, "used": used });
        assert_eq!(Value::Object(file.read_rows().unwrap().remove(0)), row);
    }

    #[test]
    fn lines_after_the_checkpoint_and_half_lines_go_when_a_run_resumes() {
        let run = run("{\"step\":1,\"loss\":2.5}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4,\"lo");
        let file = MetricsFile::resume(run.path(), 2).unwrap();
        let kept = std::fs::read_to_string(run.path().join(FILE)).unwrap();
        assert_eq!((kept.as_str(), file.read_rows().unwrap().len()), ("{\"step\":1,\"loss\":2.5}\n{\"step\":2}\n", 2));
    }

    #[test]
    fn a_metric_that_no_line_has_was_not_reported() {
        let run = run("{\"step\":1,\"loss\":2.5}\n");
        let mut file = MetricsFile::resume(run.path(), 1).unwrap();
        file.add_closing(2, &[("norm".to_owned(), 1.0)]).unwrap();
        file.sync().unwrap();
        let names = ["norm", "accuracy", "loss"].map(str::to_owned);
        assert_eq!(file.unreported(&names).unwrap(), ["accuracy"]);
    }
}
