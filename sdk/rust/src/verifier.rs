//! The shape of every verifier, and how it becomes the component's exports.
//!
//! A verifier sees three texts and nothing else: it may not call the host at all, so none of this
//! crate's other modules is of use to it but the settings. [`boxes`] and [`split_number`] help to read answers.

mod answer;
#[cfg(target_arch = "wasm32")]
mod component;

use crate::{Result, Settings};

pub use answer::{boxes, split_number};
#[cfg(target_arch = "wasm32")]
pub use component::Exported;

/// Judges completions. Total: it gives a number or nothing, whatever the texts hold.
pub trait Verifier: Sized + 'static {
    /// The settings in `run.toml`; often the verifier itself.
    type Settings: Settings;

    /// Takes the run's settings, filled in and range-checked by the host.
    /// An error ends the run before its first step.
    fn init(settings: Self::Settings) -> Result<Self>;

    /// A number, usually 0 to 1, or nothing when the completion cannot be judged. `answer` is the
    /// record's reference answer, empty when it has none. The same texts must get the same number.
    fn verify(&self, prompt: &str, completion: &str, answer: &str) -> Option<f32>;
}

/// Checks while compiling natively that a type is a verifier.
#[doc(hidden)]
pub const fn check<V: Verifier>() {
    let _: &str = <V::Settings as Settings>::MANIFEST;
}
