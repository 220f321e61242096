//! What is wrong with a line of training data: an explanation without the location in the file, which `dataset` adds,
//! and the column in the line.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tunebox_foundation::explain::Explanation;

use super::shape::Shape;

/// What is wrong with a line. Boxed: a result is moved for every record.
pub(super) type Fault = Box<Explanation>;

/// What is wrong with a line, and the column of it, from 1, in characters.
pub(super) type LocatedFault = (Fault, usize);

/// The fault about a field of the wrong type. `found` and `wanted` are the types in words, with their articles.
pub(super) fn wrong_type(field: &str, found: &str, wanted: &str) -> Fault {
    Explanation::new("data", format!("`{field}` is {found}, {wanted} is wanted")).into()
}

/// Names the type of a JSON value, with its article, such as `a number`; `empty text` for an empty string, and
/// `missing` for `None`.
pub(super) fn describe_type(value: Option<&Value>) -> &'static str {
    match value {
        None => "missing",
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "a truth value",
        Some(Value::Number(_)) => "a number",
        Some(Value::String(text)) if text.is_empty() => "empty text",
        Some(Value::String(_)) => "text",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
    }
}

/// The fault about a field whose text or list is empty.
pub(super) fn empty_field(field: &str) -> Fault {
    Explanation::new("data", format!("`{field}` is empty")).into()
}

/// Builds the fault about a record that lacks `field`, which its shape needs. `similar` is a field that the record has
/// and that was probably meant; the hint proposes it, and there is none without it.
pub(super) fn missing_field(field: &str, shape: Shape, similar: Option<&str>) -> Fault {
    let hint = similar.map(|similar| format!("did you mean `{field}` by `{similar}`?"));
    let why = format!("the data is {shape}: every record needs {}", shape.fields());
    Explanation { hint, ..Explanation::new("data", format!("`{field}` is missing")).with_why(why) }.into()
}

/// The fault about a record whose shape `found` is not among the shapes `wanted`, from which the method learns.
pub(super) fn unwanted_shape(found: Shape, wanted: &[Shape]) -> Fault {
    let fault = match wanted {
        [shape] => Explanation::new("data", format!("the record is {found}, here {shape} is wanted"))
            .with_why("the method, or the first record of the file, decides which records it has"),
        _ => Explanation::new("data", format!("the record is {found}, which this method does not learn from")),
    };
    fault.with_hint(accepted_fields(wanted)).into()
}

/// The fault about a record whose answer is a list of steps with a label each.
pub(super) fn labeled_steps() -> Fault {
    let what = "the record is for a process reward model: the steps `completions` of an answer, with `labels`";
    let hint = "no method learns from such records; for `kto`, give each answer as `completion` with one `label`";
    Explanation::new("data", what).with_hint(hint).into()
}

/// Builds the fault about a record whose fields match no shape and no layout. Lists the fields of the shapes `wanted`,
/// with an example of `data.map` if the record has fields with text that could be a prompt and its completion.
pub(super) fn unknown_shape(record: &Map<String, Value>, wanted: &[Shape]) -> Fault {
    let quoted = record.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let what = "the record has none of the known shapes";
    let what =
        if record.is_empty() { format!("{what}, and no fields") } else { format!("{what}: its fields are {quoted}") };
    let texts = record.iter().filter(|(_, value)| value.is_string()).map(|(name, _)| name.as_str());
    let map = match texts.collect::<Vec<_>>()[..] {
        [text] if wanted.contains(&Shape::Text) => format!("text = \"{text}\""),
        [prompt, completion, ..] if wanted.contains(&Shape::PromptCompletion) => {
            format!("prompt = \"{prompt}\", completion = \"{completion}\"")
        }
        _ => return Explanation::new("data", what).with_hint(mapping_hint(wanted)).into(),
    };
    Explanation::new("data", what).with_hint(format!("{}, such as `{{ {map} }}`", mapping_hint(wanted))).into()
}

/// A sentence that lists the fields of each wanted shape, and says how fields of other names are read.
pub(super) fn mapping_hint(wanted: &[Shape]) -> String {
    format!("{}; `data.map` reads them under other names", accepted_fields(wanted))
}

/// What the JSON parser says about a text, without its own line and column, which counts bytes.
pub(super) fn json_problem(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let end = message.find(" at line ").unwrap_or(message.len());
    message[..end].replace("EOF while parsing", "it ends inside")
}

/// A sentence with an example of a valid record of JSON, which `unit` calls a line or a record. Shows a prompt with its
/// completion if `shapes` is empty or contains that shape, else the first of `shapes`.
pub(super) fn example(unit: &str, shapes: &[Shape]) -> String {
    let shape = shapes.iter().find(|shape| **shape == Shape::PromptCompletion).or(shapes.first());
    let example = shape.copied().unwrap_or(Shape::PromptCompletion).facts().example;
    format!("every {unit} is one JSON object, such as {example}")
}

/// A sentence that lists the fields of each shape that the method learns from.
pub(super) fn accepted_fields(wanted: &[Shape]) -> String {
    let fields: Vec<&str> = wanted.iter().map(|shape| shape.fields()).collect();
    format!("this method takes records with {}", fields.join(", or "))
}

/// The column (from 1, in characters) of the value at a path in a line of JSON: names of fields, and positions in lists
/// from 0. If the path leads nowhere, the column of the last value found on it.
pub(super) fn value_column(text: &str, path: &[&str]) -> usize {
    let mut value = text.trim_start();
    for step in path {
        match step_into(value, step) {
            Some(inner) => value = inner,
            None => break,
        }
    }
    column_at(text, byte_offset(text, value))
}

/// Returns the column (from 1, in characters) of the quoted name of the field `name` in the line `text`, a JSON object;
/// 1 if there is no such field.
pub(super) fn key_column(text: &str, name: &str) -> usize {
    let value = step_into(text.trim_start(), name).unwrap_or(text);
    let end = byte_offset(text, value);
    column_at(text, text[..end].rfind(&format!("\"{name}\"")).unwrap_or(end))
}

/// Returns the JSON text of one value inside `value`: of the field named `step` if `value` is an object, of the item at
/// index `step`, from 0, if it is a list. `None` if there is no such field or item, or `value` is neither.
fn step_into<'a>(value: &'a str, step: &str) -> Option<&'a str> {
    #[derive(Deserialize)]
    struct Object<'a>(#[serde(borrow)] BTreeMap<Cow<'a, str>, &'a RawValue>);
    let raw = match serde_json::from_str::<Object<'a>>(value) {
        Ok(object) => object.0.get(step).copied(),
        Err(_) => serde_json::from_str::<Vec<&'a RawValue>>(value).ok()?.get(step.parse::<usize>().ok()?).copied(),
    };
    raw.map(RawValue::get)
}

/// The byte offset of `value` in `text`; `value` must be a slice of `text`.
fn byte_offset(text: &str, value: &str) -> usize {
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
            (r#"{"é": "x\"y", "messages": [{"role": "user"}, {"role": 7}]}"#, "1", "role", "7}"),
            (r#"{"messages": [{"role": "user"}]}"#, "0", "content", r#"{"role""#),
        ] {
            let from: String = text.chars().skip(value_column(text, &["messages", index, field]) - 1).collect();
            assert!(from.starts_with(found), "{from}");
        }
    }
}
