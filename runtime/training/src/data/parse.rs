//! Reads one line of training data as a record of one of the wanted shapes.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::nearest::nearest;
use tunebox_model::chat::Message;

use super::fault::{self, LocatedFault, example_line, key_column, value_column};
use super::layout::{Conversion, FieldMap, Layout};
use super::shape::{Content, Record, Shape, TextOrMessages};

/// Fields for the chat template, which verifiers do not get.
const TEMPLATE_FIELDS: [&str; 2] = ["tools", "chat_template_kwargs"];

impl Record {
    /// Parses one line of a file as a record of the first shape in `wanted` whose required fields the line has.
    ///
    /// # Errors
    /// What is wrong with the line, and its column in characters, from 1: a line that is no JSON object, lacks the
    /// fields of every wanted shape, or has a field with a value that the shape does not permit.
    pub fn parse(line: &[u8], wanted: &[Shape]) -> Result<Self, (Box<Explanation>, usize)> {
        Self::parse_converted(line, wanted, &Conversion::default())
    }

    /// Parses the text of a record as [`Record::parse`] does, after converting its fields.
    pub(super) fn parse_converted(
        line: &[u8],
        wanted: &[Shape],
        conversion: &Conversion,
    ) -> Result<Self, LocatedFault> {
        let (text, mut object) = parse_object(line, wanted)?;
        let columns = conversion.apply(&mut object).map_err(|fault| (fault, value_column(text, &[])))?;
        let shape = find_shape(text, &object, wanted)?;
        read_record(Fields { text, object: &mut object, columns, is_untyped: conversion.is_untyped }, shape)
    }
}

/// Returns the shape of a file's records and their layout, by one of its lines: the first of the wanted shapes that the
/// line has, after the columns of `conversion.map` are renamed, or can be converted to. `None` if it has none.
pub(super) fn find_layout(
    line: &[u8],
    wanted: &[Shape],
    conversion: &Conversion,
    has_template: bool,
) -> Option<(Shape, Option<Layout>)> {
    let (text, mut object) = parse_object(line, wanted).ok()?;
    conversion.apply(&mut object).ok()?;
    match Layout::find(&object, wanted, has_template) {
        Some(layout) => Some((layout.shape(), Some(layout))),
        None => Some((find_shape(text, &object, wanted).ok()?, None)),
    }
}

/// Returns the first of the wanted shapes whose required fields a line has; `None` if the line is not a JSON object or
/// has none of the shapes. The values of the fields are not checked: null counts, too.
#[must_use]
pub(super) fn shape_of_line(line: &[u8], wanted: &[Shape]) -> Option<Shape> {
    let (text, object) = parse_object(line, wanted).ok()?;
    find_shape(text, &object, wanted).ok()
}

/// Parses a line as a JSON object; returns the line as text and the object. Fails for a line that is not UTF-8, no JSON
/// or no object. `wanted` are the shapes for the example in the hint of that error.
fn parse_object<'a>(bytes: &'a [u8], wanted: &[Shape]) -> Result<(&'a str, Map<String, Value>), LocatedFault> {
    let characters = |end: usize| String::from_utf8_lossy(&bytes[..end.min(bytes.len())]).chars().count();
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let fault = Explanation::new("data", "the line is not UTF-8 text").with_why("JSONL is UTF-8");
        (fault.with_hint("save the file as UTF-8").into(), characters(error.valid_up_to()) + 1)
    })?;
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok((text, object)),
        Ok(other) => {
            let what = format!("the line is {}, a JSON object is wanted", describe_type(Some(&other)));
            Err((Explanation::new("data", what).with_hint(example_line(wanted)).into(), value_column(text, &[])))
        }
        Err(error) => {
            let what = format!("the line is not JSON: {}", fault::json_problem(&error));
            let fault = Explanation::new("data", what).with_hint(example_line(wanted));
            Err((fault.into(), characters(error.column().saturating_sub(1)) + 1))
        }
    }
}

/// Returns the first of the wanted shapes whose required fields an object has, whatever their values. `text` is the
/// line, for locating a fault.
///
/// # Errors
/// A fault about another known shape, about a missing field of a wanted shape, or about unknown fields.
fn find_shape(text: &str, object: &Map<String, Value>, wanted: &[Shape]) -> Result<Shape, LocatedFault> {
    if let Some(shape) = wanted.iter().find(|shape| shape.is_complete(object)) {
        return Ok(*shape);
    }
    let start = value_column(text, &[]);
    // Half a record of most other shapes is a complete `Prompts`, so that shape is no explanation.
    let other = Shape::all().find(|shape| shape.is_complete(object));
    if let Some(found) = other.filter(|found| *found != Shape::Prompts) {
        return Err((fault::unwanted_shape(found, wanted), start));
    }
    let begun = wanted.iter().find(|shape| shape.has_any(object) || wanted.len() == 1);
    let missing = begun.and_then(|shape| {
        let field = shape.facts().required.iter().find(|field| !object.contains_key(**field))?;
        Some(missing_field(text, object, field, *shape))
    });
    let fields: Vec<&str> = object.keys().map(String::as_str).collect();
    Err(missing.unwrap_or_else(|| (fault::unknown_shape(&fields, wanted), start)))
}

/// The fault about a field that a record of `shape` lacks, with its column: that of the field that was probably meant,
/// or of the object if no name is similar.
fn missing_field(text: &str, object: &Map<String, Value>, field: &str, shape: Shape) -> LocatedFault {
    let others = object.keys().map(String::as_str).filter(|name| !shape.facts().required.contains(name));
    let similar = nearest(field, others);
    let at = similar.map_or_else(|| value_column(text, &[]), |name| key_column(text, name));
    (fault::missing_field(field, shape, similar), at)
}

/// Reads the content of an object that has the fields of `shape`, and its further fields. Of these, numbers and
/// booleans become columns, and lists of numbers become lists if the shape has columns for tokens; all others are
/// ignored.
///
/// Fails for a field of the wrong type, an empty list of messages, a conversation without the role `assistant`, and an
/// empty text except in pairs of prompt and answer.
fn read_record(mut fields: Fields<'_>, shape: Shape) -> Result<Record, LocatedFault> {
    let content = match shape {
        Shape::Messages => {
            let messages = fields.take_messages("messages")?;
            if !messages.iter().any(|message| message.role == "assistant") {
                let fault = Explanation::new("data", "no message has the role `assistant`");
                let fault = fault.with_why("the answers of the assistant are what is learned");
                return Err((fault.into(), fields.column("messages")));
            }
            Content::Messages(messages)
        }
        Shape::PromptCompletion => fields.take_pair()?,
        Shape::Text => Content::Text(fields.take_text("text")?),
        Shape::Preference => fields.take_preference()?,
        Shape::Unpaired => {
            fields.check_label()?;
            fields.take_pair()?
        }
        Shape::Prompts => fields.take_prompt()?,
        Shape::Instructions => {
            Content::Instructions(fields.take_if_present("harmful")?, fields.take_if_present("harmless")?)
        }
        Shape::Contrast => Content::Contrast(fields.take_non_empty("positive")?, fields.take_non_empty("negative")?),
    };
    let (tools, variables) = (fields.take_tools()?, fields.take_template_variables()?);
    let lists = if shape.has_token_columns() { fields.number_lists() } else { BTreeMap::new() };
    Ok(Record { content, tools, variables, columns: fields.numbers(), lists })
}

/// The fields of a record; those that are taken are removed from the object.
struct Fields<'a> {
    text: &'a str,
    object: &'a mut Map<String, Value>,
    /// The columns of the file that became fields of other names.
    columns: FieldMap,
    /// Whether all values come from a table of text.
    is_untyped: bool,
}

impl Fields<'_> {
    /// Removes a field and returns its value. A text from a table of text that is a JSON list of objects is read as
    /// such.
    fn remove(&mut self, name: &str) -> Option<Value> {
        let value = self.object.remove(name)?;
        let text = value.as_str().filter(|text| self.is_untyped && text.starts_with('['));
        let items = text.and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
        let items = items.filter(|items| !items.is_empty() && items.iter().all(Value::is_object));
        Some(items.map_or(value, Value::Array))
    }

    /// The fields that are numbers or booleans (as 0 or 1), as `f32`, by name. Ignores all other fields.
    fn numbers(&self) -> BTreeMap<String, f32> {
        let number = |value| self.number(value).map(|number| number as f32);
        self.object.iter().filter_map(|(name, value)| Some((name.clone(), number(value)?))).collect()
    }

    /// The fields that are lists of numbers, by name, with null as NaN. In a table of text, a text that is such a list
    /// as JSON counts as well. Ignores all other fields.
    fn number_lists(&self) -> BTreeMap<String, Vec<f32>> {
        let number = |item: &Value| match item {
            Value::Null => Some(f32::NAN),
            item => item.as_f64().map(|number| number as f32),
        };
        let numbers = |items: &[Value]| items.iter().map(number).collect::<Option<Vec<f32>>>();
        let list = |value: &Value| match value {
            Value::Array(items) => numbers(items),
            Value::String(text) if self.is_untyped && text.starts_with('[') => {
                serde_json::from_str::<Vec<Value>>(text).ok().as_deref().and_then(numbers)
            }
            _ => None,
        };
        self.object.iter().filter_map(|(name, value)| Some((name.clone(), list(value)?))).collect()
    }

    /// The number that a value is, with a boolean as 0 or 1; `None` for anything else. In a table of text, a text that
    /// is written like either counts as well.
    fn number(&self, value: &Value) -> Option<f64> {
        match value {
            Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
            Value::Number(number) => number.as_f64(),
            Value::String(text) if self.is_untyped => match text.trim().to_lowercase().as_str() {
                "true" => Some(1.0),
                "false" => Some(0.0),
                text => text.parse().ok().filter(|number: &f64| number.is_finite()),
            },
            _ => None,
        }
    }

    /// Removes the field `name` and returns its value, which must be a text (an empty one, too) or a non-empty list of
    /// messages.
    fn take_text_or_messages(&mut self, name: &str) -> Result<TextOrMessages, LocatedFault> {
        match self.remove(name) {
            Some(Value::Array(items)) => self.read_messages(name, items).map(TextOrMessages::Messages),
            Some(Value::String(text)) => Ok(TextOrMessages::Text(text)),
            other => Err(self.wrong_type(name, other.as_ref(), "text or a list of messages")),
        }
    }

    /// Removes the field `name` and returns its value, which must be a non-empty text or a non-empty list of messages.
    fn take_non_empty(&mut self, name: &str) -> Result<TextOrMessages, LocatedFault> {
        match self.take_text_or_messages(name)? {
            TextOrMessages::Text(text) if text.is_empty() => {
                Err((fault::empty_field(self.column_name(name)), self.column(name)))
            }
            turns => Ok(turns),
        }
    }

    /// Removes the field `name` and returns its value, which must be a non-empty text or a non-empty list of messages;
    /// null is a fault. `None` if there is no such field.
    fn take_if_present(&mut self, name: &str) -> Result<Option<TextOrMessages>, LocatedFault> {
        if self.object.contains_key(name) { self.take_non_empty(name).map(Some) } else { Ok(None) }
    }

    /// Removes the field `name`, which must be a non-empty text, and returns the text.
    fn take_text(&mut self, name: &str) -> Result<String, LocatedFault> {
        match self.remove(name) {
            Some(Value::String(text)) if text.is_empty() => {
                Err((fault::empty_field(self.column_name(name)), self.column(name)))
            }
            Some(Value::String(text)) => Ok(text),
            other => Err(self.wrong_type(name, other.as_ref(), "text")),
        }
    }

    /// Removes the field `name`, which must be a non-empty list of messages, and returns the messages.
    fn take_messages(&mut self, name: &str) -> Result<Vec<Message>, LocatedFault> {
        match self.remove(name) {
            Some(Value::Array(items)) => self.read_messages(name, items),
            other => Err(self.wrong_type(name, other.as_ref(), "a list of messages")),
        }
    }

    /// Reads `items`, the value of the field `name`, as messages. An empty list is a fault.
    fn read_messages(&self, name: &str, items: Vec<Value>) -> Result<Vec<Message>, LocatedFault> {
        if items.is_empty() {
            return Err((fault::empty_field(self.column_name(name)), self.column(name)));
        }
        items.into_iter().enumerate().map(|(index, item)| self.read_message(name, index, item)).collect()
    }

    /// Reads `item`, the message at position `index` (from 0) of the field `list`. Its `role` must be non-empty text;
    /// its `content` text or a list of text parts, or null or missing if the message has `tool_calls`.
    fn read_message(&self, list: &str, index: usize, item: Value) -> Result<Message, LocatedFault> {
        let list = self.column_name(list);
        let wrong = |name: Option<&str>, found, wanted| {
            let position = index.to_string();
            let path: Vec<&str> = [list, &position].into_iter().chain(name).collect();
            let field = name.map_or(format!("{list}[{index}]"), |name| format!("{list}[{index}].{name}"));
            (fault::wrong_type(&field, found, wanted), value_column(self.text, &path))
        };
        let Some(object) = item.as_object() else {
            return Err(wrong(None, describe_type(Some(&item)), "an object with `role` and `content`"));
        };
        match object.get("role") {
            Some(Value::String(role)) if !role.is_empty() => {}
            other => return Err(wrong(Some("role"), describe_type(other), "text such as `user`")),
        }
        match object.get("content") {
            Some(Value::String(_) | Value::Array(_)) => {}
            None | Some(Value::Null) if object.contains_key("tool_calls") => {}
            other => return Err(wrong(Some("content"), describe_type(other), "text")),
        }
        serde_json::from_value(item).map_err(|_| wrong(Some("content"), "a list", "a list of text parts"))
    }

    /// Removes `prompt` and `completion`, each a text (an empty one, too) or a non-empty list of messages, and returns
    /// them.
    fn take_pair(&mut self) -> Result<Content, LocatedFault> {
        Ok(Content::PromptCompletion(self.take_text_or_messages("prompt")?, self.take_text_or_messages("completion")?))
    }

    /// Removes `tools` and returns it. It must be a list, or such a list as JSON in a text, the only form in which many
    /// data sets can hold tools with different parameters. `None` if it is missing, null or empty.
    fn take_tools(&mut self) -> Result<Option<Value>, LocatedFault> {
        match self.remove_structure("tools") {
            Some(Value::Array(items)) => Ok(Some(Value::Array(items)).filter(|tools| tools.get(0).is_some())),
            None => Ok(None),
            other => Err(self.wrong_type("tools", other.as_ref(), "a list of tools, or one as JSON in a text")),
        }
    }

    /// Removes `chat_template_kwargs` and returns it. It must be an object, or one as JSON in a text. `None` if it is
    /// missing, null or an empty text.
    fn take_template_variables(&mut self) -> Result<Option<Map<String, Value>>, LocatedFault> {
        let name = "chat_template_kwargs";
        match self.remove_structure(name) {
            Some(Value::Object(variables)) => Ok(Some(variables)),
            None => Ok(None),
            other => Err(self.wrong_type(name, other.as_ref(), "an object, or one as JSON in a text")),
        }
    }

    /// Removes a field and returns its value, or what its text is as JSON. `None` if it is missing, null or an empty
    /// text.
    fn remove_structure(&mut self, name: &str) -> Option<Value> {
        let value = self.remove(name)?;
        let inner = value.as_str().and_then(|text| serde_json::from_str(text).ok());
        Some(inner.unwrap_or(value)).filter(|value| !value.is_null() && value != "")
    }

    /// Removes `chosen`, `rejected` and, if present (null is a fault), `prompt`, and returns them; each is a text or a
    /// non-empty list of messages.
    ///
    /// Without `prompt`, both answers must be lists of messages, and the prompt is the messages with which both begin,
    /// which are cut from them; it may be empty. The answers are also cut in this way, and a `prompt` of text is
    /// ignored, if both lists begin with a message that is no answer, because they then repeat the prompt. Another
    /// `prompt` of text beside lists of messages becomes a message of the user.
    fn take_preference(&mut self) -> Result<Content, LocatedFault> {
        let (chosen, rejected) = (self.take_text_or_messages("chosen")?, self.take_text_or_messages("rejected")?);
        let begins_with_answer = |turns: &TextOrMessages| match turns {
            TextOrMessages::Messages(messages) => messages.first().is_some_and(Message::is_answer),
            TextOrMessages::Text(_) => true,
        };
        let repeats = !begins_with_answer(&chosen) && !begins_with_answer(&rejected);
        let prompt =
            if self.object.contains_key("prompt") { Some(self.take_text_or_messages("prompt")?) } else { None };
        match prompt {
            Some(TextOrMessages::Text(_)) if repeats => {}
            Some(TextOrMessages::Text(text)) if matches!(chosen, TextOrMessages::Messages(_)) => {
                let prompt = TextOrMessages::Messages(vec![Message::new("user", text)]);
                return Ok(Content::Preference(prompt, chosen, rejected));
            }
            Some(prompt) => return Ok(Content::Preference(prompt, chosen, rejected)),
            None => {}
        }
        let (TextOrMessages::Messages(mut prompt), TextOrMessages::Messages(mut rejected)) = (chosen, rejected) else {
            return Err(missing_field(self.text, self.object, "prompt", Shape::Preference));
        };
        let shared = prompt.iter().zip(&rejected).take_while(|(one, other)| one == other).count();
        let (chosen, rejected) = (prompt.split_off(shared), rejected.split_off(shared));
        Ok(Content::Preference(
            TextOrMessages::Messages(prompt),
            TextOrMessages::Messages(chosen),
            TextOrMessages::Messages(rejected),
        ))
    }

    /// Removes `prompt`, which must not be empty, and returns it with a copy of every further field that is not null
    /// and not in [`TEMPLATE_FIELDS`], as text for the verifiers: a string as it is, any other value as JSON. Also
    /// removes `answer`, so that the method does not get it as a number; its copy for the verifiers stays.
    fn take_prompt(&mut self) -> Result<Content, LocatedFault> {
        let prompt = self.take_non_empty("prompt")?;
        let further =
            self.object.iter().filter(|(name, value)| !TEMPLATE_FIELDS.contains(&name.as_str()) && !value.is_null());
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let fields = further.map(|(name, value)| (name.clone(), text(value))).collect();
        self.object.remove("answer");
        Ok(Content::Prompt(prompt, fields))
    }

    /// Checks that the field `label` is there and is a boolean, 0 or 1, or in a table of text one of these as text.
    /// Does not remove the field, so it becomes a column of the record.
    fn check_label(&self) -> Result<(), LocatedFault> {
        let label = self.object.get("label");
        if label.and_then(|value| self.number(value)).is_some_and(|number| number == 0.0 || number == 1.0) {
            return Ok(());
        }
        Err(self.wrong_type("label", label, "true or false (or 1 or 0)"))
    }

    /// The name of the column in the file that became the field `name`, for messages; `name` itself if it was not
    /// renamed.
    fn column_name<'b>(&'b self, name: &'b str) -> &'b str {
        self.columns.get(name).map_or(name, String::as_str)
    }

    /// The column (from 1, in characters) of a field's value in the line; that of the object if the field is not there.
    fn column(&self, name: &str) -> usize {
        value_column(self.text, &[self.column_name(name)])
    }

    /// The fault about a field of the wrong type, with the column of its value `found`. `wanted` is the type in words.
    fn wrong_type(&self, name: &str, found: Option<&Value>, wanted: &str) -> LocatedFault {
        (fault::wrong_type(self.column_name(name), describe_type(found), wanted), self.column(name))
    }
}

/// Names the type of a JSON value, with its article, such as `a number`; `empty text` for an empty string, and
/// `missing` for `None`.
fn describe_type(value: Option<&Value>) -> &'static str {
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

#[cfg(test)]
mod tests;
