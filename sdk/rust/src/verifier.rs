//! The shape of every verifier, and how it becomes the component's exports.
//!
//! A verifier sees three texts and nothing else: it may not call the host at all, so none of this
//! crate's other modules is of use to it but the settings.

use std::cell::RefCell;
use std::marker::PhantomData;

use crate::bindings::judging::exports::tunebox::method::verify::{self, Guest};
use crate::settings::{Setting, Value};
use crate::{Result, Settings};

/// Judges completions. Total: it gives a number or nothing, whatever the texts hold.
pub trait Verifier: Sized + 'static {
    /// What people may set in `run.toml`; often the verifier itself.
    type Settings: Settings;

    /// Takes the run's settings, filled in and range-checked by the host.
    /// An error ends the run before its first step.
    fn init(settings: Self::Settings) -> Result<Self>;

    /// A number, usually 0 to 1, or nothing when the completion cannot be judged. `answer` is the
    /// record's reference answer, empty when it has none. The same texts must get the same number.
    fn verify(&self, prompt: &str, completion: &str, answer: &str) -> Option<f32>;
}

/// The component's exports for one verifier; [`verifier!`](crate::verifier!) names it.
#[doc(hidden)]
pub struct Exported<V>(PhantomData<V>);

/// Checks while compiling natively that a type is a verifier.
#[doc(hidden)]
pub const fn check<V: Verifier>() {
    let _: fn(String, String, String) -> Option<f32> = <Exported<V> as Guest>::verify;
}

impl<V: Verifier> Guest for Exported<V> {
    fn init(settings: Vec<(String, verify::Value)>) -> Result<(), String> {
        let settings: Vec<Setting> = settings.into_iter().map(|(name, value)| (name, convert(value))).collect();
        let settings = V::Settings::read(&settings).map_err(|error| error.to_string())?;
        let verifier = V::init(settings).map_err(|error| error.to_string())?;
        JUDGING.set(Some(Box::new(move |prompt, completion, answer| verifier.verify(prompt, completion, answer))));
        Ok(())
    }

    fn verify(prompt: String, completion: String, answer: String) -> Option<f32> {
        JUDGING.with_borrow(|judge| judge.as_ref().and_then(|judge| judge(&prompt, &completion, &answer)))
    }
}

/// A [`Verifier`] after `init`, without its type.
type Judging = Box<dyn Fn(&str, &str, &str) -> Option<f32>>;

thread_local! {
    /// The one verifier of this component, from `init` on.
    static JUDGING: RefCell<Option<Judging>> = const { RefCell::new(None) };
}

fn convert(value: verify::Value) -> Value {
    match value {
        verify::Value::Boolean(value) => Value::Boolean(value),
        verify::Value::Integer(value) => Value::Integer(value),
        verify::Value::Number(value) => Value::Number(value),
        verify::Value::Text(value) => Value::Text(value),
    }
}
