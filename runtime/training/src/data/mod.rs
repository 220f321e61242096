//! Data in: JSONL lines to examples to micro-batches.
//!
//! `lines` reads, `shape` and `record` tell what a line is, `encode` makes tokens, `order` and `packing` make
//! batches, `fault` says what is wrong with a line. Where the files lie is left to the plan.

mod encode;
mod fault;
mod fields;
mod lines;
mod locate;
mod mismatch;
mod order;
mod packing;
mod record;
mod shape;
mod window;

use std::path::Path;

use rayon::prelude::*;
use sha2::{Digest, Sha256};

pub use encode::{Encoder, Example};
pub use fault::{BadLine, DataError, LineFault};
pub use lines::{Line, Lines};
pub use order::{Batching, Cursor, Walk};
pub use record::{Content, Record, Turns};
pub use shape::Shape;
pub(crate) use window::rows;
pub use window::{Window, window};

use crate::digest::hexadecimal;
use crate::error::Error;
use fault::every_line;
use record::{Wrong, object};
use shape::shape_of;

/// Lines that are read and tokenised together: enough for all threads, little in memory.
const CHUNK: usize = 2_048;

/// How a file is read.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The shapes that the method takes.
    pub wanted: Vec<Shape>,
    /// Tokens of the longest example.
    pub length: usize,
    /// Leave wrong lines out and list them, instead of stopping at the first.
    pub skip_bad: bool,
}

/// A line that was left out, and why.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Skipped {
    /// Its number, from 1.
    pub line: u64,
    /// Why.
    pub reason: String,
}

/// What became of the lines of a file.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// Lines of the file, blank ones too.
    pub lines: u64,
    /// Lines left out because they are wrong.
    pub skipped: Vec<Skipped>,
    /// Lines left out because no target is within the length.
    pub dropped: Vec<u64>,
    /// Examples that lost their end.
    pub truncated: usize,
    /// Examples whose prompt ends in other tokens when the completion follows.
    pub merged: usize,
    /// Tokens of all examples.
    pub tokens: usize,
    /// Tokens that are learned.
    pub targets: usize,
    /// Tokens of the longest example.
    pub longest: usize,
    /// Tokens that an example may have.
    pub length: usize,
}

/// The examples of a file, tokenised.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// What messages call the file.
    pub name: String,
    /// The shape of its records.
    pub shape: Shape,
    /// The examples, in the order of the file.
    pub examples: Vec<Example>,
    /// What became of the lines.
    pub report: Report,
    /// The SHA-256 of the file.
    pub digest: String,
    /// The SHA-256 of the token ids and targets: another tokenizer, template or length shows here.
    pub token_digest: String,
}

impl Dataset {
    /// Reads and tokenises a file.
    ///
    /// # Errors
    /// A file that cannot be read, the first wrong line (unless those are skipped), and a file
    /// without a single example.
    pub fn read(path: &Path, reading: &Reading, encoder: &Encoder<'_>) -> Result<Self, Error> {
        let mut reader =
            Reader { name: path.display().to_string(), reading, encoder, shape: None, report: Report::default() };
        let mut lines = Lines::open(path)?;
        let mut examples = Vec::new();
        loop {
            let chunk = lines.take(CHUNK)?;
            if chunk.is_empty() {
                break;
            }
            reader.chunk(chunk, &mut examples)?;
        }
        let Reader { name, shape, mut report, .. } = reader;
        report.lines = lines.read();
        report.length = reading.length;
        report.tokens = examples.iter().map(Example::tokens).sum();
        report.targets = examples.iter().map(Example::targets).sum();
        report.longest =
            examples.iter().flat_map(|example| &example.sides).map(|side| side.ids.len()).max().unwrap_or(0);
        let Some(shape) = shape.filter(|_| !examples.is_empty()) else {
            return Err(emptiness(name, &report, &reading.wanted).into());
        };
        let token_digest = token_digest(&examples);
        Ok(Self { name, shape, examples, report, digest: lines.digest(), token_digest })
    }

    /// Tokens of each example, for packing.
    #[must_use]
    pub fn lengths(&self) -> Vec<usize> {
        self.examples.iter().map(Example::tokens).collect()
    }
}

struct Reader<'a> {
    name: String,
    reading: &'a Reading,
    encoder: &'a Encoder<'a>,
    shape: Option<Shape>,
    report: Report,
}

impl Reader<'_> {
    fn chunk(&mut self, lines: Vec<Line>, examples: &mut Vec<Example>) -> Result<(), Error> {
        // The first good line decides the shape, so that a later line is held to what the file is.
        if self.shape.is_none() {
            self.shape = lines.iter().find_map(|line| {
                let (text, object) = object(&line.bytes).ok()?;
                shape_of(text, &object, &self.reading.wanted).ok()
            });
        }
        let wanted = self.wanted();
        let encoder = self.encoder;
        let read = lines.into_par_iter().map(|line| {
            let example = example(&line, &wanted, encoder);
            (line, example)
        });
        for (line, example) in read.collect::<Vec<_>>() {
            match example {
                Ok(example) => self.keep(example, examples),
                Err(wrong) => self.refuse(line, wrong)?,
            }
        }
        Ok(())
    }

    /// The shapes that a line may have: that of the file, once it is known.
    fn wanted(&self) -> Vec<Shape> {
        self.shape.map_or_else(|| self.reading.wanted.clone(), |shape| vec![shape])
    }

    fn keep(&mut self, mut example: Example, examples: &mut Vec<Example>) {
        match example.fit(self.reading.length) {
            None => self.report.dropped.push(example.line),
            Some(cut) => {
                self.report.truncated += usize::from(cut);
                self.report.merged += usize::from(example.sides.iter().any(|side| side.merged));
                examples.push(example);
            }
        }
    }

    fn refuse(&mut self, line: Line, (fault, column): Wrong) -> Result<(), DataError> {
        if self.reading.skip_bad {
            self.report.skipped.push(Skipped { line: line.number, reason: fault.to_string() });
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line.bytes).into_owned();
        let (name, others, wanted) = (self.name.clone(), self.shape.is_some(), self.wanted());
        Err(DataError::Line(Box::new(BadLine { name, line: line.number, column, text, fault, wanted, others })))
    }
}

fn example(line: &Line, wanted: &[Shape], encoder: &Encoder<'_>) -> Result<Example, Wrong> {
    let record = Record::read(&line.bytes, wanted)?;
    encoder.encode(record, line.number).map_err(|fault| (fault, 1))
}

/// A file without a record to learn from.
fn emptiness(name: String, report: &Report, wanted: &[Shape]) -> DataError {
    let Report { lines, skipped, dropped, length, .. } = report;
    let (why, hint) = match (skipped.first(), dropped.is_empty()) {
        (None, true) => ("the file has no line that is not blank".to_owned(), every_line(wanted)),
        (Some(first), true) => {
            let why = format!("{} of {lines} lines are wrong; line {}: {}", skipped.len(), first.line, first.reason);
            (why, every_line(wanted))
        }
        (_, false) => (
            format!("{} of {lines} lines have no target token within `data.max-length`", dropped.len()),
            format!(
                "raise `data.max-length`, or `--max-length` of `eval`: only the first {length} tokens of a record count"
            ),
        ),
    };
    DataError::Empty { name, why, hint }
}

fn token_digest(examples: &[Example]) -> String {
    let mut digest = Sha256::new();
    for side in examples.iter().flat_map(|example| &example.sides) {
        digest.update((side.ids.len() as u64).to_le_bytes());
        for (id, target) in side.ids.iter().zip(&side.targets) {
            digest.update(id.to_le_bytes());
            digest.update([u8::from(*target)]);
        }
    }
    hexadecimal(&digest.finalize())
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    #[test]
    fn records_that_end_before_their_targets_are_told_what_lets_them_be_longer() {
        let report = Report { lines: 2, dropped: vec![1, 2], length: 4, ..Report::default() };
        let hint = |report: &Report| emptiness("a.jsonl".into(), report, &[Shape::Preference]).hint().unwrap();
        assert!(hint(&report).starts_with("raise `data.max-length`"), "{}", hint(&report));
        assert!(hint(&Report::default()).contains("\"rejected\""), "{}", hint(&Report::default()));
    }
}
