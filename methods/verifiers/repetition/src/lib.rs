//! A penalty for saying the same again: (1 − different n-grams ÷ n-grams) · `penalty`, over words.

use std::collections::BTreeSet;

use tunebox::prelude::*;

/// What counts as the same, and what it costs.
#[derive(Settings)]
pub struct Repetition {
    /// Words of an n-gram.
    #[setting(default = 3, low = 1, high = 64)]
    words: u32,

    /// What a completion gets that says nothing but the same; below 0.
    #[setting(default = -1.0, low = -1000.0, high = 0.0)]
    penalty: f32,
}

impl Verifier for Repetition {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn verify(&self, _: &str, completion: &str, _: &str) -> Option<f32> {
        let words: Vec<&str> = completion.split_whitespace().collect();
        let total = words.windows(self.words as usize).count();
        let different: BTreeSet<&[&str]> = words.windows(self.words as usize).collect();
        if total == 0 {
            return Some(0.0);
        }
        Some((1.0 - different.len() as f32 / total as f32) * self.penalty)
    }
}

verifier! { Repetition }
