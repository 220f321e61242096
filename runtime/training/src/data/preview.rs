//! What data files hold, for a person to look at before a run: layout, lengths, and the tokens that are learned.

use std::path::PathBuf;

use serde::Serialize;
use tunebox_model::Model;
use tunebox_model::chat::{Answers, Encoded};
use tunebox_model::tokenizer::Tokenizer;

use super::dataset::{Dataset, Reading, Report};
use super::encode::{Encoder, Example};
use super::files::InputFile;
use crate::error::Error;

/// The most bars of the histogram of lengths.
const MAX_BARS: usize = 12;

/// Number of records that are shown token by token.
const SAMPLES: usize = 3;

/// The most tokens whose text is decoded together: a character has at most four bytes, and a token at least one.
const MAX_PENDING: usize = 8;

/// What data files hold.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Preview {
    /// The shape of the records in words, such as `a pair of answers`.
    pub shape: String,
    /// Number of records that are learned from.
    pub records: usize,
    /// Counts of lines, tokens and targets, with what is skipped and cut.
    pub report: Report,
    /// The lengths of the longest row of each record, before it is cut; empty without a model.
    pub lengths: Vec<Bar>,
    /// The first records, token by token; empty without a model.
    pub samples: Vec<Sample>,
}

/// Records with a length in a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// The least length, in tokens.
    pub from: usize,
    /// The greatest length, in tokens.
    pub to: usize,
    /// Number of records.
    pub records: usize,
}

/// A record, token by token.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Number of the line that the record begins in; of a Parquet file, of the row.
    pub line: u64,
    /// That number for people: `line 7`, or `row 7` of a Parquet file.
    pub place: String,
    /// Its rows.
    pub rows: Vec<SampleRow>,
}

/// A row of a record, token by token.
#[derive(Debug, Clone, Serialize)]
pub struct SampleRow {
    /// The name of the row, such as `example` or `chosen`.
    pub side: &'static str,
    /// Its tokens.
    pub tokens: Vec<ShownToken>,
}

/// A token as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownToken {
    /// The text that the token adds; empty if it ends inside a character.
    pub text: String,
    /// Whether it is a target.
    pub learned: bool,
}

/// Reads data files as a run would, but lists wrong records instead of stopping at one. `files` are read with
/// `reading`; with a model, records are tokenized by its tokenizer and chat template, and cut to at most its number of
/// positions. `held_back` is the share or number of records that are held back for validation.
///
/// # Errors
/// A file that cannot be read, files without a record, a model without a tokenizer, and no record that is not held
/// back.
pub fn preview(
    files: &[PathBuf],
    reading: &Reading,
    model: Option<&Model>,
    answers: Answers,
    held_back: Option<f64>,
) -> Result<Preview, Error> {
    let files: Vec<InputFile> = files.iter().map(|path| InputFile::new(path)).collect();
    let read = |length, encoder| -> Result<Dataset, Error> {
        let mut data = Dataset::read(&files, &Reading { skip_bad: true, length, ..reading.clone() }, encoder)?;
        if let Some(amount) = held_back {
            data.hold_back(amount, reading.seed).map_err(|fault| *fault)?;
        }
        Ok(data)
    };
    let Some(model) = model else {
        let data = read(reading.length, None)?;
        let (shape, records) = (data.shape.to_string(), data.examples.len());
        return Ok(Preview { shape, records, report: data.report, lengths: Vec::new(), samples: Vec::new() });
    };
    let length = reading.length.min(model.configuration.max_positions.max(2));
    let tokenizer = model.tokenizer()?;
    let data = read(length, Some(&Encoder { tokenizer, template: model.template.as_ref(), answers }))?;
    let lengths = count_lengths(&data.whole_lengths);
    let sides = data.shape.sides();
    let unit = if data.report.files.first().is_some_and(|file| file.by_rows) { "row" } else { "line" };
    let samples = data.examples.iter().take(SAMPLES).map(|example| show_example(tokenizer, sides, example, unit));
    let samples = samples.collect::<Result<Vec<_>, Error>>()?;
    Ok(Preview { shape: data.shape.to_string(), records: data.examples.len(), report: data.report, lengths, samples })
}

/// Counts lengths in at most [`MAX_BARS`] ranges of equal width: 1, 2 or 5 times a power of ten. Leaves out empty
/// ranges before the first and after the last length.
fn count_lengths(lengths: &[usize]) -> Vec<Bar> {
    let (Some(least), Some(most)) = (lengths.iter().min(), lengths.iter().max()) else { return Vec::new() };
    let widths = (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_usize.saturating_pow(power)));
    let fits = |width: &usize| most / width - least / width < MAX_BARS;
    let width = widths.into_iter().find(fits).unwrap_or(usize::MAX);
    let bar = |index: usize| Bar {
        from: index * width,
        to: index * width + width - 1,
        records: lengths.iter().filter(|length| *length / width == index).count(),
    };
    (least / width..=most / width).map(bar).collect()
}

/// Shows the rows of a record, without empty ones. `unit` is what the file numbers its records by.
fn show_example(tokenizer: &Tokenizer, sides: &[&'static str], example: &Example, unit: &str) -> Result<Sample, Error> {
    let rows = sides.iter().zip(&example.sides).filter(|(_, row)| !row.ids.is_empty());
    let rows = rows.map(|(side, row)| Ok(SampleRow { side, tokens: show_tokens(tokenizer, row)? }));
    let place = format!("{unit} {}", example.line);
    Ok(Sample { line: example.line, place, rows: rows.collect::<Result<Vec<_>, Error>>()? })
}

/// Returns the text that each token of a row adds. A token is decoded after the one before it, since decoders drop a
/// space at the beginning; tokens that end inside a character add nothing, and the one that ends it adds it.
fn show_tokens(tokenizer: &Tokenizer, row: &Encoded) -> Result<Vec<ShownToken>, Error> {
    let (mut tokens, mut begin, mut known) = (Vec::with_capacity(row.ids.len()), 0, 0);
    for (at, learned) in row.targets.iter().enumerate() {
        let text = tokenizer.decode(&row.ids[begin..=at], false)?;
        let is_whole = !text.ends_with('\u{fffd}') || at - begin >= MAX_PENDING;
        let added = if is_whole { text.get(known..).unwrap_or_default() } else { "" };
        tokens.push(ShownToken { text: added.to_owned(), learned: *learned });
        if is_whole {
            (begin, known) = (at, tokenizer.decode(&row.ids[at..=at], false)?.len());
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_counted_in_a_few_round_ranges() {
        assert!(count_lengths(&[]).is_empty());
        assert_eq!(count_lengths(&[7]), [Bar { from: 7, to: 7, records: 1 }]);
        let lengths: Vec<usize> = (95..1_205).collect();
        let bars = count_lengths(&lengths);
        assert_eq!((bars.len(), bars[0].clone()), (7, Bar { from: 0, to: 199, records: 105 }));
        assert_eq!(bars.iter().map(|bar| bar.records).sum::<usize>(), lengths.len());
    }
}
