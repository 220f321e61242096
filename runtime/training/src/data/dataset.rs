//! The tokenized examples of data files.

mod hold_back;
mod problem;
mod reader;

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};
use tunebox_foundation::hexadecimal::hexadecimal;

use super::encode::{Encoder, Example};
use super::files::{InputFile, combined_digest};
use super::layout::FieldMap;
use super::shape::Shape;
use crate::error::Error;
pub(crate) use hold_back::check_amount;
use problem::no_example;
use reader::Reader;

/// How a data file is read.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The shapes that the method learns from.
    pub wanted: Vec<Shape>,
    /// Maximum length of an example in tokens.
    pub length: usize,
    /// Skip wrong lines and list them, instead of stopping at the first.
    pub skip_bad: bool,
    /// Columns that are read as fields of another name.
    pub map: FieldMap,
    /// Draws the records of files whose weight is no whole number.
    pub seed: u64,
    /// Split plain texts that are longer than `length` into pieces, instead of cutting them at the end.
    pub splits_texts: bool,
}

impl Reading {
    /// Reads all records of the shapes `wanted` up to `length` tokens, splits longer texts, and stops at the first
    /// record that is wrong.
    #[must_use]
    pub fn new(wanted: Vec<Shape>, length: usize) -> Self {
        Self { wanted, length, skip_bad: false, map: FieldMap::new(), seed: 0, splits_texts: true }
    }
}

/// A line that was skipped, and why.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Skipped {
    /// The file; empty if there is only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Number of the line, from 1; of a Parquet file, of the row.
    pub line: u64,
    /// Where it is in the file, in words: `line 7`, or `row 7` of a Parquet file.
    #[serde(default)]
    pub place: String,
    /// What is wrong with it.
    pub reason: String,
}

/// A file of the data, as it was read.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FileReport {
    /// The file's name in messages.
    pub name: String,
    /// The layout that was converted, and to what; `None` if the records have the fields of a shape.
    pub layout: Option<String>,
    /// Number of its records that are learned from, with those that are held back for validation.
    pub records: u64,
    /// How often each of them counts in an epoch.
    pub weight: f64,
    /// Whether its records are numbered as rows, as those of Parquet are, and not by their lines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_rows: bool,
}

/// Counts of the lines and tokens of the files.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// The files in the order in which they were read.
    #[serde(default)]
    pub files: Vec<FileReport>,
    /// Lines of the files, including blank ones; rows of tables.
    pub lines: u64,
    /// Lines skipped because they are wrong.
    pub skipped: Vec<Skipped>,
    /// Lines dropped because no target token is within the maximum length.
    pub dropped: Vec<u64>,
    /// Examples that were cut at the maximum length.
    pub truncated: usize,
    /// Plain texts that were split because they are longer than the maximum length.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub split_texts: usize,
    /// The examples that they were split into.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pieces: usize,
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
    /// Examples that are held back for validation, which are not learned from.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_back: usize,
}

impl Report {
    /// Counts the tokens and targets of `examples`, and the tokens of their longest side.
    fn count_tokens(&mut self, examples: &[Example]) {
        self.tokens = examples.iter().map(Example::tokens).sum();
        self.targets = examples.iter().map(Example::targets).sum();
        self.longest = examples.iter().flat_map(|example| &example.sides).map(|side| side.ids.len()).max().unwrap_or(0);
    }
}

/// Whether a count is 0, and so is not written.
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The tokenized examples of one file or several.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The name of the file in messages; of several, the first and how many more there are.
    pub name: String,
    /// The shape of the records of the first file; those of others have the same rows.
    pub shape: Shape,
    /// The examples, in the order of the files. An example of a file with a weight is there as often as it counts.
    pub examples: Vec<Example>,
    /// The names of numeric fields that at least one example has.
    pub columns: BTreeSet<String>,
    /// The names of fields that are lists of numbers in at least one example of a shape with columns for tokens.
    pub token_columns: BTreeSet<String>,
    /// What is wrong with the first list of another length than its row has targets, by the name of its field. Such a
    /// field is no column for tokens.
    pub wrong_lists: BTreeMap<String, String>,
    /// The tokens of the longest row of each record, before it is cut or split; a copy of a record counts once.
    pub(super) whole_lengths: Vec<usize>,
    /// Counts of lines and tokens.
    pub report: Report,
    /// The SHA-256 of the file; of several, that of their digests and weights.
    pub digest: String,
    /// The SHA-256 of the token ids and targets, which depend on the tokenizer, the template and the maximum length.
    pub token_digest: String,
}

impl Dataset {
    /// Returns how many tokens of the maximum length of an example remain for a completion after the longest prompt of
    /// the data, the tokens before a row's first target; 0 if none.
    pub(crate) fn completion_room(&self) -> usize {
        let prompt =
            |side: &tunebox_model::chat::Encoded| side.targets.iter().position(|mark| *mark).unwrap_or(side.ids.len());
        let longest = self.examples.iter().flat_map(|example| &example.sides).map(prompt).max();
        self.report.length.saturating_sub(longest.unwrap_or(0))
    }

    /// Reads and tokenizes data files of any known format. The first record that has the fields of a shape in
    /// `reading.wanted`, or a layout that can be converted to one, sets the shape and the layout of its file.
    /// Records without these fields are wrong, as are those with values that the shape does not permit. Blank lines are
    /// skipped. Wrong records are an error, or with `skip_bad` are listed in the report; examples that do not fit the
    /// maximum length are cut, split or dropped and counted there. Without an encoder the examples have no rows.
    ///
    /// # Errors
    /// A file that cannot be read, the first wrong record unless `reading.skip_bad` is set, more than 100,000 wrong
    /// records, a record of 16 MiB or more, and files without an example.
    pub fn read(files: &[InputFile], reading: &Reading, encoder: Option<&Encoder<'_>>) -> Result<Self, Error> {
        let mut reader = Reader::new(reading, encoder, files.len());
        let mut digests = Vec::with_capacity(files.len());
        for file in files {
            digests.push((reader.read_file(file)?, file.weight));
        }
        let Reader { shape, examples, mut report, wrong_lists, whole_lengths, format, first_hint, .. } = reader;
        report.length = reading.length;
        report.count_tokens(&examples);
        let name = name_of(files);
        let Some(shape) = shape.filter(|_| !examples.is_empty()) else {
            return Err(no_example(&name, &report, &reading.wanted, format, first_hint.as_deref()).into());
        };
        let digests = (combined_digest(&digests), token_digest(&examples));
        Ok(Self { wrong_lists, whole_lengths, ..Self::of_examples(name, shape, examples, report, digests) })
    }

    /// A data set of these examples, with the names of their columns. `digests` are those of the files and of the
    /// tokens.
    pub(super) fn of_examples(
        name: String,
        shape: Shape,
        examples: Vec<Example>,
        report: Report,
        (digest, token_digest): (String, String),
    ) -> Self {
        let columns = examples.iter().flat_map(|example| example.columns.keys()).cloned().collect();
        let token_columns = examples.iter().flat_map(|example| example.token_columns.keys()).cloned().collect();
        let (wrong_lists, whole_lengths) = (BTreeMap::new(), Vec::new());
        Self { name, shape, examples, columns, token_columns, wrong_lists, whole_lengths, report, digest, token_digest }
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

/// The SHA-256, in hexadecimal, of the rows of all examples, in order. Each row is its number of tokens (`u64`), then
/// for each token its id (`u32`) and a byte that is 1 for a target, else 0. Integers are little-endian.
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

/// The name of some files in messages: that of the first, and how many more there are.
fn name_of(files: &[InputFile]) -> String {
    let first = files.first().map(InputFile::name).unwrap_or_default();
    if files.len() < 2 { first } else { format!("{first} and {} more", files.len() - 1) }
}

#[cfg(test)]
mod tests;
