//! Right answers earn more when short, wrong ones lose less when long (the reference's cosine-scaled reward).
//!
//! With f = ½(1 + cos(π·min(n, L)/L)): a right answer of n words gets 0.5 + 0.5·f, a wrong one −0.5 − 0.5·f.
//! Right is a completion whose last line, or whole text, is the answer.

use std::f64::consts::PI;

use tunebox::prelude::*;

/// The length at which both scales end.
#[derive(Settings)]
pub struct Cosine {
    /// Words from which on length makes no difference.
    #[setting(low = 1)]
    length: u32,
}

impl Verifier for Cosine {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn verify(&self, _: &str, completion: &str, answer: &str) -> Option<f32> {
        if answer.is_empty() {
            return None;
        }
        let last = completion.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let right = completion.trim() == answer.trim() || last.trim() == answer.trim();
        let share = (completion.split_whitespace().count() as f64 / f64::from(self.length)).min(1.0);
        let scaled = 0.5 + 0.25 * (1.0 + (PI * share).cos());
        Some(if right { scaled } else { -scaled } as f32)
    }
}

verifier! { Cosine }
