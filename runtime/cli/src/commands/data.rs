//! `tunebox data`: shows what a data file holds, and which of its tokens are learned.

use std::path::{Path, PathBuf};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::json;
use tunebox_compute::Device;
use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_foundation::format::{group_digits, pluralize};
use tunebox_model::Model;
use tunebox_model::chat::Answers;
use tunebox_package::Reference;
use tunebox_training::data::{
    Bar, FieldMap, Preview, Reading, Sample, Shape, ShownToken, check_fields, find_files, preview,
};
use tunebox_training::{data_files, find_model, model_files, package_files, read_template};

use crate::access::Access;
use crate::arguments::{Global, one_of};
use crate::run::plan::{file_notes, split_note};
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal, escape};

/// Characters of the longest bar of the histogram.
const BAR_WIDTH: usize = 40;

/// The most characters of a text that is learned, or that is not, which are shown in one piece.
const SHOWN_CHARACTERS: usize = 600;

/// The most wrong records that are listed.
const SHOWN_SKIPPED: usize = 5;

#[derive(Debug, Args)]
pub(crate) struct Data {
    /// Data files, or folders in the layout of Hugging Face data sets; on the hub, `hf://datasets/owner/name`
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Model whose tokenizer and chat template are used: a folder, a `.gguf` file or a hub name
    #[arg(long)]
    model: Option<String>,
    /// Chat template in place of the model's own: `chatml`, `gemma` or `llama3`, or a Jinja file
    #[arg(long, value_name = "NAME|FILE", requires = "model")]
    chat_template: Option<String>,
    /// Method that is to learn from the data, which says how records are read [default: the fields decide]
    #[arg(long)]
    method: Option<String>,
    /// Read a column as a field of a record, for example `prompt=question`. Can be repeated
    #[arg(long = "map", value_name = "FIELD=COLUMN", value_parser = parse_mapping)]
    map: Vec<(String, String)>,
    /// Split of the files in a folder
    #[arg(long, default_value = "train")]
    split: String,
    /// Maximum tokens per example; longer ones are cut at the end, plain texts split
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=1_048_576))]
    max_length: u32,
    /// Hold back a share of the records, such as 0.1, or a number of them for validation, as a run would
    #[arg(long, value_name = "N")]
    validation: Option<f64>,
    /// Assistant messages of a conversation that are learned, if their `weight` is not 0
    #[arg(long, default_value = "all", value_parser = one_of([("all", Answers::All), ("last", Answers::Last)]))]
    answers: Answers,
}

/// Parses `FIELD=COLUMN` to a pair; fails without `=`.
fn parse_mapping(text: &str) -> Result<(String, String), String> {
    let (field, column) = text.split_once('=').ok_or("write it as FIELD=COLUMN")?;
    Ok((field.to_owned(), column.to_owned()))
}

impl Data {
    /// Fetches the model and data that are of a hub, and returns the files that the command reads.
    pub(super) fn prepare(&self, global: &Global) -> Result<Option<Access>, Failure> {
        let mut read = self.files.clone();
        read.extend(self.chat_template.iter().map(PathBuf::from));
        read.extend(self.find_files(global)?.iter().flat_map(|file| data_files(file)));
        if let Some(name) = self.model.as_ref().filter(|name| global.supervised || !Path::new(name).exists()) {
            read.extend(model_files(find_model(name, None, global.offline)?.path()));
        }
        if let Some(method) = &self.method {
            read.extend(package_files(&Reference::parse(method, Path::new("."))?));
        }
        Ok(Some(Access::read_only(read)))
    }

    /// Reads the files and shows layout, counts, lengths and the first records.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        let map: FieldMap = self.map.iter().cloned().collect();
        if let Err((_, problem)) = check_fields(&map) {
            return Err(Failure::new(problem.with_location("`--map`"), Exit::Usage));
        }
        let source = self.model.as_ref().map(|name| find_model(name, None, global.offline)).transpose()?;
        let mut model = source.map(|source| Model::inspect(&source, &Device::Cpu)).transpose()?;
        if let (Some(model), Some(written)) = (&mut model, &self.chat_template) {
            model.set_template(&read_template(written, Path::new(written))?)?;
        }
        let reading = Reading { map, ..Reading::new(self.shapes()?, self.max_length as usize) };
        let shown = preview(&self.find_files(global)?, &reading, model.as_ref(), self.answers, self.validation)?;
        terminal.event(json!({ "event": "data", "data": shown }));
        if !terminal.json {
            show_preview(terminal, &shown, model.is_some());
        }
        if model.is_none() {
            terminal.suggest("the same command with `--model MODEL` shows token lengths and what is learned");
        }
        Ok(ExitStatus::Success)
    }

    /// The files of all arguments, with those of the split in place of a folder or an address on a hub. Fails for a
    /// folder without a file of the split, and for data that cannot be fetched.
    fn find_files(&self, global: &Global) -> Result<Vec<PathBuf>, Failure> {
        let found = self.files.iter().map(|path| find_files(path, &self.split, global.offline));
        Ok(found.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// The shapes that the method of `--method` learns from, or all shapes without one.
    fn shapes(&self) -> Result<Vec<Shape>, Failure> {
        let Some(method) = &self.method else { return Ok(Shape::all().collect()) };
        let word = Reference::parse(method, Path::new("."))?.open()?.manifest.shape;
        Shape::of_method(&word).ok_or_else(|| {
            let what = format!("`{method}` learns from `{word}`, which no data file can hold");
            Failure::new(Explanation::new("data", what), Exit::Usage)
        })
    }
}

/// Shows counts, notes and the first wrong records as messages; with a model also, as data, the lengths and the first
/// records token by token.
fn show_preview(terminal: Terminal, shown: &Preview, has_model: bool) {
    let report = &shown.report;
    terminal.status("Records", format!("{}, each {}", pluralize(shown.records as u64, "record"), shown.shape));
    for line in file_notes(report) {
        terminal.status("File", line);
    }
    if report.held_back > 0 {
        let held_back = pluralize(report.held_back as u64, "record");
        terminal.status(
            "Held back",
            format!("{held_back} for validation, drawn by `train.seed`; the counts are without them"),
        );
    }
    for wrong in report.skipped.iter().take(SHOWN_SKIPPED) {
        let file = if wrong.file.is_empty() { String::new() } else { format!("{}, ", wrong.file) };
        terminal.status("Wrong", format!("{file}{}: {}", wrong.place, wrong.reason));
    }
    let further = report.skipped.len().saturating_sub(SHOWN_SKIPPED);
    if further > 0 {
        terminal.status("Wrong", format!("{} more", pluralize(further as u64, "record")));
    }
    if !report.skipped.is_empty() {
        terminal.note("a run stops at the first wrong record; `--set data.skip-bad=true` leaves them out");
    }
    if !has_model {
        return;
    }
    let (targets, tokens) = (group_digits(report.targets as u64), group_digits(report.tokens as u64));
    terminal.status("Tokens", format!("{tokens}, of which {targets} are learned"));
    for (count, what) in
        [(report.truncated, "cut at the end, to"), (report.dropped.len(), "left out: nothing to learn is within")]
    {
        if count > 0 {
            terminal.status("Cut", format!("{} {what} {} tokens", pluralize(count as u64, "record"), report.length));
        }
    }
    if let Some(text) = split_note(report) {
        terminal.status("Split", text);
    }
    format_lengths(&shown.lengths).iter().for_each(|line| terminal.print_line(line));
    let is_colored = AutoStream::choice(&std::io::stdout()) != ColorChoice::Never;
    let legend = if is_colored { "green is learned" } else { "what is learned is in ⟦⟧" };
    terminal.print_line(format!("\nThe first records; {legend}:"));
    for sample in &shown.samples {
        terminal.print_line(format!("\n{}", format_sample(sample, is_colored)));
    }
}

/// Formats the histogram of lengths, a line for each range, in at most 80 columns.
fn format_lengths(bars: &[Bar]) -> Vec<String> {
    let most = bars.iter().map(|bar| bar.records).max().unwrap_or(0).max(1);
    let line = |bar: &Bar| {
        // A bar of few records among many still has a mark.
        let marks = (bar.records * BAR_WIDTH).div_ceil(most);
        let range = if bar.from == bar.to { bar.from.to_string() } else { format!("{}-{}", bar.from, bar.to) };
        format!("{range:>15} tokens {:BAR_WIDTH$} {:>9}", "#".repeat(marks), group_digits(bar.records as u64))
    };
    bars.iter().map(line).collect()
}

/// Formats a record: for each row its name and its text, with what is learned in green or between `⟦` and `⟧`.
fn format_sample(sample: &Sample, is_colored: bool) -> String {
    let row = |row: &tunebox_training::data::SampleRow| {
        let runs = row.tokens.chunk_by(|one, next| one.learned == next.learned);
        let text: String = runs.map(|run| format_tokens(run, is_colored)).collect();
        format!("  {}, {}:\n    {}", sample.place, row.side, text.trim_end().replace('\n', "\n    "))
    };
    sample.rows.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// Formats tokens that are all learned, or all not; learned ones in green or between `⟦` and `⟧`. Line ends are shown
/// as `⏎` before the line end; of a long text the middle is left out.
fn format_tokens(tokens: &[ShownToken], is_colored: bool) -> String {
    let text: String = tokens.iter().map(|token| token.text.as_str()).collect();
    let characters: Vec<char> = text.chars().collect();
    let text = if characters.len() > SHOWN_CHARACTERS {
        let half = SHOWN_CHARACTERS / 2;
        let [begin, end] = [&characters[..half], &characters[characters.len() - half..]].map(String::from_iter);
        format!("{begin} … {end}")
    } else {
        text
    };
    let text = escape(&text).replace('\n', "⏎\n");
    if !tokens.first().is_some_and(|token| token.learned) {
        return text;
    }
    // The end of the mark stands before a line end, not alone on the next line.
    let (text, end) = text.strip_suffix('\n').map_or((text.as_str(), ""), |text| (text, "\n"));
    let green = Style::new().bold().fg_color(Some(AnsiColor::Green.into()));
    if is_colored { format!("{green}{text}{green:#}{end}") } else { format!("⟦{text}⟧{end}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str, learned: bool) -> ShownToken {
        ShownToken { text: text.to_owned(), learned }
    }

    #[test]
    fn what_is_learned_is_marked_with_and_without_color_and_nothing_acts_on_the_terminal() {
        let tokens = vec![token("Q\u{1b}[2J: ", false), token("Rh", true), token("ine\n", true)];
        let row = tunebox_training::data::SampleRow { side: "example", tokens };
        let sample = Sample { line: 7, place: "line 7".into(), rows: vec![row] };
        assert_eq!(format_sample(&sample, false), "  line 7, example:\n    Q\\u{1b}[2J: ⟦Rhine⏎⟧");
        let colored = format_sample(&sample, true);
        assert!(
            colored.contains("\u{1b}[1m\u{1b}[32mRhine⏎\u{1b}[0m") && colored.contains("Q\\u{1b}[2J: "),
            "{colored:?}"
        );
    }

    #[test]
    fn the_histogram_fits_a_narrow_terminal() {
        let bars = [
            Bar { from: 0, to: 499_999, records: 1_234_567 },
            Bar { from: 500_000, to: 999_999, records: 1 },
            Bar { from: 1_000_000, to: 1_499_999, records: 0 },
        ];
        let lines = format_lengths(&bars);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
        assert_eq!(lines.iter().map(|line| line.matches('#').count()).collect::<Vec<_>>(), [40, 1, 0]);
    }

    #[test]
    fn of_a_long_text_both_ends_are_shown() {
        let text = format_tokens(&[token(&"a".repeat(500), false), token(&"b".repeat(500), false)], false);
        assert_eq!(text, format!("{} … {}", "a".repeat(300), "b".repeat(300)));
    }
}
