//! Output and input of the program. Data goes to stdout, messages for people to stderr.

mod diagnostic;
pub(crate) mod progress;
pub(crate) mod shell;

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use clap::Args;
use tunebox_foundation::printable::{is_unprintable, printable_except};

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
    /// Writes a message with a label in the margin to stderr: `   Saved runs/one/steps/000010`. Writes nothing with
    /// `--quiet` or `--json`.
    pub(crate) fn status(&self, label: &str, text: impl Display) {
        self.write_stderr(&status_lines(label, &text.to_string()));
    }

    /// Writes a message with the label `Warning` to stderr. Writes nothing with `--quiet` or `--json`.
    pub(crate) fn warn(&self, text: impl Display) {
        self.status("Warning", text);
    }

    /// Writes a message with the label `Note` to stderr. Writes nothing with `--quiet` or `--json`.
    pub(crate) fn note(&self, text: impl Display) {
        self.status("Note", text);
    }

    /// Writes the command to type next to stderr, with the label `Next`. Writes nothing with `--quiet` or `--json`.
    pub(crate) fn suggest(&self, command: impl Display) {
        self.status("Next", command);
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

    /// Writes text of a model to stdout: unchanged to a pipe or file, with unprintable characters escaped to a terminal.
    pub(crate) fn print_model_text(&self, text: &str) {
        if std::io::stdout().is_terminal() { self.print(escape_model_text(text)) } else { self.print(text) }
    }

    /// Writes data to stdout and flushes it. If that fails, as when stdout is closed, ends the program with exit code 0,
    /// as filters do.
    pub(crate) fn print(&self, text: impl AsRef<str>) {
        let mut out = std::io::stdout().lock();
        if out.write_all(text.as_ref().as_bytes()).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }

    /// Whether stderr is a terminal and neither `--json` nor `--quiet` is given, so that a progress bar can be drawn.
    pub(crate) fn is_interactive(&self) -> bool {
        !self.json && !self.quiet && std::io::stderr().is_terminal()
    }

    /// Whether stdin and stderr are terminals and `--json` is off, so that questions can be asked.
    pub(crate) fn can_ask(&self) -> bool {
        !self.json && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Asks a yes-or-no question on stderr and reads the answer from stdin. True only for `y` and `yes` in any case.
    /// Returns false without asking if nothing can be asked.
    pub(crate) fn confirm(&self, question: &str) -> bool {
        if !self.can_ask() {
            return false;
        }
        let _ = write!(anstream::stderr(), "{} [y/N] ", escape(question));
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

/// Replaces every unprintable character of a JSON text by its JSON escape, which has the same meaning: in a JSON text such
/// a character is inside a string.
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

/// Formats a text with a green label, right-aligned to 11 columns, before its first line; further lines are indented.
/// Escapes unprintable characters and ends the text with one line end.
fn status_lines(label: &str, text: &str) -> String {
    let green = Style::new().bold().fg_color(Some(AnsiColor::Green.into()));
    let text = escape(text.trim_end_matches('\n')).replace('\n', &format!("\n{:11} ", ""));
    format!("{green}{label:>11}{green:#} {text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_no_characters_that_act_on_a_terminal() {
        let text = "a\u{1b}[2J\u{202e}b\r\tc\nd";
        let escaped = "a\\u{1b}[2J\\u{202e}b\\u{d}\tc\nd";
        assert_eq!(escape(text), escaped);
        let lines = anstream::adapter::strip_str(&status_lines("Saved", text)).to_string();
        assert_eq!(lines, format!("      Saved {}\n", escaped.replace('\n', "\n            ")));
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
