//! Messages, and conversations with the tools and variables that a template may use.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The fields of a message that may hold its reasoning. Templates read the first, some the second.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// The fields of a message that say whether it is learned, as in data of axolotl.
pub const LEARNED_FLAGS: [&str; 2] = ["train", "training"];

/// One message of a conversation: its role and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, or another role that the template knows.
    pub role: String,
    /// The text. A list of text parts is joined to one text; null or a missing content is an empty text.
    pub content: String,
    /// Everything else that was in the record (`tool_calls`, `name`, …), kept for the template.
    pub fields: Map<String, Value>,
    /// Whether the content was null or missing, so that the template sees none.
    absent: bool,
}

impl Message {
    /// A message with only a role and a text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), fields: Map::new(), absent: false }
    }

    /// Whether the message is an answer of the model: its role is `assistant` or `model`.
    pub fn is_answer(&self) -> bool {
        matches!(self.role.as_str(), "assistant" | "model")
    }

    /// Whether the message is an answer to learn from: one that no field leaves out ([`left_out_by`](Self::left_out_by)).
    pub(super) fn is_learned(&self) -> bool {
        self.is_answer() && self.left_out_by().is_none()
    }

    /// Returns the name of the field that leaves an answer out of what is learned, if one does: `weight` of 0, as in
    /// OpenAI's format for fine-tuning, or one of [`LEARNED_FLAGS`] that is false. `None` for other messages.
    #[must_use]
    pub fn left_out_by(&self) -> Option<&'static str> {
        let is_false = |name: &&&str| self.fields.get(**name) == Some(&Value::Bool(false));
        let weighs_nothing = self.fields.get("weight").and_then(Value::as_f64) == Some(0.0);
        let field = if weighs_nothing { Some("weight") } else { LEARNED_FLAGS.iter().find(is_false).copied() };
        field.filter(|_| self.is_answer())
    }

    /// The fields that a template sees: role, content unless it was null or missing, and all other fields except null
    /// ones. The first of `reasoning_content`, `thinking` and `reasoning` that is present and not null becomes
    /// `reasoning_content` and, unless there is a `thinking`, also `thinking`.
    pub(super) fn template_fields(&self) -> Map<String, Value> {
        let mut seen = Map::new();
        seen.insert("role".into(), self.role.clone().into());
        if !self.absent {
            seen.insert("content".into(), self.content.clone().into());
        }
        let given = self.fields.iter().filter(|(_, value)| !value.is_null());
        seen.extend(given.map(|(name, value)| (name.clone(), value.clone())));

        if let Some(reasoning) = REASONING.iter().find_map(|name| seen.get(*name).cloned()) {
            seen.entry("thinking").or_insert_with(|| reasoning.clone());
            seen.insert("reasoning_content".into(), reasoning);
        }
        seen
    }
}

impl<'de> Deserialize<'de> for Message {
    /// Reads a message from an object; keys other than `role` and `content` become `fields`. Errors: `role` is missing
    /// or not a string, `content` is missing or null and there are no other fields, or `content` is neither a string
    /// nor a list of text parts.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        let role = match fields.remove("role") {
            Some(Value::String(role)) => role,
            Some(_) => return Err(D::Error::custom("`role` is not a text")),
            None => return Err(D::Error::custom("`role` is missing")),
        };
        let content = fields.remove("content").unwrap_or(Value::Null);
        let absent = content.is_null();
        if absent && fields.is_empty() {
            return Err(D::Error::custom("`content` is missing"));
        }
        let content = join_text_parts(content).map_err(D::Error::custom)?;
        Ok(Self { role, content, fields, absent })
    }
}

/// Converts a `content` to text: a string unchanged, null to an empty text, a list of text parts to their concatenation
/// without separators. Errors: another type, or a part that is not text.
fn join_text_parts(content: Value) -> Result<String, String> {
    match content {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text),
        Value::Array(parts) => parts.into_iter().map(text_of_part).collect(),
        _ => Err("`content` is neither a text nor a list of text parts".into()),
    }
}

/// The text of one part of a `content`: a string, or an object with a string `text`. Errors: any other part, such as an
/// image.
fn text_of_part(part: Value) -> Result<String, String> {
    match part {
        Value::String(text) => Ok(text),
        Value::Object(mut fields) => match fields.remove("text") {
            Some(Value::String(text)) => Ok(text),
            _ => {
                let kind = fields.get("type").and_then(Value::as_str).unwrap_or("unnamed");
                Err(format!("a part of `content` is of type `{kind}`; only text can be trained on"))
            }
        },
        _ => Err("a part of `content` is not a text".into()),
    }
}

/// A conversation of a record: its messages, with the tools and variables for the template.
#[derive(Debug, Clone, Copy)]
pub struct Conversation<'a> {
    /// The messages, in order.
    pub messages: &'a [Message],
    /// The tools that the model may call, as a JSON list.
    pub tools: Option<&'a Value>,
    /// Further variables of the template (`enable_thinking`, …).
    pub variables: Option<&'a Map<String, Value>>,
}

impl<'a> Conversation<'a> {
    /// A conversation without tools and further variables.
    pub fn new(messages: &'a [Message]) -> Self {
        Self { messages, tools: None, variables: None }
    }

    /// The conversation with only its first `turns` messages (all, if there are fewer), and all its tools and
    /// variables. Copies no message.
    pub(super) fn first(&self, turns: usize) -> Self {
        Self { messages: &self.messages[..turns.min(self.messages.len())], ..*self }
    }
}
