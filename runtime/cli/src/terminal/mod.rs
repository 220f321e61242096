//! What the person sees. Data goes to stdout, everything said to a person to stderr.

pub(crate) mod diagnostic;
pub(crate) mod progress;
mod question;
pub(crate) mod shell;

use std::io::{IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use tunebox_compute::printable::acts;

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
        if acts(character) && !matches!(character, '\n' | '\t') {
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

/// `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with so many decimals; in powers of ten where that would take more than `room` characters.
pub(crate) fn number(value: f64, decimals: usize, room: usize) -> String {
    let plain = format!("{value:.decimals$}");
    if plain.len() <= room { plain } else { format!("{value:.2e}") }
}

/// `1 step`, `1,234 steps`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// `5.8 GiB`, `91 KiB`.
pub(crate) fn bytes(count: u64) -> String {
    let mut size = count as f64;
    for unit in ["B", "KiB", "MiB"] {
        if size < 1024.0 {
            return if size < 10.0 && unit != "B" { format!("{size:.1} {unit}") } else { format!("{size:.0} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} GiB")
}

/// `6 min 12 s`.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 60.0 => format!("{s:.0} s"),
        s if s < 3600.0 => format!("{} min {} s", s as u64 / 60, s as u64 % 60),
        s => format!("{} h {} min", s as u64 / 3600, s as u64 % 3600 / 60),
    }
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

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([grouped(7), grouped(1234), grouped(1234567)], ["7", "1,234", "1,234,567"]);
    }

    #[test]
    fn a_number_too_long_for_its_place_is_in_powers_of_ten() {
        let shown = [0.25, 9999.5, 10_000.5, -5e29, f64::MIN].map(|value| number(value, 4, 9));
        assert_eq!(shown, ["0.2500", "9999.5000", "1.00e4", "-5.00e29", "-1.80e308"]);
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!([counted(1, "step"), counted(1234, "step")], ["1 step", "1,234 steps"]);
    }

    #[test]
    fn sizes_carry_the_unit_that_fits() {
        assert_eq!([bytes(91 * 1024), bytes(2_202_010), bytes(6 << 30)], ["91 KiB", "2.1 MiB", "6.0 GiB"]);
    }

    #[test]
    fn durations_read_like_speech() {
        assert_eq!([duration(1.23), duration(372.0), duration(3725.0)], ["1.2 s", "6 min 12 s", "1 h 2 min"]);
    }
}
