//! The share of simple checks on the text that hold: what it contains, how it begins and ends, how long it is.

use tunebox::prelude::*;

/// The checks; one that is empty or 0 is not made.
#[derive(Settings)]
pub struct Checks {
    /// Text that must be in it.
    #[setting(default = "")]
    contains: String,

    /// Text that must not be in it.
    #[setting(default = "")]
    lacks: String,

    /// How it must begin.
    #[setting(default = "")]
    starts_with: String,

    /// How it must end, white space at the end left out.
    #[setting(default = "")]
    ends_with: String,

    /// Whether the record's answer must be in it.
    #[setting(default = false)]
    contains_answer: bool,

    /// Characters at least.
    #[setting(default = 0)]
    min_characters: u32,

    /// Characters at most; 0 for any number.
    #[setting(default = 0)]
    max_characters: u32,

    /// Lines at least.
    #[setting(default = 0)]
    min_lines: u32,

    /// Lines at most; 0 for any number.
    #[setting(default = 0)]
    max_lines: u32,

    /// Take capital and small letters for the same.
    #[setting(default = false)]
    ignore_case: bool,

    /// `share` gives the share of the checks that hold; `all` gives 1 where all do, else 0.
    #[setting(default = "share")]
    score: Score,
}

/// How checks become a number.
#[derive(Choice, Clone, Copy, PartialEq)]
enum Score {
    Share,
    All,
}

impl Verifier for Checks {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        if settings.run_checks("", "").is_empty() {
            return Err(Error::new(
                "`text` has nothing to check; give it `contains`, `max-lines` or another of its settings",
            ));
        }
        Ok(settings)
    }

    fn verify(&self, _: &str, completion: &str, answer: &str) -> Option<f32> {
        if self.contains_answer && answer.is_empty() {
            return None;
        }
        let outcomes = self.run_checks(&self.fold_case(completion), &self.fold_case(answer));
        let held = outcomes.iter().filter(|held| **held).count();
        Some(match self.score {
            Score::Share => held as f32 / outcomes.len().max(1) as f32,
            Score::All => f32::from(u8::from(held == outcomes.len())),
        })
    }
}

impl Checks {
    /// Runs the checks that are set, and returns for each whether it holds. `text` and `answer` have gone through
    /// [`fold_case`](Self::fold_case).
    fn run_checks(&self, text: &str, answer: &str) -> Vec<bool> {
        let (characters, lines) = (text.chars().count() as u32, text.lines().count() as u32);
        let piece = |wanted: &str| self.fold_case(wanted);
        let checks = [
            (!self.contains.is_empty(), text.contains(&piece(&self.contains))),
            (!self.lacks.is_empty(), !text.contains(&piece(&self.lacks))),
            (!self.starts_with.is_empty(), text.starts_with(&piece(&self.starts_with))),
            (!self.ends_with.is_empty(), text.trim_end().ends_with(&piece(&self.ends_with))),
            (self.contains_answer, text.contains(answer)),
            (self.min_characters > 0, characters >= self.min_characters),
            (self.max_characters > 0, characters <= self.max_characters),
            (self.min_lines > 0, lines >= self.min_lines),
            (self.max_lines > 0, lines <= self.max_lines),
        ];
        checks.into_iter().filter(|(is_set, _)| *is_set).map(|(_, held)| held).collect()
    }

    /// The text in lower case with `ignore-case`, else unchanged.
    fn fold_case(&self, text: &str) -> String {
        if self.ignore_case { text.to_lowercase() } else { text.to_owned() }
    }
}

verifier! { Checks }
