//! 1 where the completion's mathematical expression equals the answer's: fractions, decimals, percent, roots, sets,
//! tuples, intervals. A documented part of what math-verify does, and its surprises; see the README.

mod compare;
mod extract;
mod lexer;
mod parse;
mod value;

use tunebox::prelude::*;

/// Which part of the completion counts.
#[derive(Settings)]
pub struct Mathematics {
    /// Look only at what stands after the last `</think>`; without that tag the completion is wrong.
    #[setting(default = false)]
    after_thinking: bool,
}

impl Verifier for Mathematics {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn verify(&self, _: &str, completion: &str, answer: &str) -> Option<f32> {
        let gold = extract::parse_gold(answer)?;
        let text = match (self.after_thinking, completion.rsplit_once("</think>")) {
            (false, _) => completion,
            (true, Some((_, after))) => after,
            (true, None) => return Some(0.0),
        };
        let found = extract::parse_answer(text);
        Some(f32::from(u8::from(found.is_some_and(|found| compare::is_right(&gold, &found)))))
    }
}

verifier! { Mathematics }
