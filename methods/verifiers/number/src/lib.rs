//! 1 where the completion's number is the answer's: the content of its last `\boxed{…}`, or its last number.

mod read;

use tunebox::prelude::*;
use tunebox::verifier::boxes;

/// Where the number stands, and how near is near enough.
#[derive(Settings)]
pub struct Number {
    /// Which number of the completion counts: `boxed`, the content of the last `\boxed{…}`; `last`, the last number;
    /// `either`, the boxed one where there is a box, else the last.
    #[setting(default = "either")]
    from: From,

    /// How far the numbers may be apart, relative to the answer where that is above 1.
    #[setting(default = 1e-6, low = 0.0, high = 1.0)]
    tolerance: f64,
}

/// Which number of a completion counts.
#[derive(Choice, Clone, Copy, PartialEq)]
enum From {
    Boxed,
    Last,
    Either,
}

impl Verifier for Number {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn verify(&self, _: &str, completion: &str, answer: &str) -> Option<f32> {
        let wanted = read::only_number(answer)?;
        let found = match (self.from, boxes(completion).pop()) {
            (From::Boxed | From::Either, Some(content)) => read::only_number(content),
            (From::Boxed, None) => None,
            (From::Last | From::Either, _) => read::last_number(completion),
        };
        let near = |found: f64| (found - wanted).abs() <= self.tolerance * wanted.abs().max(1.0);
        Some(f32::from(u8::from(found.is_some_and(near))))
    }
}

verifier! { Number }
