//! A record: the content of one line of training data.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tunebox_model::chat::Message;

/// Text, or messages that the chat template turns into text.
#[derive(Debug, Clone, PartialEq)]
pub enum Turns {
    /// Text that is tokenized as it is.
    Text(String),
    /// Messages for the chat template.
    Messages(Vec<Message>),
}

/// The content of a record, by shape.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A conversation.
    Messages(Vec<Message>),
    /// A prompt and its completion.
    PromptCompletion(Turns, Turns),
    /// Text without roles.
    Text(String),
    /// A prompt, the better answer, the worse answer.
    Preference(Turns, Turns, Turns),
    /// A prompt, and every further field as text for the verifiers.
    Prompt(Turns, BTreeMap<String, String>),
    /// A harmful and a harmless instruction; at least one of them.
    Instructions(Option<Turns>, Option<Turns>),
    /// The positive and the negative text, or conversation.
    Contrast(Turns, Turns),
}

/// One record: its content, variables of the chat template, and numbers for the method.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The content.
    pub content: Content,
    /// The tools that the model may call: the field `tools`.
    pub tools: Option<Value>,
    /// Further variables of the template: the field `chat_template_kwargs`.
    pub variables: Option<Map<String, Value>>,
    /// Every further field that is a number or a boolean (as 0 or 1).
    pub columns: BTreeMap<String, f32>,
}
