//! What a run's folder says about the run: `run.lock`, `run.toml`, and the rows of `metrics.jsonl` and `report.jsonl`.
//!
//! The files of the rows are read as they grow, so that a report during the run costs as much as the rows since the
//! last. A folder may come from a stranger: lengths and numbers are limited, and what is no row is skipped.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use toml::Table;
use tunebox_foundation::bounded;
use tunebox_foundation::files::{self, FileError};

use super::journal::{self, Entry, Figures};
use super::series::Series;
use crate::configuration::ENDLESS;
use crate::cost::Cost;
use crate::error::Error;
use crate::observer::{Answered, Sample};
use crate::{lock, metrics};

/// The most metrics of a run that are shown; a run file or a method decides how many there are.
const MAX_SERIES: usize = 64;

/// The most lines of the method, warnings and groups of completions that are kept, the last ones.
const MAX_KEPT: usize = 40;

/// The most bytes of a row; a longer line is skipped.
const MAX_ROW: u64 = 1 << 20;

/// The most bytes of `run.toml` that are read.
const MAX_RUN_FILE: u64 = 1 << 20;

/// Keys of a row of metrics that count or measure the step and are no metric to plot.
const COUNTS: [&str; 6] = ["step", "epoch", "tokens", "targets", "seconds", "skipped-updates"];

/// Items with the number of finished steps that they belong to.
pub(super) type Dated<T> = VecDeque<(u64, T)>;

/// What a run's folder says.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) folder: PathBuf,
    /// The parsed `run.lock`.
    pub(super) lock: Table,
    /// The text of `run.toml`; empty if it cannot be read.
    pub(super) run_file: String,
    /// The numbers of every metric, in the order of their first row.
    pub(super) series: Vec<(String, Series)>,
    /// Finished steps.
    pub(super) step: u64,
    /// The sum of the seconds of all steps.
    pub(super) seconds: f64,
    /// The sum of the tokens of all steps.
    pub(super) tokens: f64,
    /// Updates that were skipped.
    pub(super) skipped: f64,
    /// Metrics reported after the last step.
    pub(super) closing: Vec<(String, f64)>,
    /// The step whose weights were shipped; `None` before the end, and without a validation after an update.
    pub(super) shipped: Option<u64>,
    /// Changes of the method: finished steps and the new digest.
    pub(super) revisions: Dated<String>,
    /// The figures of the plan; `None` before the run's journal has them.
    pub(super) figures: Option<Figures>,
    /// The estimated cost with the step after which it was estimated.
    pub(super) estimate: Option<(u64, Cost)>,
    /// What the run cost, from its start or where it was resumed; `None` before its end.
    pub(super) cost: Option<Cost>,
    /// The peak memory so far, in bytes.
    pub(super) peak: Option<Series>,
    /// The last groups of completions that were shown.
    pub(super) completions: Dated<Vec<Sample>>,
    /// The first and the last answers.
    pub(super) answers: Vec<(u64, Vec<Answered>)>,
    /// The last lines that the method logged.
    pub(super) log: Dated<String>,
    /// The last warnings.
    pub(super) warnings: Dated<String>,
    metrics: Tail,
    journal: Tail,
}

impl Content {
    /// Reads what the run's folder holds now.
    ///
    /// # Errors
    /// A `run.lock` that is missing, too large or no TOML, and files that exist and cannot be read.
    pub(super) fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(lock::FILE);
        let lock = lock::parse(&path, &lock::read_text(&path)?)?;
        let mut content = Self {
            folder: folder.to_owned(),
            lock,
            run_file: bounded::read_text(&folder.join("run.toml"), MAX_RUN_FILE).unwrap_or_default(),
            metrics: Tail::of(folder.join(metrics::FILE)),
            journal: Tail::of(folder.join(journal::FILE)),
            ..Self::default()
        };
        content.update()?;
        Ok(content)
    }

    /// Reads the rows that `metrics.jsonl` and `report.jsonl` gained since the last call. Skips lines that are no rows.
    pub(super) fn update(&mut self) -> Result<(), Error> {
        for line in self.metrics.read_lines()? {
            if let Ok(row) = serde_json::from_slice(&line) {
                self.add_metrics(&row);
            }
        }
        for line in self.journal.read_lines()? {
            if let Some(row) = journal::parse(&line) {
                self.add_entry(row.step, row.entry);
            }
        }
        Ok(())
    }

    /// The name of the run: that of its folder.
    pub(super) fn name(&self) -> String {
        let folder = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
        folder.file_name().map_or_else(|| self.folder.display().to_string(), |name| name.to_string_lossy().into_owned())
    }

    /// The planned steps; `None` if the run has no end, or its lock names none.
    pub(super) fn planned_steps(&self) -> Option<u64> {
        let steps = u64::try_from(self.lock.get("steps")?.as_integer()?).ok()?;
        Some(steps).filter(|steps| *steps != u64::from(ENDLESS))
    }

    /// The text at a dotted key of the lock, such as `method.name`; empty if there is none. Numbers are formatted.
    pub(super) fn text(&self, key: &str) -> String {
        let mut keys = key.split('.');
        let first = keys.next().and_then(|key| self.lock.get(key));
        match keys.try_fold(first, |value, key| Some(value?.get(key))).flatten() {
            Some(toml::Value::String(text)) => text.clone(),
            Some(value @ (toml::Value::Integer(_) | toml::Value::Float(_))) => value.to_string(),
            _ => String::new(),
        }
    }

    /// The numbers of a metric; `None` if no row has it.
    pub(super) fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|(known, _)| known == name).map(|(_, series)| series)
    }

    /// Adds a row of `metrics.jsonl`: the closing metrics, the shipped step, or numbers of a step, with a change of the
    /// method if the row has one. A row without a whole `step` is skipped.
    fn add_metrics(&mut self, row: &Map<String, Value>) {
        let Some(step) = row.get("step").and_then(Value::as_u64) else { return };
        let numbers = || row.iter().filter_map(|(name, value)| Some((name, value.as_f64()?)));
        if row.contains_key("closing") {
            let reported = numbers().filter(|(name, _)| *name != "step").take(MAX_SERIES);
            self.closing = reported.map(|(name, value)| (name.clone(), value)).collect();
            return;
        }
        if let Some(shipped) = row.get("shipped") {
            self.shipped = shipped.as_u64();
            return;
        }
        if let Some(digest) = row.get("method").and_then(Value::as_str) {
            keep(&mut self.revisions, step, digest.to_owned());
        }
        self.step = self.step.max(step);
        for (name, value) in numbers() {
            match name.as_str() {
                "seconds" => self.seconds += value,
                "tokens" => self.tokens += value,
                "skipped-updates" => self.skipped += value,
                name if COUNTS.contains(&name) => {}
                name => self.add_number(name, step as f64, value),
            }
        }
    }

    /// Adds a number to the series of a metric; does nothing for a further metric once there are 64.
    fn add_number(&mut self, name: &str, step: f64, value: f64) {
        if let Some((_, series)) = self.series.iter_mut().find(|(known, _)| known == name) {
            series.push(step, value);
        } else if self.series.len() < MAX_SERIES {
            self.series.extend(Series::new(step, value).map(|series| (name.to_owned(), series)));
        }
    }

    /// Adds a row of `report.jsonl`. A plan, which a resumed run writes anew, removes the earlier estimate and cost. Of
    /// the answers, keeps the first and the last.
    fn add_entry(&mut self, step: u64, entry: Entry) {
        match entry {
            Entry::Plan(figures) => {
                (self.estimate, self.cost) = (None, None);
                self.figures = Some(figures);
            }
            Entry::Estimate(cost) => self.estimate = Some((step, cost)),
            Entry::Cost(cost) => self.cost = Some(cost),
            Entry::PeakBytes(bytes) => match &mut self.peak {
                Some(peak) => peak.push(step as f64, bytes as f64),
                none => *none = Series::new(step as f64, bytes as f64),
            },
            Entry::Completions(samples) => keep(&mut self.completions, step, samples),
            Entry::Answers(answers) => {
                self.answers.truncate(1);
                self.answers.push((step, answers));
            }
            Entry::Log(line) => keep(&mut self.log, step, line),
            Entry::Warning(text) => keep(&mut self.warnings, step, text),
        }
    }
}

/// Adds an item to a list of at most [`MAX_KEPT`], of which the oldest goes.
fn keep<T>(items: &mut Dated<T>, step: u64, item: T) {
    if items.len() == MAX_KEPT {
        items.pop_front();
    }
    items.push_back((step, item));
}

/// A text file that grows, and how much of it was read.
#[derive(Debug, Default)]
struct Tail {
    path: PathBuf,
    offset: u64,
    /// Whether `offset` is inside a line of more than 1 MiB.
    is_skipping: bool,
}

impl Tail {
    /// Begins before the first line of the file, which need not exist yet.
    fn of(path: PathBuf) -> Self {
        Self { path, ..Self::default() }
    }

    /// Returns the lines that the file has gained since the last call, without those of more than 1 MiB. A line without
    /// an end stays for the next call. No lines if the file does not exist.
    fn read_lines(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        let failed = || FileError::at("read", &self.path);
        let mut file = files::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset)).map_err(failed())?;
        let (mut reader, mut lines) = (BufReader::new(file), Vec::new());
        loop {
            let mut line = Vec::new();
            let read = reader.by_ref().take(MAX_ROW).read_until(b'\n', &mut line).map_err(failed())?;
            let is_whole = line.last() == Some(&b'\n');
            if !is_whole && (read as u64) < MAX_ROW {
                return Ok(lines);
            }
            self.offset += read as u64;
            if is_whole && !self.is_skipping {
                lines.push(line);
            }
            self.is_skipping = !is_whole;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder(metrics: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(lock::FILE), "steps = 20\n[method]\nname = \"lora\"\n").unwrap();
        fs::write(folder.path().join(metrics::FILE), metrics).unwrap();
        folder
    }

    #[test]
    fn the_rest_of_a_line_that_is_too_long_is_no_line_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        fs::write(&path, vec![b'x'; MAX_ROW as usize]).unwrap();
        let mut tail = Tail::of(path.clone());
        assert!(tail.read_lines().unwrap().is_empty());
        fs::write(&path, [vec![b'x'; MAX_ROW as usize + 3], b"\nrow\n".to_vec()].concat()).unwrap();
        assert_eq!(tail.read_lines().unwrap(), [b"row\n"]);
    }

    #[test]
    fn rows_are_read_as_they_come() {
        let folder = folder("{\"step\":1,\"loss\":2.5,\"seconds\":1.0}\n{\"step\":2,\"lo");
        let mut content = Content::read(folder.path()).unwrap();
        assert_eq!(
            (content.step, content.planned_steps(), content.text("method.name").as_str()),
            (1, Some(20), "lora")
        );
        let whole = "{\"step\":1,\"loss\":2.5,\"seconds\":1.0}\n{\"step\":2,\"loss\":1.5,\"seconds\":1.0}\n";
        fs::write(folder.path().join(metrics::FILE), whole).unwrap();
        content.update().unwrap();
        assert_eq!((content.step, content.seconds), (2, 2.0));
        assert_eq!(content.series("loss").unwrap().points(), [(1.0, 2.5), (2.0, 1.5)]);
    }

    #[test]
    fn what_is_no_row_is_skipped_and_what_is_too_much_is_left_out() {
        let many: String = (0..100).map(|number| format!("{{\"step\":1,\"m{number}\":1}}\n")).collect();
        let long = format!("{{\"step\":2,\"text\":\"{}\"}}\n", "a".repeat(3 << 20));
        let text = format!("[]\n{{\"step\":-1,\"loss\":1}}\n\u{fffd}\n{long}{many}{{\"step\":3,\"m1\":null}}\n");
        let folder = folder(&text);
        let lines: String = (0..100).map(|number| format!("{{\"step\":1,\"log\":\"{number}\"}}\n")).collect();
        fs::write(folder.path().join(journal::FILE), format!("{lines}{{\"step\":1,\"other\":1}}\n")).unwrap();
        let content = Content::read(folder.path()).unwrap();
        assert_eq!((content.series.len(), content.step, content.log.len()), (MAX_SERIES, 3, MAX_KEPT));
        assert_eq!(content.log.back().unwrap().1, "99");
    }
}
