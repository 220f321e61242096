//! The budget of bytes that a template may create in one rendering: a limit for each value, and one for all.
//!
//! Steps alone bound nothing: forty of them double a text to a thousand gigabytes. Every value that is made is
//! weighed as it would be printed, so that lists which hold one another are as heavy as they look.

use std::cell::Cell;

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

/// Bytes of the heaviest value: a longer text than any model reads.
const MAX_VALUE_BYTES: u64 = 32 << 20;
/// Bytes of everything that one rendering makes; texts that grow in a loop count each time.
const MAX_TOTAL_BYTES: u64 = 1 << 30;
/// What a value weighs beside its text: more than it takes, for a walk over places is slower than one over text.
const VALUE_OVERHEAD: u64 = 128;
/// How deep lists and maps may lie in one another.
const MAX_DEPTH: u32 = 100;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(MAX_TOTAL_BYTES) };
}

/// Sets this thread's budget to its maximum. Called before each rendering.
pub(super) fn reset() {
    LEFT.set(MAX_TOTAL_BYTES);
}

/// Subtracts bytes from this thread's budget. Errors: more bytes than one value may have or than are left; the budget
/// is then 0.
pub(super) fn charge(bytes: u64) -> Result<(), Error> {
    let left = LEFT.get().checked_sub(bytes).filter(|_| bytes <= MAX_VALUE_BYTES);
    LEFT.set(left.unwrap_or(0));
    left.map(|_| ()).ok_or_else(|| over_budget("it makes more text than any model reads"))
}

/// An `InvalidOperation` error of the template engine with this message.
fn over_budget(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

/// Charges the estimated bytes of a value with everything in it. Errors: over the budget, or a namespace inside the
/// value, which could contain itself.
pub(super) fn charge_value(value: &Value) -> Result<(), Error> {
    charge(value_bytes(value, 0)?)
}

/// Charges the estimated bytes of a value that is about to be stored in a namespace. Errors: over the budget, or the
/// value is or holds a namespace.
pub(super) fn charge_nested_value(value: &Value) -> Result<(), Error> {
    charge(value_bytes(value, 1)?)
}

/// Estimates the bytes of a value with all its items and keys: text lengths, and [`VALUE_OVERHEAD`] for each value.
/// `depth` is 0 for a value that stands alone. Errors: nested deeper than [`MAX_DEPTH`], larger than
/// [`MAX_VALUE_BYTES`], or a namespace at a depth above 0.
fn value_bytes(value: &Value, depth: u32) -> Result<u64, Error> {
    if depth > MAX_DEPTH {
        return Err(over_budget("its lists lie too deep in one another"));
    }
    let mut sum = VALUE_OVERHEAD;
    let mut add = |item: &Value| {
        sum += value_bytes(item, depth + 1)?;
        if sum > MAX_VALUE_BYTES { Err(over_budget("it makes a list that is larger than any text")) } else { Ok(()) }
    };
    match value.kind() {
        ValueKind::String => sum += value.as_str().map_or(0, str::len) as u64,
        ValueKind::Bytes => sum += value.as_bytes().map_or(0, <[u8]>::len) as u64,
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?.try_for_each(|item| add(&item))?,
        ValueKind::Map => {
            let namespace = value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"));
            if namespace && depth > 0 {
                return Err(over_budget("it puts a namespace into another value"));
            }
            for key in value.try_iter()? {
                add(&key)?;
                add(&value.get_item(&key)?)?;
            }
        }
        _ => {}
    }
    Ok(sum)
}

/// Converts a number to a size: negative integers give 0, floats their absolute value, and numbers too large the
/// maximum. `None` if the value is not a number.
fn clamped_size(value: &Value) -> Option<u64> {
    let fits = |value: &Value| f64::try_from(value.clone()).map_or(u64::MAX, |number| number.abs() as u64);
    value.is_number().then(|| value.as_i64().map_or_else(|| fits(value), |number| number.max(0) as u64))
}

/// Charges the result of `left * right` if one factor is a number and the other is not, such as a repeated text or
/// list. Charges nothing for a product of two numbers.
pub(super) fn charge_repetition(left: &Value, right: &Value) -> Result<(), Error> {
    let charge_repeats = |times: &Value, what: &Value| match (clamped_size(times), what.is_number()) {
        (Some(times), false) => charge(value_bytes(what, 0)?.saturating_mul(times)),
        _ => Ok(()),
    };
    charge_repeats(left, right)?;
    charge_repeats(right, left)
}

/// Filters and methods whose result may be much larger than what they are given.
const GROWING: [&str; 6] = ["replace", "join", "indent", "format", "batch", "slice"];

/// Replaces the filters named in [`GROWING`] by versions that charge the estimated size of their result before they
/// run.
pub(super) fn register(environment: &mut Environment<'static>) {
    let originals = [
        Value::from_function(filters::replace),
        Value::from_function(filters::join),
        Value::from_function(filters::indent),
        Value::from_function(filters::format),
        Value::from_function(filters::batch),
        Value::from_function(filters::slice),
    ];
    for (name, original) in GROWING.into_iter().zip(originals) {
        environment.add_filter(name, move |state: &mut State, arguments: Rest<Value>| {
            charge_growth(name, &arguments)?;
            original.call(state, &arguments)
        });
    }
}

/// Charges the estimated result size of a filter or text method; charges 0 for names that are not in [`GROWING`].
/// `arguments` begins with the value that it is called on.
pub(super) fn charge_growth(name: &str, arguments: &[Value]) -> Result<(), Error> {
    let text = |place: usize| arguments.get(place).and_then(Value::as_str).unwrap_or_default();
    let length = |place: usize| text(place).len() as u64;
    let number = |place: usize| arguments.get(place).and_then(clamped_size).unwrap_or(0);
    let bytes = match name {
        "replace" => (text(0).matches(text(1)).count() as u64).saturating_mul(length(2)),
        // The separator is the first for a method, the second for a filter.
        "join" => {
            let items = arguments.iter().take(2).filter(|argument| argument.as_str().is_none());
            let count: u64 = items.filter_map(Value::len).map(|count| count as u64).sum();
            let named = arguments.last().and_then(|last| last.get_attr("d").ok());
            let named = named.as_ref().and_then(Value::as_str).unwrap_or_default().len() as u64;
            count.max(length(0)).saturating_mul(length(0).max(length(1)).max(named))
        }
        "indent" => {
            let wide = arguments.iter().skip(1).filter_map(clamped_size).max().unwrap_or(0);
            (text(0).lines().count() as u64 + 1).saturating_mul(named_size(arguments, "width").max(wide))
        }
        "format" => format_bytes(text(0), &arguments[1..])?,
        "batch" | "slice" => number(1).saturating_mul(VALUE_OVERHEAD),
        _ => 0,
    };
    charge(bytes)
}

/// The size given by a keyword argument, such as `width=4`; 0 if it is missing or not a number. Keyword arguments are
/// the last element of `arguments`.
fn named_size(arguments: &[Value], name: &str) -> u64 {
    arguments.last().and_then(|last| last.get_attr(name).ok()).and_then(|value| clamped_size(&value)).unwrap_or(0)
}

/// An upper estimate of a format's result: all arguments once for each `{` or `%`, and every width that the format or,
/// through `*` or `:{`, an argument gives.
fn format_bytes(format: &str, arguments: &[Value]) -> Result<u64, Error> {
    let places = format.matches(['{', '%']).count() as u64;
    let widths = format.split(|letter: char| !letter.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let wide = widths.map(|digits| digits.parse().unwrap_or(u64::MAX)).fold(0_u64, u64::saturating_add);
    // A width that an argument gives.
    let given = arguments.iter().filter_map(clamped_size).fold(0, u64::saturating_add);
    let given = if format.contains('*') || format.contains(":{") { given } else { 0 };
    let mut whole = 0;
    for argument in arguments {
        whole += value_bytes(argument, 0)?;
    }
    Ok(places.saturating_mul(whole).saturating_add(wide).saturating_add(given))
}
