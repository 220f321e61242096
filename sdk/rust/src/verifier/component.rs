//! A verifier as the exports of its component.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::Verifier;
use crate::Settings;
use crate::bindings::judging::exports::tunebox::method::verify::{self, Guest};
use crate::settings::{Setting, Value};

/// The component's exports for one verifier; [`verifier!`](crate::verifier!) names it.
#[doc(hidden)]
pub struct Exported<V>(PhantomData<V>);

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

/// Converts the value of a setting from the type of the bindings to that of the SDK.
fn convert(value: verify::Value) -> Value {
    match value {
        verify::Value::Boolean(value) => Value::Boolean(value),
        verify::Value::Integer(value) => Value::Integer(value),
        verify::Value::Number(value) => Value::Number(value),
        verify::Value::Text(value) => Value::Text(value),
        verify::Value::Integers(values) => Value::Integers(values),
        verify::Value::Numbers(values) => Value::Numbers(values),
        verify::Value::Texts(values) => Value::Texts(values),
    }
}
