//! `report.jsonl`: what a run's report shows and no other file of the run holds, a row per line.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tunebox_foundation::files::{self, Lines};
use tunebox_foundation::printable::printable_except;

use crate::cost::Cost;
use crate::error::Error;
use crate::observer::{Answered, Sample};
use crate::plan::PlanSummary;

/// The file's name in a run's folder.
pub(super) const FILE: &str = "report.jsonl";

/// The most bytes of the file that are read.
const MAX_BYTES: u64 = 64 << 20;

/// The most bytes that a process appends, so that the file can be read again.
const MAX_WRITTEN: usize = 16 << 20;

/// The most bytes of a line of the method or of a warning in a row.
const MAX_LINE: usize = 400;

/// A row: an entry after so many finished steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) step: u64,
    #[serde(flatten)]
    pub(super) entry: Entry,
}

/// What a row says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Entry {
    /// The run starts or resumes.
    Plan(Figures),
    /// The peak memory so far, in bytes; only when it has grown.
    PeakBytes(u64),
    /// Completions that the method learned from.
    Completions(Vec<Sample>),
    /// Answers of the model at this step.
    Answers(Vec<Answered>),
    /// A line that the method logged.
    Log(String),
    /// A problem that did not stop the run.
    Warning(String),
    /// The estimated cost of the whole run.
    Estimate(Cost),
    /// What the run cost.
    Cost(Cost),
}

/// The figures of a plan that `run.lock` does not hold, as [`PlanSummary`] has them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Figures {
    pub(super) family: String,
    pub(super) parameters: u64,
    pub(super) trainable: u64,
    pub(super) adapter: String,
    pub(super) rank: usize,
    pub(super) tokens: u64,
    pub(super) targets: u64,
    pub(super) steps_per_epoch: u64,
    pub(super) rate: f64,
    /// The estimated memory in bytes.
    pub(super) memory: u64,
}

impl Figures {
    /// Takes these figures from the summary of a plan.
    pub(super) fn of(summary: &PlanSummary) -> Self {
        Self {
            family: summary.family.clone(),
            parameters: summary.parameters,
            trainable: summary.trainable,
            adapter: summary.adapter.clone(),
            rank: summary.rank,
            tokens: summary.report.tokens as u64,
            targets: summary.report.targets as u64,
            steps_per_epoch: summary.steps_per_epoch,
            rate: summary.rate,
            memory: summary.memory.total(),
        }
    }
}

/// `report.jsonl`, open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    lines: Lines,
    written: usize,
}

impl Journal {
    /// Opens the file in the run's folder. Empties it for a new run; for one that resumes after `resumed` steps,
    /// removes the rows of later steps, and lines that are no rows.
    pub(super) fn open(run: &Path, resumed: Option<u64>) -> Result<Self, Error> {
        let path = run.join(FILE);
        let kept = match resumed {
            Some(step) if path.exists() => {
                let bytes = files::read(&path, MAX_BYTES)?;
                let rows = bytes.split_inclusive(|byte| *byte == b'\n');
                rows.filter(|line| parse(line).is_some_and(|row| row.step <= step)).collect::<Vec<_>>().concat()
            }
            _ => Vec::new(),
        };
        files::write(&path, &kept)?;
        Ok(Self { lines: Lines::append_to(&path)?, written: 0 })
    }

    /// Appends a row, with long lines cut. Drops the row once this process has appended 16 MiB.
    pub(super) fn add(&mut self, step: u64, entry: Entry) -> Result<(), Error> {
        let cut = |line: String| printable_except(&line, MAX_LINE, &['\n', '\t']);
        let entry = match entry {
            Entry::Log(line) => Entry::Log(cut(line)),
            Entry::Warning(line) => Entry::Warning(cut(line)),
            other => other,
        };
        let line = serde_json::to_string(&Row { step, entry }).unwrap_or_default();
        self.written += line.len();
        if !line.is_empty() && self.written <= MAX_WRITTEN {
            self.lines.push(&line)?;
        }
        Ok(())
    }
}

/// Parses a line; `None` if it is no row, such as half a line after a crash.
pub(super) fn parse(line: &[u8]) -> Option<Row> {
    serde_json::from_slice(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_after_the_checkpoint_and_half_rows_go_when_a_run_resumes() {
        let run = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(run.path(), None).unwrap();
        journal.add(1, Entry::Log("one".into())).unwrap();
        journal.add(5, Entry::PeakBytes(7)).unwrap();
        let path = run.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"step\":1,\"log\":\"one\"}\n{\"step\":5,\"peak-bytes\":7}\n");
        std::fs::write(&path, format!("{text}{{\"step\":1,\"lo")).unwrap();
        Journal::open(run.path(), Some(4)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"step\":1,\"log\":\"one\"}\n");
        Journal::open(run.path(), None).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn a_long_line_is_cut() {
        let run = tempfile::tempdir().unwrap();
        Journal::open(run.path(), None).unwrap().add(1, Entry::Log("a".repeat(9000))).unwrap();
        assert!(std::fs::metadata(run.path().join(FILE)).unwrap().len() < 500);
    }
}
