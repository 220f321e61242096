//! Reads the records of data files and tokenizes them.

use std::collections::BTreeMap;

use rayon::prelude::*;
use tunebox_compute::random::Stream;
use tunebox_foundation::explain::Explanation;

use super::super::encode::{Encoder, Example};
use super::super::fault::Fault;
use super::super::files::InputFile;
use super::super::layout::{Conversion, Layout};
use super::super::parse::find_layout;
use super::super::shape::{Record, Shape};
use super::super::source::{Format, Line, read_records};
use super::problem::{MAX_SKIPPED, WrongLine};
use super::{FileReport, Reading, Report, Skipped};
use crate::error::Error;

/// The examples and counts of data files while they are read.
pub(super) struct Reader<'a> {
    reading: &'a Reading,
    /// Tokenizes the records; without it, examples have no rows.
    encoder: Option<&'a Encoder<'a>>,
    /// Whether there are several files, so that a line alone does not say which is meant.
    has_several: bool,
    /// The shape of the records of the first file; `None` before the first line with the fields of a wanted shape.
    pub(super) shape: Option<Shape>,
    pub(super) examples: Vec<Example>,
    /// The number of records that were read, those that were dropped included.
    records: u32,
    pub(super) report: Report,
    /// What is wrong with the first list of another length than its row has targets, by the name of its field.
    pub(super) wrong_lists: BTreeMap<String, String>,
    /// The tokens of the longest row of each record, before it is cut or split.
    pub(super) whole_lengths: Vec<usize>,
    /// The format of the file that was read last.
    pub(super) format: Format,
    /// What to do about the first line that was skipped.
    pub(super) first_hint: Option<String>,
}

/// The file that is read at present.
struct Present {
    name: String,
    conversion: Conversion,
    /// The shape of its records; `None` before one has shown it.
    shape: Option<Shape>,
}

impl<'a> Reader<'a> {
    /// A reader that has read nothing yet of so many files.
    pub(super) fn new(reading: &'a Reading, encoder: Option<&'a Encoder<'a>>, files: usize) -> Self {
        Self {
            reading,
            encoder,
            has_several: files > 1,
            shape: None,
            examples: Vec::new(),
            records: 0,
            report: Report::default(),
            wrong_lists: BTreeMap::new(),
            whole_lengths: Vec::new(),
            format: Format::Lines,
            first_hint: None,
        }
    }

    /// Reads a file and appends its examples, each as often as the file's weight says. Returns the digest of the file.
    pub(super) fn read_file(&mut self, file: &InputFile) -> Result<String, Error> {
        let conversion = Conversion { map: self.reading.map.clone(), ..Conversion::default() };
        let mut present = Present { name: file.name(), conversion, shape: None };
        let begin = self.examples.len();
        let facts = read_records(&file.path, &mut |format, lines| self.read_chunk(&mut present, format, lines))?;
        self.report.lines += facts.lines;
        let records = self.examples.len() - begin;
        let layout = present.conversion.layout.as_ref().map(Layout::describe);
        let weight = file.weight;
        let by_rows = self.format == Format::Parquet;
        self.report.files.push(FileReport { name: present.name, layout, records: records as u64, weight, by_rows });
        let order = weighted_order(records, weight, self.reading.seed, self.report.files.len());
        if let Some(order) = order {
            let own = self.examples.split_off(begin);
            self.examples.extend(order.into_iter().map(|index| own[index].clone()));
        }
        Ok(facts.digest)
    }

    /// Parses and tokenizes lines in parallel, then appends their examples in the order of the file. The first line of
    /// a file with the fields of a wanted shape sets the shape and the layout that every other line of the file must
    /// have. The rows of all files must be the same ones, so conversations may stand beside prompts with completions. A
    /// wrong line is recorded as skipped with `skip_bad`; otherwise the first wrong line is returned as the error.
    fn read_chunk(&mut self, present: &mut Present, format: Format, lines: Vec<Line>) -> Result<(), Error> {
        self.format = format;
        if present.shape.is_none() {
            present.conversion.is_untyped = format.is_untyped();
            self.find_shape(present, &lines);
        }
        let wanted = present.shape.map_or_else(|| self.wanted(), |shape| vec![shape]);
        let (conversion, encoder) = (&present.conversion, self.encoder);
        let splits = self.reading.splits_texts && present.shape == Some(Shape::Text);
        let read = lines.into_par_iter().map(|line| {
            let example = read_line(&line, &wanted, conversion, encoder);
            (line, example)
        });
        for (line, example) in read.collect::<Vec<_>>() {
            match example {
                Ok(example) => self.add_record(&present.name, example, splits),
                Err((fault, _)) if self.reading.skip_bad => {
                    if self.report.skipped.is_empty() {
                        self.first_hint = fault.hint;
                    }
                    self.skip(&present.name, format, line.number, fault.what)?;
                }
                Err(fault) => {
                    let wrong =
                        WrongLine { file: &present.name, format, line: &line, has_valid: present.shape.is_some() };
                    return Err(wrong.explain(fault, &self.reading.wanted).into());
                }
            }
        }
        Ok(())
    }

    /// The shapes that a file may have: those that the method learns from, with the rows of the files before it.
    fn wanted(&self) -> Vec<Shape> {
        let fits = |shape: &&Shape| self.shape.is_none_or(|first| first.sides() == shape.sides());
        self.reading.wanted.iter().filter(fits).copied().collect()
    }

    /// Sets the shape and the layout of a file by the first of `lines` that has one. Does nothing if none has.
    fn find_shape(&mut self, present: &mut Present, lines: &[Line]) {
        let (wanted, conversion) = (self.wanted(), &present.conversion);
        let has_template = self.encoder.is_some_and(|encoder| encoder.template.is_some());
        let mut texts = lines.iter().filter_map(|line| line.text.as_ref().ok());
        let found = texts.find_map(|text| find_layout(text, &wanted, conversion, has_template));
        if let Some((shape, layout)) = found {
            (present.shape, present.conversion.layout) = (Some(shape), layout);
            self.shape = self.shape.or(Some(shape));
        }
    }

    /// Records line `line` as skipped because of `reason`. Fails if [`MAX_SKIPPED`] lines are recorded already.
    fn skip(&mut self, file: &str, format: Format, line: u64, reason: String) -> Result<(), Error> {
        if self.report.skipped.len() == MAX_SKIPPED {
            let unit = format.unit();
            let of = if self.has_several { "the data".to_owned() } else { format!("`{file}`") };
            let what = format!("more than {MAX_SKIPPED} {unit}s of {of} are wrong");
            let problem = Explanation::new("data", what).with_why(format!("{}: {reason}", format.place(line)));
            return Err(problem.with_hint(format!("remove the wrong {unit}s: `data.skip-bad` is for a few")).into());
        }
        let file = if self.has_several { file.to_owned() } else { String::new() };
        self.report.skipped.push(Skipped { file, line, place: format.place(line), reason });
        Ok(())
    }

    /// Numbers the example of a record and adds it, with `splits` in pieces if it is longer than the maximum length.
    /// Counts the pieces.
    fn add_record(&mut self, file: &str, mut example: Example, splits: bool) {
        example.index = self.records;
        self.records = self.records.saturating_add(1);
        self.whole_lengths.push(example.sides.iter().map(|side| side.ids.len()).max().unwrap_or(0));
        if !splits {
            return self.add_example(file, example);
        }
        let leading = self.encoder.map_or(0, |encoder| encoder.tokenizer.leading_count());
        let pieces = example.split(self.reading.length, leading);
        if pieces.len() > 1 {
            self.report.split_texts += 1;
            self.report.pieces += pieces.len();
        }
        pieces.into_iter().for_each(|piece| self.add_example(file, piece));
    }

    /// Cuts an example to the maximum length and appends it to the examples. Records its line as dropped instead if a
    /// side has no target left, or if a prompt leaves no room for a completion. Updates the counts of truncated and
    /// merged examples, and records the first list of each field that has a wrong length.
    fn add_example(&mut self, file: &str, mut example: Example) {
        match example.truncate(self.reading.length) {
            None => self.report.dropped.push(example.line),
            Some(cut) => {
                self.report.truncated += usize::from(cut);
                self.report.merged += usize::from(example.sides.iter().any(|side| side.merged));
                let place = self.format.place(example.line);
                for (name, wrong) in example.wrong_lists() {
                    self.wrong_lists.entry(name.clone()).or_insert_with(|| wrong.describe(name, &place, file));
                }
                self.examples.push(example);
            }
        }
    }
}

/// Parses the record of a line and tokenizes it. Returns what is wrong with it, and the column.
fn read_line(
    line: &Line,
    wanted: &[Shape],
    conversion: &Conversion,
    encoder: Option<&Encoder<'_>>,
) -> Result<Example, (Fault, usize)> {
    let text = line.text.as_ref().map_err(|fault| (fault.clone(), 1))?;
    let record = Record::parse_converted(text, wanted, conversion)?;
    match encoder {
        Some(encoder) => encoder.encode(record, line.number).map_err(|fault| (fault, 1)),
        None => Ok(Example { columns: record.columns, line: line.number, ..Example::default() }),
    }
}

/// The order in which `records` examples of a file with this weight are learned from: all of them for every whole part
/// of the weight, then a share of them, drawn by `seed` and the number of the file, for its fraction. `None` for a
/// weight of 1.
fn weighted_order(records: usize, weight: f64, seed: u64, file: usize) -> Option<Vec<usize>> {
    if weight == 1.0 {
        return None;
    }
    let mut order: Vec<usize> = (0..weight.trunc() as usize).flat_map(|_| 0..records).collect();
    let share = (weight.fract() * records as f64).round() as usize;
    let mut drawn: Vec<usize> = Stream::new(seed, &format!("data/weight/{file}"))
        .permutation(records)
        .into_iter()
        .take(share)
        .map(|index| index as usize)
        .collect();
    drawn.sort_unstable();
    order.extend(drawn);
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::weighted_order;

    #[test]
    fn a_weight_repeats_the_records_and_draws_its_fraction_by_the_seed() {
        assert_eq!(weighted_order(3, 1.0, 7, 1), None);
        assert_eq!(weighted_order(3, 2.0, 7, 1).unwrap(), [0, 1, 2, 0, 1, 2]);
        let half = |seed, file| weighted_order(100, 1.5, seed, file).unwrap().split_off(100);
        assert_eq!(half(7, 1).len(), 50);
        assert_eq!(half(7, 1), half(7, 1));
        assert!(half(7, 1) != half(8, 1) && half(7, 1) != half(7, 2));
        assert!(half(7, 1).is_sorted_by(|one, next| one < next));
    }
}
