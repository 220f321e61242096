//! 1 where the completion is the answer, letter by letter.

use tunebox::prelude::*;

/// What counts as the same.
#[derive(Settings)]
pub struct Exact {
    /// Leave white space at both ends out of the comparison.
    #[setting(default = true)]
    trim: bool,

    /// Take capital and small letters for the same.
    #[setting(default = false)]
    ignore_case: bool,

    /// Compare the last line of the completion that is not blank, instead of all of it.
    #[setting(default = false)]
    last_line: bool,
}

impl Verifier for Exact {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn verify(&self, _: &str, completion: &str, answer: &str) -> Option<f32> {
        if answer.is_empty() {
            return None;
        }
        let compared = if self.last_line {
            completion.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default()
        } else {
            completion
        };
        Some(f32::from(u8::from(self.normalize(compared) == self.normalize(answer))))
    }
}

impl Exact {
    /// The text as it is compared: trimmed and in lower case, if the settings say so.
    fn normalize(&self, text: &str) -> String {
        let text = if self.trim { text.trim() } else { text };
        if self.ignore_case { text.to_lowercase() } else { text.to_owned() }
    }
}

verifier! { Exact }
