//! Output and input of the program. Data goes to stdout, messages for people to stderr.

mod diagnostic;
pub(crate) mod progress;
pub(crate) mod shell;

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use clap::Args;
use console::Term;
use tunebox_foundation::printable::{is_unprintable, printable, printable_except};

pub(crate) use diagnostic::{CommandResult, ExitStatus, Failure};

/// The output mode, from `--json`, `--quiet` and `--verbose`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Terminal {
    /// Print one JSON object per line to stdout, each with `"schema": 1`
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print errors only
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print more details
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

impl Terminal {
    /// Writes a message with a label in the margin to stderr: `   Saved runs/one/steps/000010`. Breaks lines at spaces
    /// where they are longer than the terminal is wide. Writes nothing with `--quiet` or `--json`.
    pub(crate) fn status(&self, label: &str, text: impl Display) {
        self.write_stderr(&status_lines(label, &text.to_string(), width()));
    }

    /// Writes a message with the label `Warning` to stderr. Writes nothing with `--quiet` or `--json`.
    pub(crate) fn warn(&self, text: impl Display) {
        self.status("Warning", text);
    }

    /// Writes a message with the label `Note` to stderr. Writes nothing with `--quiet` or `--json`.
    pub(crate) fn note(&self, text: impl Display) {
        self.status("Note", text);
    }

    /// Writes the command to type next to stderr, with the label `Next` and without line breaks of its own, so that it
    /// can be copied. Writes nothing with `--quiet` or `--json`.
    pub(crate) fn suggest(&self, command: impl Display) {
        self.write_stderr(&status_lines("Next", &command.to_string(), usize::MAX));
    }

    /// Writes a message without a label to stderr. Writes nothing with `--quiet` or `--json`.
    pub(crate) fn message(&self, text: impl Display) {
        self.write_stderr(&format!("{}\n", escape(&text.to_string())));
    }

    /// Writes a message without a label to stderr. Writes nothing without `--verbose`, or with `--json`.
    pub(crate) fn detail(&self, text: impl Display) {
        if self.verbose {
            self.message(text);
        }
    }

    /// Writes text to stderr and ignores errors. Writes nothing with `--quiet` or `--json`.
    fn write_stderr(&self, text: &str) {
        if !self.quiet && !self.json {
            // A failure to report has nowhere to be reported.
            let _ = anstream::stderr().write_all(text.as_bytes());
        }
    }

    /// Writes a JSON object with `"schema": 1` as one line to stdout, with unprintable characters as JSON escapes. Does
    /// nothing without `--json`.
    pub(crate) fn event(&self, mut value: serde_json::Value) {
        if !self.json {
            return;
        }
        if let Some(object) = value.as_object_mut() {
            object.shift_insert(0, "schema".into(), 1.into());
        }
        self.print_line(escape_json(&value.to_string()));
    }

    /// Writes a line of data to stdout and flushes it, also with `--quiet`. Adds the line end.
    pub(crate) fn print_line(&self, line: impl Display) {
        self.print(format!("{line}\n"));
    }

    /// Writes rows of a label and a text to stdout, also with `--quiet`. Breaks texts at spaces where a row is longer
    /// than the terminal is wide, as [`wrap_rows`] does. Adds the line end.
    pub(crate) fn print_rows(&self, rows: &str) {
        self.print_line(wrap_rows(rows, columns(&Term::stdout())));
    }

    /// Writes text of a model to stdout: unchanged to a pipe or file, with unprintable characters escaped to a
    /// terminal.
    pub(crate) fn print_model_text(&self, text: &str) {
        if std::io::stdout().is_terminal() { self.print(escape_model_text(text)) } else { self.print(text) }
    }

    /// Writes data to stdout and flushes it. Ends the program with exit code 0 if the reader of a pipe has gone, as
    /// filters do, and with 2 and a message if writing fails otherwise, as on a full disk.
    pub(crate) fn print(&self, text: impl AsRef<str>) {
        let mut out = std::io::stdout().lock();
        let Err(error) = out.write_all(text.as_ref().as_bytes()).and_then(|()| out.flush()) else { return };
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        let _ = writeln!(anstream::stderr(), "error: stdout cannot be written: {error}");
        std::process::exit(2);
    }

    /// Whether stderr is a terminal and neither `--json` nor `--quiet` is given, so that a progress bar can be drawn.
    pub(crate) fn is_interactive(&self) -> bool {
        !self.json && !self.quiet && std::io::stderr().is_terminal()
    }

    /// Whether stdin and stderr are terminals and `--json` is off, so that questions can be asked.
    pub(crate) fn can_ask(&self) -> bool {
        !self.json && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Asks a yes-or-no question on stderr, in one line ([`question_line`]), and reads the answer from stdin. True only
    /// for `y` and `yes` in any case. Returns false without asking if nothing can be asked.
    pub(crate) fn confirm(&self, question: &str) -> bool {
        if !self.can_ask() {
            return false;
        }
        let _ = write!(anstream::stderr(), "{}", question_line(question));
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
    }

    /// Asks for a password without echo. Returns `None` if nothing can be asked or reading fails.
    pub(crate) fn ask_password(&self, prompt: &str) -> Option<String> {
        if !self.can_ask() {
            return None;
        }
        rpassword::prompt_password(format!("{}: ", escape(prompt))).ok()
    }
}

/// Formats a yes-or-no question as one line without its end. Line ends are escaped like other unprintable characters:
/// behind one in a file's name, a stranger could ask another question.
fn question_line(question: &str) -> String {
    format!("{} [y/N] ", printable(question, usize::MAX))
}

/// Cuts a text to `width` characters, the last of which is then `…`. Returns a text that is not longer as it is.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Escapes every unprintable character, which could act on a terminal, as `\u{…}`. Keeps line ends and tabs, and turns
/// CRLF into LF. For text that repeats file names or bytes from others.
pub(crate) fn escape(text: &str) -> String {
    printable_except(&text.replace("\r\n", "\n"), usize::MAX, &['\n', '\t'])
}

/// Escapes every unprintable character, except line ends and tabs. Unlike [`escape`] it keeps the two joiners, which
/// emoji and the words of some scripts need.
fn escape_model_text(text: &str) -> String {
    printable_except(text, usize::MAX, &['\n', '\t', '\u{200c}', '\u{200d}'])
}

/// Replaces every unprintable character of a JSON text by its JSON escape, which has the same meaning: in a JSON text
/// such a character is inside a string.
fn escape_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unprintable(character) {
            let units = &mut [0; 2];
            let escapes = character.encode_utf16(units).iter().map(|unit| format!("\\u{unit:04x}"));
            escaped.extend(escapes);
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Columns of the label before a message.
const MARGIN: usize = 11;

/// Formats a text with a green label, right-aligned to [`MARGIN`] columns, before its first line; further lines are
/// indented. Breaks lines at spaces that would be longer than `width` characters. Escapes unprintable characters and
/// ends the text with one line end.
fn status_lines(label: &str, text: &str, width: usize) -> String {
    let green = Style::new().bold().fg_color(Some(AnsiColor::Green.into()));
    let text = wrap_after(MARGIN + 1, &escape(text.trim_end_matches('\n')), width);
    format!("{green}{label:>MARGIN$}{green:#} {text}\n")
}

/// The columns of the terminal that stderr is, at least 40; `usize::MAX` if stderr is no terminal.
pub(crate) fn width() -> usize {
    columns(&Term::stderr())
}

/// The columns of a terminal, at least 40; `usize::MAX` if the stream is no terminal or does not say its size.
fn columns(stream: &Term) -> usize {
    let size = stream.is_term().then(|| stream.size_checked()).flatten();
    size.map_or(usize::MAX, |(_, columns)| usize::from(columns).max(40))
}

/// Breaks the lines of a text that begins after a label of `indent` characters, at spaces, so that none is longer than
/// `width` characters, but leaves the text at least 20. Indents all lines but the first to the end of the label.
fn wrap_after(indent: usize, text: &str, width: usize) -> String {
    let width = width.saturating_sub(indent).max(20);
    let lines: Vec<String> = text.split('\n').flat_map(|line| wrap(line, width)).collect();
    lines.join(&format!("\n{:indent$}", ""))
}

/// Breaks each line that is longer than `width` characters at spaces, but leaves its text at least 20. If a line begins
/// with a label that two spaces end, further lines are indented to the text after the label, else as the line is.
fn wrap_rows(rows: &str, width: usize) -> String {
    let wrap_row = |row: &str| {
        if row.chars().count() <= width {
            return row.to_owned();
        }
        let begin = row.len() - row.trim_start().len();
        let (label, text) = row.split_at(row[begin..].find("  ").map_or(begin, |end| begin + end + 2));
        format!("{label}{}", wrap_after(label.chars().count(), text, width))
    };
    rows.split('\n').map(wrap_row).collect::<Vec<_>>().join("\n")
}

/// Breaks a line into lines of at most `width` characters, at spaces, but not between a number and its unit. A longer
/// word has a line of its own.
pub(crate) fn wrap(line: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in unbroken_words(line) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Units that stay on the line of their number.
const UNITS: [&str; 10] = ["%", "B", "KiB", "MiB", "GiB", "TiB", "ms", "s", "min", "h"];

/// Splits a line at spaces into words. A number and the unit after it, such as `2 MiB`, are one word.
fn unbroken_words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let is_unit = UNITS.contains(&word.trim_end_matches([',', ';', '.', ':', ')']));
        match words.last_mut().filter(|last| is_unit && last.ends_with(|end: char| end.is_ascii_digit())) {
            Some(number) => {
                number.push(' ');
                number.push_str(word);
            }
            None => words.push(word.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_no_characters_that_act_on_a_terminal() {
        let text = "a\u{1b}[2J\u{202e}b\r\tc\nd";
        let escaped = "a\\u{1b}[2J\\u{202e}b\\u{d}\tc\nd";
        assert_eq!(escape(text), escaped);
        let lines = anstream::adapter::strip_str(&status_lines("Saved", text, usize::MAX)).to_string();
        assert_eq!(lines, format!("      Saved {}\n", escaped.replace('\n', "\n            ")));
    }

    #[test]
    fn a_question_is_one_line_whatever_a_file_in_it_is_called() {
        let question = question_line("it runs `a.wasm`\nNothing else is asked.`. Accept?");
        assert_eq!(question, "it runs `a.wasm`\\u{a}Nothing else is asked.`. Accept? [y/N] ");
    }

    #[test]
    fn a_long_message_is_broken_at_spaces_only() {
        let lines =
            anstream::adapter::strip_str(&status_lines("Data", "40 records, 123,456,789 tokens", 32)).to_string();
        assert_eq!(lines, "       Data 40 records,\n            123,456,789 tokens\n");
        assert_eq!(wrap("123,456,789", 4), ["123,456,789"]);
        assert_eq!(wrap("card 582 B, lock 2.0 KiB in 3 s", 8), ["card", "582 B,", "lock", "2.0 KiB", "in 3 s"]);
        assert_eq!(wrap("  a  b", 80), ["  a  b"]);
    }

    #[test]
    fn a_long_row_goes_on_under_its_text() {
        let rows = "loss 1.0  Learns\n     tensor  compute on tensors through handles\n             and no more of it";
        let wanted = "loss 1.0  Learns\n     tensor  compute on tensors\n             through handles\n             and no more of it";
        assert_eq!(wrap_rows(rows, 34), wanted);
        assert_eq!(wrap_rows(rows, usize::MAX), rows);
    }

    #[test]
    fn model_text_has_no_characters_that_act_on_a_terminal_and_keeps_emoji_whole() {
        let text = "a\u{1b}]0;x\u{7}\u{9b}b\n\tc👩\u{200d}💻\u{202e}d\u{2066}";
        let escaped = "a\\u{1b}]0;x\\u{7}\\u{9b}b\n\tc👩\u{200d}💻\\u{202e}d\\u{2066}";
        assert_eq!(escape_model_text(text), escaped);
    }

    #[test]
    fn json_has_the_same_meaning_without_characters_that_act_on_a_terminal() {
        let value = serde_json::json!({ "a\u{202e}": "b\u{e0041}\u{9b}c" });
        let text = escape_json(&value.to_string());
        assert!(text.is_ascii(), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
