//! 1 where the completion matches a regular expression, or where what the expression finds is the answer.

use regex_lite::{Regex, RegexBuilder};
use tunebox::prelude::*;

/// The expression, and what it must do.
#[derive(Settings)]
pub struct Settings {
    /// The regular expression, in the syntax of Rust's `regex`: no look-around, no references back.
    pattern: String,

    /// `search` finds it anywhere; `whole` wants it to cover the completion, white space at its ends left out.
    #[setting(default = "search")]
    mode: Mode,

    /// Compare the last group that the expression finds, or all that it finds, with the answer.
    #[setting(default = false)]
    compare: bool,

    /// Take capital and small letters for the same.
    #[setting(default = false)]
    ignore_case: bool,

    /// Let `.` match the end of a line.
    #[setting(default = true)]
    across_lines: bool,
}

/// How much of the completion the expression must cover.
#[derive(Choice, Clone, Copy, PartialEq)]
enum Mode {
    Search,
    Whole,
}

/// A compiled expression.
pub struct Pattern {
    regex: Regex,
    settings: Settings,
}

impl Verifier for Pattern {
    type Settings = Settings;

    fn init(settings: Settings) -> Result<Self> {
        let written = match settings.mode {
            Mode::Search => settings.pattern.clone(),
            Mode::Whole => format!("^(?:{})$", settings.pattern),
        };
        let regex = RegexBuilder::new(&written)
            .case_insensitive(settings.ignore_case)
            .dot_matches_new_line(settings.across_lines)
            .size_limit(1 << 20)
            .build();
        match regex {
            Ok(regex) => Ok(Self { regex, settings }),
            Err(error) => Err(Error::new(format!("`pattern` is no regular expression: {error}"))),
        }
    }

    fn verify(&self, _: &str, completion: &str, answer: &str) -> Option<f32> {
        let text = if self.settings.mode == Mode::Whole { completion.trim() } else { completion };
        if !self.settings.compare {
            return Some(f32::from(u8::from(self.regex.is_match(text))));
        }
        if answer.is_empty() {
            return None;
        }
        let found = self.regex.captures_iter(text).last().and_then(|groups| {
            let last = (1..groups.len()).rev().find_map(|number| groups.get(number));
            last.or_else(|| groups.get(0)).map(|found| found.as_str().trim())
        });
        Some(f32::from(u8::from(found == Some(answer.trim()))))
    }
}

verifier! { Pattern }
