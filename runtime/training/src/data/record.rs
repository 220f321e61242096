//! What one line of data says, and what is wrong with it if it is wrong.
//!
//! What shape it has is told by `shape`; tokens are left to `encode`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tunebox_model::chat::Message;

use super::fault::LineFault;
use super::fields::{Fields, kind};
use super::locate::column;
use super::shape::{Shape, shape_of};

/// Text, or messages that the chat template turns into text.
#[derive(Debug, Clone, PartialEq)]
pub enum Turns {
    /// As it stands.
    Text(String),
    /// To be put through the chat template.
    Messages(Vec<Message>),
}

/// The content of a record, by shape.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A conversation.
    Messages(Vec<Message>),
    /// A prompt and what to answer.
    PromptCompletion(Turns, Turns),
    /// Text without roles.
    Text(String),
    /// A prompt, the better answer, the worse one.
    Preference(Turns, Turns, Turns),
    /// What the model is asked, and every further field as text.
    Prompt(Turns, BTreeMap<String, String>),
    /// An instruction that is refused, and one that is followed; at least one of them.
    Instructions(Option<Turns>, Option<Turns>),
    /// Two texts, or conversations.
    Contrast(Turns, Turns),
}

/// One record: what it says, what the template needs beside it, and its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// What it says.
    pub content: Content,
    /// The tools that the model may call: the field `tools`.
    pub tools: Option<Value>,
    /// Further variables of the template: the field `chat_template_kwargs`.
    pub variables: Option<Map<String, Value>>,
    /// Every further field that is a number or a truth value.
    pub columns: BTreeMap<String, f32>,
}

/// What is wrong with a line, and the column of it.
pub(super) type Wrong = (LineFault, usize);

impl Record {
    /// Reads one line of a file whose records have one of the shapes `wanted`.
    ///
    /// # Errors
    /// What is wrong with the line, and the column of it in characters, from 1.
    pub fn read(line: &[u8], wanted: &[Shape]) -> Result<Self, (LineFault, usize)> {
        let (text, object) = object(line)?;
        let shape = shape_of(text, &object, wanted)?;
        record(text, object, shape)
    }
}

/// Reads one line as JSON object.
pub(super) fn object(bytes: &[u8]) -> Result<(&str, Map<String, Value>), Wrong> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        (LineFault::NotText, before.chars().count() + 1)
    })?;
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok((text, object)),
        Ok(other) => Err((LineFault::NotObject(kind(&other)), column(text, &[]))),
        Err(error) => Err((LineFault::NotJson(reason(&error)), character(text, error.column()))),
    }
}

/// The parser's words without its own line and column.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.find(" at line ").unwrap_or(text.len());
    text[..end].replace("EOF while parsing", "it ends inside")
}

/// The parser counts bytes; people count characters.
fn character(text: &str, column: usize) -> usize {
    let bytes = text.as_bytes();
    String::from_utf8_lossy(&bytes[..column.saturating_sub(1).min(bytes.len())]).chars().count() + 1
}

/// Reads a record of a shape that the object has.
fn record(text: &str, mut object: Map<String, Value>, shape: Shape) -> Result<Record, Wrong> {
    let mut fields = Fields { text, object: &mut object };
    let content = match shape {
        Shape::Messages => {
            let messages = fields.messages("messages")?;
            answered(&messages).map_err(|fault| (fault, fields.column("messages")))?;
            Content::Messages(messages)
        }
        Shape::PromptCompletion => Content::PromptCompletion(fields.turns("prompt")?, fields.turns("completion")?),
        Shape::Text => Content::Text(fields.text_of("text")?),
        Shape::Preference => fields.preference()?,
        Shape::Unpaired => {
            fields.label()?;
            Content::PromptCompletion(fields.turns("prompt")?, fields.turns("completion")?)
        }
        Shape::Prompts => fields.prompt()?,
        Shape::Instructions => Content::Instructions(fields.optional("harmful")?, fields.optional("harmless")?),
        Shape::Contrast => Content::Contrast(fields.some_turns("positive")?, fields.some_turns("negative")?),
    };
    let tools = object.remove("tools").filter(|tools| !tools.is_null());
    let variables = match object.remove("chat_template_kwargs") {
        Some(Value::Object(variables)) => Some(variables),
        _ => None,
    };
    Ok(Record { content, tools, variables, columns: numbers(&object) })
}

fn answered(messages: &[Message]) -> Result<(), LineFault> {
    if messages.iter().any(|message| message.role == "assistant") { Ok(()) } else { Err(LineFault::NoAnswer) }
}

/// Fields that are numbers; JSON numbers are wider than `f32`, which is what a tensor holds.
fn numbers(object: &Map<String, Value>) -> BTreeMap<String, f32> {
    let number = |value: &Value| match value {
        Value::Bool(truth) => Some(f32::from(u8::from(*truth))),
        Value::Number(number) => number.as_f64().map(|number| number as f32),
        _ => None,
    };
    object.iter().filter_map(|(name, value)| Some((name.clone(), number(value)?))).collect()
}

#[cfg(test)]
mod tests;
