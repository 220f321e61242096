//! What the person sees. Data goes to stdout, everything said to a person to stderr.

pub(crate) mod diagnostic;
pub(crate) mod progress;
mod question;
pub(crate) mod shell;

use std::io::{IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use tunebox_foundation::printable::is_unprintable;

/// How much is said, and in which form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

impl Terminal {
    /// A line for a person, led by a verb in the margin: `   Saved runs/one/steps/000010`.
    pub(crate) fn say(&self, verb: &str, text: impl AsRef<str>) {
        if self.quiet || self.json {
            return;
        }
        let _ = anstream::stderr().write_all(said(verb, text.as_ref()).as_bytes());
    }

    /// A line for a person without a verb.
    pub(crate) fn tell(&self, text: impl AsRef<str>) {
        if !self.quiet && !self.json {
            let _ = anstream::stderr().write_all(told(text.as_ref()).as_bytes());
        }
    }

    /// What to type next.
    pub(crate) fn next(&self, command: impl AsRef<str>) {
        self.say("Next", command);
    }

    /// Something only the curious want to know.
    pub(crate) fn detail(&self, text: impl AsRef<str>) {
        if self.verbose {
            self.tell(text);
        }
    }

    /// Data: one JSON object a line in JSON mode.
    pub(crate) fn object(&self, mut value: serde_json::Value) {
        if let Some(object) = value.as_object_mut() {
            object.shift_insert(0, "schema".into(), 1.into());
        }
        self.data(value.to_string());
    }

    /// A line of data. A closed pipe ends the program quietly, as for any filter.
    pub(crate) fn data(&self, line: impl AsRef<str>) {
        self.raw(format!("{}\n", line.as_ref()));
    }

    /// The words of a model as they come: as they are where a program reads them, without what would steer a terminal
    /// where a person does.
    pub(crate) fn words(&self, text: &str) {
        if std::io::stdout().is_terminal() { self.raw(still(text)) } else { self.raw(text) }
    }

    /// Data without a line end, shown at once.
    pub(crate) fn raw(&self, text: impl AsRef<str>) {
        let mut out = std::io::stdout().lock();
        if out.write_all(text.as_ref().as_bytes()).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }

    /// Whether a person watches stderr, so that a bar may move there.
    pub(crate) fn watched(&self) -> bool {
        !self.json && !self.quiet && std::io::stderr().is_terminal()
    }
}

/// A text without what would act on a terminal, but line ends and tabs: whatever it repeats of a stranger's words and of
/// names of files is seen and does nothing.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.replace("\r\n", "\n").chars() {
        if is_unprintable(character) && !matches!(character, '\n' | '\t') {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// A model's words with its control characters seen. Unlike [`shown`] it leaves joined letters and pictures whole.
fn still(text: &str) -> String {
    let steers = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    let mut still = String::with_capacity(text.len());
    for character in text.chars() {
        if steers(character) { still.extend(character.escape_unicode()) } else { still.push(character) }
    }
    still
}

/// Lines behind a verb in the margin.
fn said(verb: &str, text: &str) -> String {
    let green = Style::new().bold().fg_color(Some(AnsiColor::Green.into()));
    let text = shown(text);
    let mut lines = text.lines();
    let mut said = format!("{green}{verb:>11}{green:#} {}\n", lines.next().unwrap_or_default());
    for line in lines {
        said += &format!("{:11} {line}\n", "");
    }
    said
}

/// Lines without a verb.
fn told(text: &str) -> String {
    shown(text) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_stranger_does_nothing_to_the_terminal() {
        let text = "a\u{1b}[2J\u{202e}b\r\tc\nd";
        let seen = "a\\u{1b}[2J\\u{202e}b\\u{d}\tc\nd";
        assert_eq!(told(text), format!("{seen}\n"));
        let said = anstream::adapter::strip_str(&said("Saved", text)).to_string();
        assert_eq!(said, format!("      Saved {}\n", seen.replace('\n', "\n            ")));
    }

    #[test]
    fn a_model_s_words_steer_no_terminal_and_keep_their_pictures() {
        assert_eq!(still("a\u{1b}]0;x\u{7}\u{9b}b\n\tc👩\u{200d}💻"), "a\\u{1b}]0;x\\u{7}\\u{9b}b\n\tc👩\u{200d}💻");
    }
}
