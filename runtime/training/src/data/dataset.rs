//! Reads a data file into tokenized examples.

use std::collections::BTreeSet;
use std::path::Path;

use rayon::prelude::*;
use sha2::{Digest, Sha256};
use tunebox_foundation::explain::{Explanation, Snippet};
use tunebox_foundation::hexadecimal::hexadecimal;

use super::encode::{Encoder, Example};
use super::fault::{LocatedFault, accepted_fields, example_line};
use super::lines::{Line, Lines};
use super::parse::shape_of_line;
use super::shape::{Record, Shape};
use crate::error::Error;
use crate::sample::find_data_beside;

/// Number of lines that are tokenized in parallel: enough for all threads, little in memory.
const CHUNK_LINES: usize = 2_048;

/// The most wrong lines of a file that are left out: each is listed with its reason.
const MAX_SKIPPED: usize = 100_000;

/// The widest part of a line that an error message shows, in characters.
const SHOWN_WIDTH: usize = 96;

/// How a data file is read.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The shapes that the method learns from.
    pub wanted: Vec<Shape>,
    /// Maximum length of an example in tokens.
    pub length: usize,
    /// Skip wrong lines and list them, instead of stopping at the first.
    pub skip_bad: bool,
}

/// A line that was skipped, and why.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Skipped {
    /// Number of the line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// Counts of the lines and tokens of a file.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// Lines of the file, including blank ones.
    pub lines: u64,
    /// Lines skipped because they are wrong.
    pub skipped: Vec<Skipped>,
    /// Lines dropped because no target token is within the maximum length.
    pub dropped: Vec<u64>,
    /// Examples that were cut at the maximum length.
    pub truncated: usize,
    /// Examples in which appending the completion changes the last tokens of the prompt.
    pub merged: usize,
    /// Tokens of all examples.
    pub tokens: usize,
    /// Target tokens of all examples.
    pub targets: usize,
    /// Tokens of the longest side of an example.
    pub longest: usize,
    /// Maximum length of an example in tokens.
    pub length: usize,
}

impl Report {
    /// Returns how many tokens of the maximum length of an example remain for a completion after the longest row of the
    /// data; 0 if none.
    pub(crate) fn completion_room(&self) -> usize {
        self.length.saturating_sub(self.longest)
    }
}

/// The tokenized examples of a file.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The file's name in messages.
    pub name: String,
    /// The shape of its records.
    pub shape: Shape,
    /// The examples, in the order of the file.
    pub examples: Vec<Example>,
    /// The names of numeric fields that at least one example has.
    pub columns: BTreeSet<String>,
    /// Counts of lines and tokens.
    pub report: Report,
    /// The SHA-256 of the file.
    pub digest: String,
    /// The SHA-256 of the token ids and targets, which depend on the tokenizer, the template and the maximum length.
    pub token_digest: String,
}

impl Dataset {
    /// Reads and tokenizes a JSONL file. The first line that is a JSON object with the fields of a shape in
    /// `reading.wanted` sets the shape of the file; lines without the fields of that shape are wrong, as are those with
    /// values that it does not permit. Blank lines are skipped. Wrong lines are an error, or with `skip_bad` are listed
    /// in the report; examples that do not fit the maximum length are cut or dropped and counted there.
    ///
    /// # Errors
    /// A file that cannot be read, the first wrong line unless `reading.skip_bad` is set, more than 100,000 wrong
    /// lines, a line of 16 MiB or more, and a file without an example.
    pub fn read(path: &Path, reading: &Reading, encoder: &Encoder<'_>) -> Result<Self, Error> {
        let (name, report) = (path.display().to_string(), Report::default());
        let mut reader = Reader { name, reading, encoder, shape: None, examples: Vec::new(), report };
        let mut lines = Lines::open(path)?;
        while let Some(chunk) = lines.read_chunk(CHUNK_LINES)? {
            reader.read_chunk(chunk)?;
        }
        let Reader { name, shape, examples, mut report, .. } = reader;
        report.lines = lines.number;
        report.length = reading.length;
        report.tokens = examples.iter().map(Example::tokens).sum();
        report.targets = examples.iter().map(Example::targets).sum();
        report.longest =
            examples.iter().flat_map(|example| &example.sides).map(|side| side.ids.len()).max().unwrap_or(0);
        let Some(shape) = shape.filter(|_| !examples.is_empty()) else {
            return Err(no_example(&name, &report, &reading.wanted).into());
        };
        let (columns, token_digest) = (Self::column_names(&examples), token_digest(&examples));
        Ok(Self { name, shape, examples, columns, report, digest: lines.digest(), token_digest })
    }

    /// Returns the names of numeric fields that at least one example has.
    pub(super) fn column_names(examples: &[Example]) -> BTreeSet<String> {
        examples.iter().flat_map(|example| example.columns.keys()).cloned().collect()
    }

    /// Number of rows of each example, such as 2 for a pair of answers; 1 if there is no example. The rows of an
    /// example are scored and trained on together.
    pub(crate) fn sides_per_example(&self) -> usize {
        self.examples.first().map_or(1, |example| example.sides.len())
    }

    /// Tokens of each example, summed over its sides, in the order of the file; used for packing.
    pub(crate) fn lengths(&self) -> Vec<usize> {
        self.examples.iter().map(Example::tokens).collect()
    }
}

/// The examples and counts of a data file while it is read.
struct Reader<'a> {
    /// The file's name in messages.
    name: String,
    reading: &'a Reading,
    encoder: &'a Encoder<'a>,
    /// The shape of the records; `None` before the first line with the fields of a wanted shape.
    shape: Option<Shape>,
    examples: Vec<Example>,
    report: Report,
}

impl Reader<'_> {
    /// Parses and tokenizes lines in parallel, then appends their examples in the order of the file. The first line of the
    /// file with the fields of a wanted shape sets the shape that every line of its chunk and later ones must have. A wrong
    /// line is recorded as skipped with `skip_bad`; otherwise the first wrong line is returned as the error.
    fn read_chunk(&mut self, lines: Vec<Line>) -> Result<(), Error> {
        // The first valid line decides the shape, and every later line must have it.
        if self.shape.is_none() {
            self.shape = lines.iter().find_map(|line| shape_of_line(&line.bytes, &self.reading.wanted));
        }
        let wanted = self.shape.map_or_else(|| self.reading.wanted.clone(), |shape| vec![shape]);
        let encoder = self.encoder;
        let read = lines.into_par_iter().map(|line| {
            let record = Record::parse(&line.bytes, &wanted);
            let example = record.and_then(|record| encoder.encode(record, line.number).map_err(|fault| (fault, 1)));
            (line, example)
        });
        for (line, example) in read.collect::<Vec<_>>() {
            match example {
                Ok(example) => self.add_example(example),
                Err((fault, _)) if self.reading.skip_bad => self.skip(line.number, fault.what)?,
                Err(fault) => {
                    let (wanted, has_valid_lines) = (&self.reading.wanted, self.shape.is_some());
                    return Err(line_error(&self.name, &line, fault, wanted, has_valid_lines).into());
                }
            }
        }
        Ok(())
    }

    /// Records line `line` as skipped because of `reason`. Fails if [`MAX_SKIPPED`] lines are recorded already.
    fn skip(&mut self, line: u64, reason: String) -> Result<(), Error> {
        if self.report.skipped.len() == MAX_SKIPPED {
            let what = format!("more than {MAX_SKIPPED} lines of `{}` are wrong", self.name);
            let problem = Explanation::new("data", what).with_why(format!("line {line}: {reason}"));
            return Err(problem.with_hint("remove the wrong lines: `data.skip-bad` is for a few").into());
        }
        self.report.skipped.push(Skipped { line, reason });
        Ok(())
    }

    /// Cuts an example to the maximum length and appends it to the examples. Records its line as dropped instead if a
    /// side has no target left, or if a prompt leaves no room for a completion. Updates the counts of truncated and
    /// merged examples.
    fn add_example(&mut self, mut example: Example) {
        match example.truncate(self.reading.length) {
            None => self.report.dropped.push(example.line),
            Some(cut) => {
                self.report.truncated += usize::from(cut);
                self.report.merged += usize::from(example.sides.iter().any(|side| side.merged));
                self.examples.push(example);
            }
        }
    }
}

/// Builds the error about a wrong line of the file `name`, with its location, an excerpt and a hint. `fault` and `column`
/// say what is wrong and where; `wanted` are the shapes that the method learns from. With `has_valid_lines` the hint is that
/// of the fault, and how to skip such lines. Otherwise it names another file of the sample that fits, if there is one, else
/// is that of the fault.
fn line_error(
    name: &str,
    line: &Line,
    (fault, column): LocatedFault,
    wanted: &[Shape],
    has_valid_lines: bool,
) -> Explanation {
    let hint = fault.hint.clone().unwrap_or("fix the line".into());
    let hint = if has_valid_lines {
        format!("{hint}; `--set data.skip-bad=true` leaves such lines out")
    } else {
        sample_hint(name, wanted).unwrap_or(hint)
    };
    let (text, shown_column) = excerpt(&String::from_utf8_lossy(&line.bytes), column);
    let number = usize::try_from(line.number).unwrap_or(usize::MAX);
    let snippet = Snippet { line: number, text, column: shown_column, width: 1, note: None };
    let fault = fault.with_location(format!("{name}:{number}:{column}")).with_snippet(snippet).with_hint(hint);
    Explanation { category: "data".into(), ..fault }
}

/// A hint that names the first data file of the unpacked sample whose first record has a wanted shape. `None` if `name` is
/// not the path of a file of the sample, no file of the sample fits, or the first that fits is `name` itself.
fn sample_hint(name: &str, wanted: &[Shape]) -> Option<String> {
    let other = find_data_beside(Path::new(name), |line| {
        shape_of_line(line, &Shape::all().collect::<Vec<_>>()).is_some_and(|shape| wanted.contains(&shape))
    });
    // The first record of the same file may fit though a later one does not.
    let other = other.filter(|other| other != Path::new(name))?;
    Some(format!(
        "{}; `{}` has such records: name it in the run file, or use `tunebox train --sample` with the same `--method`",
        accepted_fields(wanted),
        other.display()
    ))
}

/// Cuts a line to at most 96 characters around a column, with `…` at each cut end, and replaces control characters by
/// spaces. Returns the excerpt and the column's position in it; columns count characters, from 1.
fn excerpt(line: &str, column: usize) -> (String, usize) {
    let characters: Vec<char> = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if characters.len() <= SHOWN_WIDTH {
        return (characters.into_iter().collect(), column);
    }
    let start = column.saturating_sub(SHOWN_WIDTH / 2).min(characters.len() - SHOWN_WIDTH);
    let part: String = characters[start..start + SHOWN_WIDTH].iter().collect();
    let front = if start > 0 { "…" } else { "" };
    let back = if start + SHOWN_WIDTH < characters.len() { "…" } else { "" };
    (format!("{front}{part}{back}"), column - start + front.chars().count())
}

/// Builds the error about a file that gave no example, because its lines are blank, wrong or too long. `wanted` are the
/// shapes that the method learns from.
fn no_example(name: &str, report: &Report, wanted: &[Shape]) -> Explanation {
    let Report { lines, skipped, dropped, length, .. } = report;
    let (why, hint) = match (skipped.first(), dropped.is_empty()) {
        (None, true) => ("the file has no line that is not blank".to_owned(), example_line(wanted)),
        (Some(first), true) => {
            let why = format!("{} of {lines} lines are wrong; line {}: {}", skipped.len(), first.line, first.reason);
            (why, example_line(wanted))
        }
        (_, false) => (
            format!("{} of {lines} lines have no target token within `data.max-length`", dropped.len()),
            format!(
                "raise `data.max-length`, or `--max-length` of `eval`: only the first {length} tokens of a record count"
            ),
        ),
    };
    Explanation::new("data", format!("`{name}` holds no record to learn from")).with_why(why).with_hint(hint)
}

/// The SHA-256, in hexadecimal, of the rows of all examples, in order. Each row is its number of tokens (`u64`), then for
/// each token its id (`u32`) and a byte that is 1 for a target, else 0. Integers are little-endian.
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
mod tests;
