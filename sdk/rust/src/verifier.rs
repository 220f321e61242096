//! The shape of every verifier, and how it becomes the component's exports.
//!
//! A verifier sees three texts and nothing else: it may not call the host at all, so none of this
//! crate's other modules is of use to it but the settings. [`boxes`] and [`split_number`] help to read answers.
//!
//! ```
//! use tunebox::verifier::{boxes, split_number};
//!
//! // What verifiers for mathematics begin with: the last box of a completion, and the number in it.
//! let last = boxes(r"so it is \boxed{1,234.5 m}").pop();
//! assert_eq!(last, Some("1,234.5 m"));
//! assert_eq!(split_number("1,234.5 m"), ("1234.5".to_owned(), " m"));
//! ```

mod answer;
#[cfg(target_arch = "wasm32")]
mod component;

use crate::{Result, Settings};

pub use answer::{boxes, split_number};
#[cfg(target_arch = "wasm32")]
pub use component::Exported;

/// Judges completions. Total: it gives a number or nothing, whatever the texts hold.
///
/// ```
/// use tunebox::prelude::*;
///
/// /// 1 for a completion that is short enough, less for a longer one.
/// #[derive(Settings)]
/// struct Brief {
///     /// The most words that earn 1.
///     #[setting(default = 50, low = 1)]
///     words: u32,
/// }
///
/// impl Verifier for Brief {
///     type Settings = Self;
///
///     fn init(settings: Self) -> Result<Self> {
///         Ok(settings)
///     }
///
///     fn verify(&self, _prompt: &str, completion: &str, _answer: &str) -> Option<f32> {
///         let count = completion.split_whitespace().count().max(1);
///         Some((self.words as f32 / count as f32).min(1.0))
///     }
/// }
///
/// let brief = Brief { words: 2 };
/// assert_eq!(brief.verify("", "one two three four", ""), Some(0.5));
/// ```
pub trait Verifier: Sized + 'static {
    /// The settings in `run.toml`; often the verifier itself.
    type Settings: Settings;

    /// Creates the verifier from the run's settings, which the host has filled in and range-checked. An error ends the
    /// run before its first step.
    fn init(settings: Self::Settings) -> Result<Self>;

    /// Judges a completion: a number, usually 0 to 1, or `None` if it cannot be judged. `answer` is the record's
    /// reference answer, empty if it has none. The same texts must get the same number.
    fn verify(&self, prompt: &str, completion: &str, answer: &str) -> Option<f32>;
}

/// Makes the compiler check that a type is a verifier, in a native build. Does nothing at run time.
#[doc(hidden)]
pub const fn check<V: Verifier>() {
    let _: &str = <V::Settings as Settings>::MANIFEST;
}
