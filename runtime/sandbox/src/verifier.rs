//! A verifier: a component of the world `verifier`, which imports nothing and judges one completion in each call.

use std::time::Instant;

use crate::engine::Engine;
use crate::error::Error;
use crate::isolated::{CallLimits, Instances, Isolated, World};
use crate::limits::Limits;
use crate::session::Value;

/// The world `verifier`.
static WORLD: World = World {
    name: "verifier",
    function: "verify",
    check: |function, store| function.typed::<(&str, &str, &str), (Option<f32>,)>(store).map(drop),
};

/// A verifier that was admitted and compiled; nothing of it has run.
#[derive(Clone)]
pub struct Verifier(Isolated);

/// The outcome of one call of a verifier.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A finite number.
    Value(f32),
    /// No value: the verifier cannot judge this completion.
    Abstained,
    /// Why there is no finite number, escaped: the verifier trapped, took too long, or returned infinity or NaN.
    Failed(String),
}

impl Engine {
    /// Checks a component against the world `verifier` and its limits, then compiles it or loads its code from the
    /// cache. Runs nothing of it. `name` names the verifier in messages, escaped and cut at 200 bytes.
    ///
    /// # Errors
    /// Of the first check that fails: [`Error::TooLarge`], [`Error::IsolatedImports`], [`Error::Mismatch`],
    /// [`Error::Malformed`], or [`Error::NotAdmitted`], also if the process that compiles it fails or passes a limit.
    pub fn admit_verifier(&self, bytes: &[u8], name: &str, limits: &Limits) -> Result<Verifier, Error> {
        let call_limits = CallLimits {
            seconds: limits.verifier_seconds,
            instructions: limits.verifier_instructions,
            memory: limits.verifier_memory as u64,
        };
        Isolated::admit(self, bytes, name, &WORLD, (limits.verifier_component_bytes, call_limits)).map(Verifier)
    }
}

/// A verifier with its settings and, between calls, its instance.
pub struct Judge(Instances);

impl Judge {
    /// Makes an instance of the verifier and calls its `init` with the settings, within the limits of one verdict:
    /// `verifier_seconds` or `verifier_instructions`, and `verifier_memory`. Every later instance gets the same
    /// settings.
    ///
    /// # Errors
    /// [`Error::Refused`] with the message that `init` returned; [`Error::NotAdmitted`] when the instance cannot be
    /// made within the limits, or `init` traps or passes a limit.
    pub fn new(verifier: Verifier, settings: &[(String, Value)]) -> Result<Self, Error> {
        Instances::new(verifier.0, settings).map(Self)
    }

    /// Drops the instance with all that the verifier remembers. The next call makes a new one.
    pub fn drop_instance(&mut self) {
        self.0.drop_instance();
    }

    /// Judges one completion, given prompt and expected answer. Makes an instance first if there is none, and drops it
    /// after a trap or timeout: all of this within `verifier_seconds`, or `verifier_instructions` if that is not 0, and
    /// not past `end`. Every failure, an infinite value or NaN included, is a [`Verdict::Failed`].
    pub fn verdict(&mut self, prompt: &str, completion: &str, answer: &str, end: Option<Instant>) -> Verdict {
        match self.0.call::<_, Option<f32>>((prompt, completion, answer), end) {
            Ok(Some(value)) if value.is_finite() => Verdict::Value(value),
            Ok(Some(value)) => Verdict::Failed(format!("its verdict is {value}")),
            Ok(None) => Verdict::Abstained,
            Err(reason) => Verdict::Failed(reason),
        }
    }
}
