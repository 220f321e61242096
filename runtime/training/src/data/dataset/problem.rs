//! Errors about lines and files that hold no record.

use std::path::Path;

use tunebox_foundation::explain::{Explanation, Snippet};

use super::super::fault::{LocatedFault, accepted_fields, example, mapping_hint};
use super::super::parse::shape_of_line;
use super::super::shape::Shape;
use super::super::source::{Format, Line};
use super::Report;
use crate::sample::find_data_beside;

/// The most wrong lines that are left out: each is listed with its reason.
pub(super) const MAX_SKIPPED: usize = 100_000;

/// The widest part of a line that an error message shows, in characters.
const SHOWN_WIDTH: usize = 96;

/// A wrong line of a file.
pub(super) struct WrongLine<'a> {
    pub(super) file: &'a str,
    pub(super) format: Format,
    pub(super) line: &'a Line,
    /// Whether the file has a line that is a record.
    pub(super) has_valid: bool,
}

impl WrongLine<'_> {
    /// Builds the error about the line, with location, excerpt and hint. `fault` and `column` say what is wrong and
    /// where; `wanted` are the shapes that the method learns from. A table of text and a plain text have no excerpt,
    /// since their lines do not hold the record as JSON. If the file also has valid lines, the hint is the hint of the
    /// fault and how to skip invalid lines. Otherwise it is the file of the sample that fits the method, if there is
    /// one, else the hint of the fault.
    pub(super) fn explain(&self, (fault, column): LocatedFault, wanted: &[Shape]) -> Explanation {
        let unit = self.format.unit();
        let hint = fault.hint.clone().unwrap_or(format!("fix the {unit}"));
        let hint = if self.has_valid {
            format!("{hint}; `--set data.skip-bad=true` leaves such {unit}s out")
        } else {
            sample_hint(self.file, wanted).unwrap_or(hint)
        };
        let bytes = self.line.text.as_ref().map(Vec::as_slice).unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        let place = Place::find(&text, column, self.line);
        let fault = fault.with_location(self.format.location(self.file, place.number, place.column)).with_hint(hint);
        let is_json = !self.format.is_untyped() && self.format != Format::Text;
        let snippet = (!bytes.is_empty() && is_json).then(|| {
            let (text, column) = excerpt(place.text, place.column_in_text);
            let line = usize::try_from(place.number).unwrap_or(usize::MAX);
            Snippet { line, text, column, width: 1, note: None }
        });
        Explanation { category: "data".into(), snippet, ..fault }
    }
}

/// A place in the text of a record, which may have several lines.
struct Place<'a> {
    /// The number of the line in the file.
    number: u64,
    /// The column in the line of the file.
    column: usize,
    /// The line of the record's text.
    text: &'a str,
    /// The column in `text`.
    column_in_text: usize,
}

impl<'a> Place<'a> {
    /// Finds the place of character `column`, from 1, of the text of `line`.
    fn find(text: &'a str, column: usize, line: &Line) -> Self {
        let (mut left, mut number) = (column, line.number);
        let mut rows = text.split('\n').peekable();
        while let Some(row) = rows.next() {
            let length = row.chars().count();
            if left <= length + 1 || rows.peek().is_none() {
                let before = if number == line.number { line.column - 1 } else { 0 };
                return Self { number, column: left + before, text: row, column_in_text: left };
            }
            (left, number) = (left - length - 1, number + 1);
        }
        Self { number, column, text, column_in_text: column }
    }
}

/// A hint that names the first data file of the unpacked sample whose first record has a wanted shape. `None` if `name`
/// is not the path of a file of the sample, no file of the sample fits, or the first that fits is `name` itself.
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

/// Builds the error about files of this format that gave no example, because their lines are blank, wrong or too long.
/// `wanted` are the shapes that the method learns from, `first_hint` is the hint about the first line that was skipped.
pub(super) fn no_example(
    name: &str,
    report: &Report,
    wanted: &[Shape],
    format: Format,
    first_hint: Option<&str>,
) -> Explanation {
    let Report { lines, skipped, dropped, length, .. } = report;
    let unit = format.unit();
    let hint = if format == Format::Lines { example(unit, wanted) } else { mapping_hint(wanted) };
    let (why, hint) = match (skipped.first(), dropped.is_empty()) {
        (None, true) if format == Format::Lines => ("the file has no line that is not blank".to_owned(), hint),
        (None, true) => (format!("the file has no {unit}s"), hint),
        (Some(first), true) => {
            let (count, place) = (skipped.len(), format.place(first.line));
            let why = format!("{count} of {lines} {unit}s are wrong; {place}: {}", first.reason);
            (why, first_hint.map_or(hint, str::to_owned))
        }
        (_, false) => (
            format!("{} of {lines} {unit}s have no target token within `data.max-length`", dropped.len()),
            format!(
                "raise `data.max-length`, or `--max-length` of `eval`: only the first {length} tokens of a record count"
            ),
        ),
    };
    Explanation::new("data", format!("`{name}` holds no record to learn from")).with_why(why).with_hint(hint)
}
