//! An environment as the exports of its component.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::{Environment, Reply, Turn};
use crate::Settings;
use crate::bindings::responding::exports::tunebox::method::respond::{self, Guest};
use crate::settings::{Setting, Value};

/// The component's exports for one environment; [`environment!`](crate::environment!) names it.
#[doc(hidden)]
pub struct Exported<E>(PhantomData<E>);

impl<E: Environment> Guest for Exported<E> {
    fn init(settings: Vec<(String, respond::Value)>) -> Result<(), String> {
        let settings: Vec<Setting> = settings.into_iter().map(|(name, value)| (name, convert(value))).collect();
        let settings = E::Settings::read(&settings).map_err(|error| error.to_string())?;
        let environment = E::init(settings).map_err(|error| error.to_string())?;
        RESPONDING.set(Some(Box::new(move |prompt, answer, turns| environment.respond(prompt, answer, turns))));
        Ok(())
    }

    fn respond(prompt: String, answer: String, turns: Vec<respond::Turn>) -> respond::Reply {
        let turn = |turn| match turn {
            respond::Turn::Completion(text) => Turn::Completion(text),
            respond::Turn::Message(text) => Turn::Message(text),
        };
        let turns: Vec<Turn> = turns.into_iter().map(turn).collect();
        let reply = RESPONDING.with_borrow(|respond| respond.as_ref().map(|respond| respond(&prompt, &answer, &turns)));
        match reply {
            Some(Reply::Message(text)) => respond::Reply::Message(text),
            Some(Reply::End(reward)) => respond::Reply::End(reward),
            None => respond::Reply::End(None),
        }
    }
}

/// An [`Environment`] after `init`, without its type.
type Responding = Box<dyn Fn(&str, &str, &[Turn]) -> Reply>;

thread_local! {
    /// The one environment of this component, from `init` on.
    static RESPONDING: RefCell<Option<Responding>> = const { RefCell::new(None) };
}

/// Converts the value of a setting from the type of the bindings to that of the SDK.
fn convert(value: respond::Value) -> Value {
    match value {
        respond::Value::Boolean(value) => Value::Boolean(value),
        respond::Value::Integer(value) => Value::Integer(value),
        respond::Value::Number(value) => Value::Number(value),
        respond::Value::Text(value) => Value::Text(value),
        respond::Value::Integers(values) => Value::Integers(values),
        respond::Value::Numbers(values) => Value::Numbers(values),
        respond::Value::Texts(values) => Value::Texts(values),
    }
}
