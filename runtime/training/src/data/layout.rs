//! Layouts of other tools, recognized by their fields and converted to the fields of a shape, and `data.map`.
//!
//! The first record of a file decides: its layout holds for all of the file.

mod columns;
mod conversation;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::nearest::nearest;

use super::fault::{self, Fault};
use super::shape::Shape;
use columns::{CONVERSATIONS, find_columns, is_native};
use conversation::{assistant, read_conversation, read_history, wrap_tools};

/// The fields that `data.map` may give.
const FIELDS: [&str; 14] = [
    "messages",
    "prompt",
    "completion",
    "text",
    "chosen",
    "rejected",
    "label",
    "answer",
    "harmful",
    "harmless",
    "positive",
    "negative",
    "tools",
    "chat_template_kwargs",
];

/// Names of columns by the field that they are read as.
pub type FieldMap = BTreeMap<String, String>;

/// What the layout of Alpaca is known as.
const ALPACA: &str = "Alpaca";

/// The column of the layout of Alpaca with the turns before the prompt, as in LLaMA-Factory, where their answers are
/// learned as well.
const HISTORY: &str = "history";

/// What the layout of ShareGPT is known as.
const SHARE_GPT: &str = "ShareGPT";

/// The columns of a pair of answers in OpenAI's format: an object with the messages of the prompt and the tools, and
/// the messages of the better and the worse answer.
const OPEN_AI_PAIR: [&str; 3] = ["input", "preferred_output", "non_preferred_output"];

/// The layout of a file, and how it is converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    name: &'static str,
    shape: Shape,
    /// The field of the shape and the column that it is read from.
    columns: Vec<(&'static str, &'static str)>,
    /// The column with further text of the prompt.
    context: Option<&'static str>,
    /// Whether texts become messages, since the model has a chat template.
    has_template: bool,
}

/// Checks that every field of a map is one of a record. Returns the first that is not, with the error about it.
///
/// # Errors
/// A field that no record has.
pub fn check_fields(map: &FieldMap) -> Result<(), (String, Fault)> {
    let Some(field) = map.keys().find(|field| !FIELDS.contains(&field.as_str())) else { return Ok(()) };
    let hint = match nearest(field, FIELDS) {
        Some(similar) => format!("did you mean `{similar}`? the name in the file comes after `=`"),
        None => format!("write a field of a record before `=`, one of {}", FIELDS.join(", ")),
    };
    let problem = Explanation::new("config", format!("`{field}` is no field of a record")).with_hint(hint);
    Err((field.clone(), problem.into()))
}

/// How the objects of a file become records.
#[derive(Debug, Clone, Default)]
pub(super) struct Conversion {
    /// The columns that `data.map` names.
    pub(super) map: FieldMap,
    /// The layout of the file; `None` if its records have the fields of a shape.
    pub(super) layout: Option<Layout>,
    /// Whether all values of the file are text.
    pub(super) is_untyped: bool,
}

impl Conversion {
    /// Renames the columns of `data.map`, then converts the layout. Returns the columns by the fields that they became,
    /// for messages.
    ///
    /// # Errors
    /// A record without a column that is needed, and a message of an unknown speaker.
    pub(super) fn apply(&self, object: &mut Map<String, Value>) -> Result<FieldMap, Fault> {
        let mut columns = self.rename(object)?;
        if let Some(layout) = &self.layout {
            columns.extend(layout.convert(object)?);
        }
        Ok(columns)
    }

    /// Renames the columns of `data.map`, and returns the map. A field that already has one of the new names is
    /// replaced. Fails, and changes nothing, if the object lacks one of the columns.
    fn rename(&self, object: &mut Map<String, Value>) -> Result<FieldMap, Fault> {
        let mut taken = Vec::new();
        for (field, column) in &self.map {
            let value = object.get(column).ok_or_else(|| {
                let others: Vec<String> = object.keys().map(|name| format!("`{name}`")).collect();
                Explanation::new("data", format!("`{column}` is missing"))
                    .with_why(format!("`data.map` reads `{field}` from it; the record has {}", others.join(", ")))
            })?;
            taken.push((field.clone(), value.clone()));
        }
        self.map.values().for_each(|column| drop(object.shift_remove(column)));
        object.extend(taken);
        Ok(self.map.clone())
    }
}

impl Layout {
    /// Recognizes the layout of an object that is to become one of the shapes `wanted`. `None` if it has the fields of
    /// such a shape already, or of no known layout. With `has_template`, texts will be converted to messages.
    pub(super) fn find(object: &Map<String, Value>, wanted: &[Shape], has_template: bool) -> Option<Self> {
        // Half a record of most layouts is a complete `Prompts`.
        let native = wanted.iter().find(|shape| is_native(object, **shape));
        if native.is_some_and(|shape| *shape != Shape::Prompts || wanted.len() == 1) {
            return None;
        }
        // A pair of answers may stand beside a conversation, which is its prompt.
        let pairs = wanted.iter().filter(|shape| **shape == Shape::Preference);
        pairs.chain(wanted).find_map(|shape| find_columns(object, *shape, has_template))
    }

    /// The shape that the records are converted to.
    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Describes the conversion: the columns that are read and the fields that they become, as in `Alpaca layout
    /// (instruction, input, output) read as prompt and completion`.
    pub(super) fn describe(&self) -> String {
        let mut columns: Vec<&str> = self.columns.iter().map(|(_, column)| *column).collect();
        if let Some(context) = self.context {
            columns.insert(1, context);
        }
        let mut fields: Vec<&str> = self.columns.iter().map(|(field, _)| *field).collect();
        if self.has_history() {
            columns.insert(columns.len() - 1, HISTORY);
            fields = vec!["messages"];
        }
        if self.is_labeled_conversation() {
            fields = vec!["prompt", "completion", "label"];
        }
        let columns = columns.join(", ");
        let layout = if self.name.is_empty() { columns } else { format!("{} layout ({columns})", self.name) };
        let is_pair = self.columns.iter().any(|(_, column)| *column == OPEN_AI_PAIR[1]);
        let has_texts = self.shape != Shape::Messages && self.conversation().is_none() && !is_pair;
        let turns = if self.has_template && has_texts { ", as turns of a chat" } else { "" };
        format!("{layout} read as {}{turns}", join_words(&fields))
    }

    /// The column with a conversation that becomes the field of this name; `None` if all columns are texts.
    fn conversation(&self) -> Option<(&'static str, &'static str)> {
        self.columns.iter().copied().find(|(_, column)| CONVERSATIONS.contains(column))
    }

    /// Whether a conversation becomes a prompt and its last message a completion with a label.
    fn is_labeled_conversation(&self) -> bool {
        self.shape == Shape::Unpaired && self.conversation().is_some()
    }

    /// Whether a question, its answer and the turns before them become one conversation.
    fn has_history(&self) -> bool {
        self.shape == Shape::Messages && self.columns.len() > 1
    }

    /// Replaces the columns of this layout in an object by the fields of the shape. With a chat template, prompts and
    /// answers of text become messages; the context, the text of `system` and the turns of `history` become part of the
    /// prompt. A record with turns always becomes messages. Returns the columns by the fields that they became. Fails
    /// if a column is missing, a conversation or the turns are not readable, or if the first record of the file has no
    /// `history` and the answers of this record's would not be learned.
    fn convert(&self, object: &mut Map<String, Value>) -> Result<FieldMap, Fault> {
        for (_, column) in &self.columns {
            if !object.contains_key(*column) {
                let names: Vec<String> = self.columns.iter().map(|(_, column)| format!("`{column}`")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let problem = Explanation::new("data", format!("`{column}` is missing"));
                return Err(problem.with_why(format!("every record of this file needs {}", join_words(&names))).into());
            }
        }
        let system = object.get("system").and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let context = self.context.and_then(|name| object.shift_remove(name));
        let history = object.get(HISTORY).filter(|_| self.name == ALPACA).cloned().unwrap_or_default();
        let history = read_history(HISTORY, history)?;
        if self.shape == Shape::PromptCompletion && self.has_template && !history.is_empty() {
            let problem = Explanation::new("data", "the record has a `history`, the first record of the file has none");
            let hint = "give every record a `history`; `[]` is one without turns";
            return Err(problem.with_hint(hint).into());
        }
        let is_chat = self.has_template || self.has_history() || !history.is_empty();
        if self.name == SHARE_GPT {
            wrap_tools(object);
        }
        let taken: Vec<Value> = self.columns.iter().filter_map(|(_, column)| object.shift_remove(*column)).collect();
        for ((field, column), value) in self.columns.iter().zip(taken) {
            let value = match (*field, value) {
                ("messages" | "prompt", Value::Array(items)) if CONVERSATIONS.contains(column) => {
                    read_conversation(column, items, system.as_deref())?
                }
                ("prompt", Value::Object(mut input)) if *column == OPEN_AI_PAIR[0] => {
                    object.extend(input.remove_entry("tools"));
                    input.remove("messages").unwrap_or_default()
                }
                ("chosen" | "rejected", message @ Value::Object(_)) => read_conversation(column, vec![message], None)?,
                ("prompt", Value::String(text)) => {
                    let text = add_context(text, context.as_ref());
                    write_prompt(text, system.as_deref(), is_chat.then(|| history.clone()))
                }
                ("completion" | "chosen" | "rejected", Value::String(text))
                    if is_chat || self.conversation().is_some() =>
                {
                    Value::Array(vec![assistant(text)])
                }
                (_, value) => value,
            };
            object.insert((*field).to_owned(), value);
        }
        if self.has_history() {
            self.join_turns(object)?;
        }
        let mut columns: Vec<(&str, &str)> = self.columns.clone();
        if let Some((_, column)) = self.conversation().filter(|_| self.is_labeled_conversation()) {
            split_last_turn(object, column)?;
            columns.extend([("prompt", column), ("completion", column)]);
        }
        Ok(columns.into_iter().map(|(field, column)| (field.to_owned(), column.to_owned())).collect())
    }

    /// Replaces the messages of prompt and completion by one conversation, `messages`. Fails if one of them is no list.
    fn join_turns(&self, object: &mut Map<String, Value>) -> Result<(), Fault> {
        let mut turns = Vec::new();
        for (field, column) in &self.columns {
            match object.shift_remove(*field) {
                Some(Value::Array(messages)) => turns.extend(messages),
                other => return Err(fault::wrong_type(column, fault::describe_type(other.as_ref()), "text")),
            }
        }
        object.insert("messages".into(), turns.into());
        Ok(())
    }
}

/// Replaces the field `messages` by `completion`, its last message, and `prompt`, those before it. Fails if the last
/// message is no answer; `column` is the name of the conversation in the file.
fn split_last_turn(object: &mut Map<String, Value>, column: &str) -> Result<(), Fault> {
    let mut turns = object.shift_remove("messages").unwrap_or_default();
    let last = turns.as_array_mut().and_then(Vec::pop).filter(|last| last["role"] == "assistant");
    let Some(last) = last else {
        let problem = Explanation::new("data", format!("the last message of `{column}` is no answer of the assistant"));
        return Err(problem.with_why("the label is that of the last answer").into());
    };
    object.insert("prompt".into(), turns);
    object.insert("completion".into(), vec![last].into());
    Ok(())
}

/// Adds the text of its context to an instruction, after a blank line. Leaves out a context that is empty or no text.
fn add_context(text: String, context: Option<&Value>) -> String {
    match context.and_then(Value::as_str).filter(|context| !context.is_empty()) {
        Some(context) => format!("{text}\n\n{context}"),
        None => text,
    }
}

/// Joins the text for the system and an instruction into a prompt: messages, with the turns of `history` between them,
/// or without `history` texts with blank lines between them and before the answer.
fn write_prompt(text: String, system: Option<&str>, history: Option<Vec<Value>>) -> Value {
    let Some(history) = history else {
        let system = system.map_or_else(String::new, |system| format!("{system}\n\n"));
        return format!("{system}{text}\n\n").into();
    };
    let system = system.map(|system| json!({ "role": "system", "content": system }));
    system.into_iter().chain(history).chain([json!({ "role": "user", "content": text })]).collect()
}

/// Joins words as in a sentence: `a, b and c`; empty without words.
fn join_words(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests;
