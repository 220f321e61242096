//! The shape of every environment, and how it becomes the component's exports.
//!
//! An environment sees texts and nothing else: it may not call the host at all, so none of this crate's other modules
//! is of use to it but the settings. A component with an environment takes this crate with the feature `environment`.

#[cfg(all(target_arch = "wasm32", feature = "environment"))]
mod component;

use crate::{Result, Settings};

#[cfg(all(target_arch = "wasm32", feature = "environment"))]
pub use component::Exported;

/// One turn of an episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// What the model wrote.
    Completion(String),
    /// What the environment answered.
    Message(String),
}

impl Turn {
    /// The text of the turn.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Completion(text) | Self::Message(text) => text,
        }
    }
}

/// The answer to a completion.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The next message to the model, which goes on after it.
    Message(String),
    /// The episode is over, with its reward, usually 0 to 1; `None` if it cannot be judged.
    End(Option<f32>),
}

/// Answers completions. Total: it gives a reply whatever the texts hold.
///
/// ```
/// use tunebox::prelude::*;
///
/// /// Asks once more, and rewards a second completion that differs from the first.
/// struct Again;
///
/// impl Environment for Again {
///     type Settings = ();
///
///     fn init((): ()) -> Result<Self> {
///         Ok(Self)
///     }
///
///     fn respond(&self, _prompt: &str, _answer: &str, turns: &[Turn]) -> Reply {
///         match turns {
///             [first, _, second] => Reply::End(Some(f32::from(first.text() != second.text()))),
///             _ => Reply::Message("Say it in other words.".to_owned()),
///         }
///     }
/// }
///
/// let turn = |text: &str| Turn::Completion(text.to_owned());
/// assert_eq!(Again.respond("", "", &[turn("calm")]), Reply::Message("Say it in other words.".to_owned()));
/// ```
pub trait Environment: Sized + 'static {
    /// The settings in `run.toml`; often the environment itself.
    type Settings: Settings;

    /// Creates the environment from the run's settings, which the host has filled in and range-checked. An error ends
    /// the run before its first step.
    fn init(settings: Self::Settings) -> Result<Self>;

    /// Answers the last completion of `turns`, which holds the episode so far: a completion, then a message and a
    /// completion for every earlier answer. `answer` is the record's reference answer, empty if it has none. The same
    /// turns must get the same reply.
    fn respond(&self, prompt: &str, answer: &str, turns: &[Turn]) -> Reply;
}

/// Makes the compiler check that a type is an environment, in a native build. Does nothing at run time.
#[doc(hidden)]
pub const fn check<E: Environment>() {
    let _: &str = <E::Settings as Settings>::MANIFEST;
}
