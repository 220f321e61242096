//! The column of a value in a line of JSON, for error messages.
//!
//! Only called on text that parsed, after something in it turned out wrong.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A step down into JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// The value of a field.
    Field(&'a str),
    /// An item of a list, from 0.
    Item(usize),
}

/// The column (from 1, in characters) of the value at a path in a line of JSON. If the path leads nowhere, the column
/// of the last value found on it.
pub(super) fn column(text: &str, path: &[Step<'_>]) -> usize {
    let mut value = text.trim_start();
    for step in path {
        match step_into(value, *step) {
            Some(inner) => value = inner,
            None => break,
        }
    }
    column_at(text, offset(text, value))
}

/// The column (from 1, in characters) of the quoted name of a field of the line's object; 1 if there is no such field.
pub(super) fn key_column(text: &str, name: &str) -> usize {
    let value = step_into(text.trim_start(), Step::Field(name)).unwrap_or(text);
    let end = offset(text, value);
    column_at(text, text[..end].rfind(&format!("\"{name}\"")).unwrap_or(end))
}

/// The JSON text of the field or item one step below the JSON text `value`; `None` if there is none.
fn step_into<'a>(value: &'a str, step: Step<'_>) -> Option<&'a str> {
    #[derive(Deserialize)]
    struct Object<'a>(#[serde(borrow)] BTreeMap<Cow<'a, str>, &'a RawValue>);
    let raw = match step {
        Step::Field(name) => serde_json::from_str::<Object<'a>>(value).ok()?.0.get(name).copied(),
        Step::Item(index) => serde_json::from_str::<Vec<&'a RawValue>>(value).ok()?.get(index).copied(),
    };
    raw.map(RawValue::get)
}

/// The byte offset of `value` in `text`; `value` must be a slice of `text`.
fn offset(text: &str, value: &str) -> usize {
    (value.as_ptr() as usize).saturating_sub(text.as_ptr() as usize)
}

/// Converts a byte offset in `text` to a column, from 1, in characters; 1 if the offset is not at a character boundary.
fn column_at(text: &str, byte: usize) -> usize {
    text.get(..byte).map_or(1, |before| before.chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_deep_in_a_line_is_found_or_else_the_object_that_lacks_it() {
        for (text, index, field, found) in [
            (r#"{"é": "x\"y", "messages": [{"role": "user"}, {"role": 7}]}"#, 1, "role", "7}"),
            (r#"{"messages": [{"role": "user"}]}"#, 0, "content", r#"{"role""#),
        ] {
            let path = [Step::Field("messages"), Step::Item(index), Step::Field(field)];
            let from: String = text.chars().skip(column(text, &path) - 1).collect();
            assert!(from.starts_with(found), "{from}");
        }
    }
}
