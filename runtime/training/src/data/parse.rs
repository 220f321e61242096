//! Reads one line of training data as a record of one of the wanted shapes.

mod fields;

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::nearest::nearest;

use super::fault::{self, LocatedFault, describe_type, example, key_column, value_column};
use super::layout::{Conversion, Layout};
use super::shape::{Content, Record, Shape};
use fields::Fields;

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
            let what = format!("the record is {}, a JSON object is wanted", describe_type(Some(&other)));
            Err((Explanation::new("data", what).with_hint(example("record", wanted)).into(), value_column(text, &[])))
        }
        Err(error) => {
            let what = format!("the line is not JSON: {}", fault::json_problem(&error));
            let is_text = wanted.contains(&Shape::Text) && !text.trim_start().starts_with(['{', '[']);
            let plain = if is_text { "a text is a line `{\"text\": \"…\"}`; " } else { "" };
            let fault = Explanation::new("data", what).with_hint(plain.to_owned() + &example("line", wanted));
            Err((fault.into(), characters(error.column().saturating_sub(1)) + 1))
        }
    }
}

/// Returns the first of the wanted shapes whose required fields an object has, whatever their values. `text` is the
/// line, for locating a fault.
///
/// # Errors
/// A fault about steps with labels, about another known shape, about a missing field of a wanted shape, or about
/// unknown fields.
fn find_shape(text: &str, object: &Map<String, Value>, wanted: &[Shape]) -> Result<Shape, LocatedFault> {
    // Beside them the prompt alone would be a complete `Prompts`.
    if ["completions", "labels"].iter().all(|list| object.get(*list).is_some_and(Value::is_array)) {
        return Err((fault::labeled_steps(), value_column(text, &["completions"])));
    }
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
    Err(missing.unwrap_or_else(|| (fault::unknown_shape(object, wanted), start)))
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
/// Fails for a field of the wrong type, an empty list of messages, a conversation without the role `assistant`, an
/// empty text except in pairs of prompt and answer, and for images, video and audio beside the text.
fn read_record(mut fields: Fields<'_>, shape: Shape) -> Result<Record, LocatedFault> {
    fields.check_media()?;
    let content = match shape {
        Shape::Messages => {
            let mut messages = fields.take_messages("messages")?;
            fields.add_system(&mut messages);
            if !messages.iter().any(|message| message.role == "assistant") {
                let mut roles: Vec<String> = messages.iter().map(|message| format!("`{}`", message.role)).collect();
                roles.sort_unstable();
                roles.dedup();
                let why = format!("the answers of the assistant are what is learned; there is {}", roles.join(", "));
                let fault = Explanation::new("data", "no message has the role `assistant`").with_why(why);
                let fault = fault.with_hint("the roles are `system`, `user`, `assistant` and `tool`");
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

#[cfg(test)]
mod tests;
