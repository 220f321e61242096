//! The functions, filters and methods that chat templates can call, as transformers and Python define them.

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use minijinja::value::ValueKind::{self, Iterable, Map, Seq, String as Text, Undefined};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::markers::{self, CLOSE, OPEN};
use super::{json, python_repr};

/// The message that a template passed to `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(pub(super) String);

/// The name under which the engine holds the marked form of a template, which renders answers between [`OPEN`] and
/// [`CLOSE`].
pub(super) const MARKED: &str = "marked";

/// Sets up an engine for chat templates: no HTML escaping, values printed as Python prints them, Python's methods of
/// values by [`call_python_method`], the function `raise_exception`, the filters `tojson`, `string` and
/// [`markers::FILTER`], the tests `iterable` and `sequence` as in Python's Jinja, and `strftime_now` at the current
/// time.
pub(super) fn register(environment: &mut Environment<'static>) {
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(call_python_method);
    environment.set_formatter(|out, _, value| {
        out.write_str(&python_repr::text(value))
            .map_err(|_| Error::new(ErrorKind::WriteFailure, "no room for the text"))
    });
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("string", |value: &Value| python_repr::text(value));
    environment.add_function("raise_exception", refuse);
    environment.add_filter(markers::FILTER, mark_answer);
    environment.add_test("iterable", |value: &Value| kind_is(value, &[Seq, Map, Iterable, Text, Undefined]));
    environment.add_test("sequence", |value: &Value| kind_is(value, &[Seq, Map, Text, Undefined]));
    set_clock(environment, None);
}

/// Registers the function `strftime_now(format)`, in place of an earlier one: it formats `moment` on every call, or the
/// current time for `None`. Always in UTC, so that machines in other time zones give the same tokens.
pub(super) fn set_clock(environment: &mut Environment<'static>, moment: Option<Timestamp>) {
    environment.add_function("strftime_now", move |format: &str| {
        let now = moment.unwrap_or_else(Timestamp::now).to_zoned(TimeZone::UTC);
        strtime::format(format, &now).map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    });
}

/// Implements `raise_exception(message)`: always fails, with a [`Refusal`] as the error's source.
fn refuse(message: &Value) -> Result<Value, Error> {
    let message = python_repr::text(message);
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Refusal(message)))
}

/// Implements the filter that replaces a `{% generation %}` block: returns the text of the block, between [`OPEN`] and
/// [`CLOSE`] if the engine renders the form [`MARKED`], else unchanged.
fn mark_answer(state: &State, text: &str) -> String {
    if state.name() == MARKED { format!("{OPEN}{text}{CLOSE}") } else { text.to_owned() }
}

/// Whether a value is of one of these kinds.
fn kind_is(value: &Value, kinds: &[ValueKind]) -> bool {
    kinds.contains(&value.kind())
}

/// Calls a method that the engine does not know: `title`, `removeprefix`, `removesuffix`, `partition`, `rpartition` and
/// `rsplit` of texts as Python defines them. All but `title` need a text as first argument. Every other call goes to
/// minijinja's `pycompat`, which fails for names that it does not know.
fn call_python_method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    if let ("title", Some(text)) = (name, value.as_str()) {
        return Ok(Value::from(title(text)));
    }
    let first = arguments.first().and_then(Value::as_str);
    if let (ValueKind::String, Some(text), Some(argument)) = (value.kind(), value.as_str(), first) {
        match name {
            "removeprefix" => return Ok(Value::from(text.strip_prefix(argument).unwrap_or(text))),
            "removesuffix" => return Ok(Value::from(text.strip_suffix(argument).unwrap_or(text))),
            "partition" => return Ok(partition(text, text.split_once(argument), argument, false)),
            "rpartition" => return Ok(partition(text, text.rsplit_once(argument), argument, true)),
            "rsplit" => return Ok(rsplit(text, argument, arguments.get(1))),
            _ => {}
        }
    }
    pycompat::unknown_method_callback(state, value, name, arguments)
}

/// Implements Python's `str.title`: capitalizes each letter that does not follow a letter, and lowers all others.
fn title(text: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if inside {
            out.extend(character.to_lowercase())
        } else {
            out.extend(character.to_uppercase())
        }
        inside = character.is_alphabetic();
    }
    out
}

/// The three parts of Python's `partition` or `rpartition`: left, separator, right. `halves` are the left and the right
/// part; if they are `None`, because the separator was not found, the whole text stands last with `from_right`, else
/// first, beside two empty texts.
fn partition(text: &str, halves: Option<(&str, &str)>, separator: &str, from_right: bool) -> Value {
    let parts = match halves {
        Some((left, right)) => [left, separator, right],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    parts.into_iter().map(Value::from).collect()
}

/// Implements Python's `str.rsplit(separator, most)`: at most `most` splits from the right; all if `most` is missing,
/// negative or not an integer. Returns the parts from left to right.
fn rsplit(text: &str, separator: &str, most: Option<&Value>) -> Value {
    let limit = most.and_then(Value::as_i64).and_then(|most| usize::try_from(most).ok());
    let mut parts: Vec<&str> = match limit {
        Some(limit) => text.rsplitn(limit + 1, separator).collect(),
        None => text.rsplit(separator).collect(),
    };
    parts.reverse();
    parts.into_iter().map(Value::from).collect()
}
