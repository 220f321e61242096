//! A penalty that grows where the completion comes near its longest length (DAPO's soft overlong punishment).
//!
//! 0 up to `length` − `buffer`; falling to −1 at `length`; −1 beyond.

use tunebox::prelude::*;

/// Where the penalty begins and ends.
#[derive(Settings)]
pub struct Overlong {
    /// The length from which on the penalty is −1.
    #[setting(low = 1)]
    length: u32,

    /// Over how much before it the penalty grows; at most `length`.
    #[setting(low = 1)]
    buffer: u32,

    /// What is counted. A verifier sees text, not tokens.
    #[setting(default = "words")]
    unit: Unit,
}

/// What is counted.
#[derive(Choice, Clone, Copy, PartialEq)]
enum Unit {
    Words,
    Characters,
}

impl Verifier for Overlong {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        if settings.buffer > settings.length {
            return Err(Error::new("`buffer` must not be larger than `length`"));
        }
        Ok(settings)
    }

    fn verify(&self, _: &str, completion: &str, _: &str) -> Option<f32> {
        let length = match self.unit {
            Unit::Words => completion.split_whitespace().count(),
            Unit::Characters => completion.chars().count(),
        };
        let begins = f64::from(self.length - self.buffer);
        let over = (length as f64 - begins) / f64::from(self.buffer);
        Some(-(over.clamp(0.0, 1.0)) as f32)
    }
}

verifier! { Overlong }
