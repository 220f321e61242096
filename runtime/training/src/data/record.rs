//! What one line of data is: its shape, its fields, and what is wrong with it if it is wrong.
//!
//! Tokens are left to `encode`; which shapes a method takes comes from its manifest.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};
use tunebox_model::chat::Message;

use super::fault::LineFault;
use super::locate::{Step, column};

/// The shapes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// A conversation.
    Messages,
    /// A prompt and what to answer.
    PromptCompletion,
    /// Text without roles.
    Text,
    /// A prompt with a better and a worse answer.
    Preference,
    /// A prompt with an answer and whether it is a good one.
    Unpaired,
    /// A prompt that the model answers itself.
    Prompts,
    /// An instruction that a model refuses, or one that it follows, or both.
    Instructions,
    /// Two texts that differ in one respect.
    Contrast,
}

// `Unpaired` comes before `PromptCompletion`, whose fields it has as well; all of them have those of `Prompts`.
const SHAPES: [Shape; 8] = [
    Shape::Messages,
    Shape::Unpaired,
    Shape::PromptCompletion,
    Shape::Text,
    Shape::Preference,
    Shape::Instructions,
    Shape::Contrast,
    Shape::Prompts,
];

impl Shape {
    /// Every shape; where a record has the fields of several, the first one counts.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &SHAPES
    }

    /// The shapes that stand for what a manifest calls its shape of example; `None` for an unknown word.
    #[must_use]
    pub fn of_method(word: &str) -> Option<Vec<Self>> {
        match word {
            "supervised" => Some(vec![Self::Messages, Self::PromptCompletion, Self::Text]),
            "preference" => Some(vec![Self::Preference]),
            "unpaired" => Some(vec![Self::Unpaired]),
            "prompts" => Some(vec![Self::Prompts]),
            "instructions" => Some(vec![Self::Instructions]),
            "contrast" => Some(vec![Self::Contrast]),
            _ => None,
        }
    }

    /// The names of the sides of a batch made of such records.
    #[must_use]
    pub fn sides(self) -> &'static [&'static str] {
        match self {
            Self::Messages | Self::PromptCompletion | Self::Text => &["example"],
            Self::Preference => &["chosen", "rejected"],
            Self::Unpaired => &["example", "mismatched"],
            Self::Prompts => &["prompt"],
            Self::Instructions => &["harmful", "harmless"],
            Self::Contrast => &["positive", "negative"],
        }
    }

    /// Its fields, in words.
    #[must_use]
    pub fn fields(self) -> &'static str {
        match self {
            Self::Messages => "`messages`",
            Self::PromptCompletion => "`prompt` and `completion`",
            Self::Text => "`text`",
            Self::Preference => "`prompt`, `chosen` and `rejected`",
            Self::Unpaired => "`prompt`, `completion` and `label`",
            Self::Prompts => "`prompt`",
            Self::Instructions => "`harmful` or `harmless`, or both",
            Self::Contrast => "`positive` and `negative`",
        }
    }

    fn required(self) -> &'static [&'static str] {
        match self {
            Self::Messages => &["messages"],
            Self::PromptCompletion => &["prompt", "completion"],
            Self::Text => &["text"],
            Self::Preference => &["chosen", "rejected"],
            Self::Unpaired => &["prompt", "completion", "label"],
            Self::Prompts => &["prompt"],
            Self::Instructions => &["harmful", "harmless"],
            Self::Contrast => &["positive", "negative"],
        }
    }

    fn complete(self, object: &Map<String, Value>) -> bool {
        let there = |field: &&str| object.contains_key(*field);
        // An instruction stands alone; every other shape needs all its fields.
        if self == Self::Instructions { self.begun(object) } else { self.required().iter().all(there) }
    }

    fn begun(self, object: &Map<String, Value>) -> bool {
        self.required().iter().any(|field| object.contains_key(*field))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Messages => "a conversation",
            Self::PromptCompletion => "a prompt with its completion",
            Self::Text => "plain text",
            Self::Preference => "a pair of answers",
            Self::Unpaired => "an answer with its label",
            Self::Prompts => "a prompt to answer",
            Self::Instructions => "an instruction",
            Self::Contrast => "two contrasting texts",
        })
    }
}

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

/// Which of the shapes wanted an object has.
pub(super) fn shape_of(text: &str, object: &Map<String, Value>, wanted: &[Shape]) -> Result<Shape, Wrong> {
    let complete = |shapes: &[Shape]| shapes.iter().copied().find(|shape| shape.complete(object));
    if let Some(shape) = complete(wanted) {
        return Ok(shape);
    }
    let start = column(text, &[]);
    // Half a record of another shape is a prompt as well, which says nothing.
    if let Some(found) = complete(&SHAPES).filter(|found| *found != Shape::Prompts) {
        return Err((LineFault::Unwanted { found, wanted: wanted.to_vec() }, start));
    }
    let begun = wanted.iter().copied().find(|shape| shape.begun(object) || wanted.len() == 1);
    let missing = begun.and_then(|shape| {
        let field = shape.required().iter().find(|field| !object.contains_key(**field))?;
        Some(LineFault::Missing { field, shape })
    });
    let unknown = || LineFault::Unknown { fields: object.keys().cloned().collect(), wanted: wanted.to_vec() };
    Err((missing.unwrap_or_else(unknown), start))
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

struct Fields<'a> {
    text: &'a str,
    object: &'a mut Map<String, Value>,
}

impl Fields<'_> {
    fn turns(&mut self, name: &'static str) -> Result<Turns, Wrong> {
        match self.object.get(name) {
            Some(Value::Array(_)) => self.messages(name).map(Turns::Messages),
            Some(Value::String(_)) => match self.object.remove(name) {
                Some(Value::String(text)) => Ok(Turns::Text(text)),
                _ => Err(self.wrong_type(name, "gone", "text")),
            },
            other => {
                let found = other.map_or("missing", kind);
                Err(self.wrong_type(name, found, "text or a list of messages"))
            }
        }
    }

    fn text_of(&mut self, name: &'static str) -> Result<String, Wrong> {
        match self.object.remove(name) {
            Some(Value::String(text)) if text.is_empty() => {
                Err((LineFault::Blank { field: name.into() }, self.column(name)))
            }
            Some(Value::String(text)) => Ok(text),
            other => Err(self.wrong_type(name, other.as_ref().map_or("missing", kind), "text")),
        }
    }

    fn messages(&mut self, name: &'static str) -> Result<Vec<Message>, Wrong> {
        let items = match self.object.remove(name) {
            Some(Value::Array(items)) if items.is_empty() => {
                return Err((LineFault::Blank { field: name.into() }, self.column(name)));
            }
            Some(Value::Array(items)) => items,
            other => return Err(self.wrong_type(name, other.as_ref().map_or("missing", kind), "a list of messages")),
        };
        items.into_iter().enumerate().map(|(index, item)| self.message(name, index, item)).collect()
    }

    fn message(&self, list: &str, index: usize, item: Value) -> Result<Message, Wrong> {
        let wrong = |name: Option<&str>, found, wanted| {
            let mut path = vec![Step::Field(list), Step::Item(index)];
            path.extend(name.map(Step::Field));
            let field = name.map_or(format!("{list}[{index}]"), |name| format!("{list}[{index}].{name}"));
            (LineFault::Type { field, found, wanted }, column(self.text, &path))
        };
        let Some(object) = item.as_object() else {
            return Err(wrong(None, kind(&item), "an object with `role` and `content`"));
        };
        match object.get("role") {
            Some(Value::String(role)) if !role.is_empty() => {}
            other => return Err(wrong(Some("role"), other.map_or("missing", kind), "text such as `user`")),
        }
        match object.get("content") {
            Some(Value::String(_) | Value::Array(_)) => {}
            None | Some(Value::Null) if object.contains_key("tool_calls") => {}
            other => return Err(wrong(Some("content"), other.map_or("missing", kind), "text")),
        }
        serde_json::from_value(item).map_err(|_| wrong(Some("content"), "a list", "a list of text parts"))
    }

    fn preference(&mut self) -> Result<Content, Wrong> {
        let (chosen, rejected) = (self.turns("chosen")?, self.turns("rejected")?);
        if self.object.contains_key("prompt") {
            return Ok(Content::Preference(self.turns("prompt")?, chosen, rejected));
        }
        match (chosen, rejected) {
            (Turns::Messages(mut chosen), Turns::Messages(mut rejected)) => {
                let shared = chosen.iter().zip(&rejected).take_while(|(one, other)| one == other).count();
                let answers = chosen.split_off(shared);
                let worse = rejected.split_off(shared);
                Ok(Content::Preference(Turns::Messages(chosen), Turns::Messages(answers), Turns::Messages(worse)))
            }
            _ => Err((LineFault::Missing { field: "prompt", shape: Shape::Preference }, column(self.text, &[]))),
        }
    }

    /// A prompt with what verifiers may know. The answer leaves the numbers that a method sees.
    fn prompt(&mut self) -> Result<Content, Wrong> {
        let prompt = self.turns("prompt")?;
        match &prompt {
            Turns::Text(text) if text.is_empty() => {
                return Err((LineFault::Blank { field: "prompt".into() }, self.column("prompt")));
            }
            _ => {}
        }
        let further =
            self.object.iter().filter(|(name, value)| !TEMPLATE_FIELDS.contains(&name.as_str()) && !value.is_null());
        let fields = further.map(|(name, value)| (name.clone(), text_of(value))).collect();
        self.object.remove("answer");
        Ok(Content::Prompt(prompt, fields))
    }

    /// Turns, if the record has them.
    fn optional(&mut self, name: &'static str) -> Result<Option<Turns>, Wrong> {
        if self.object.contains_key(name) { self.some_turns(name).map(Some) } else { Ok(None) }
    }

    /// Turns that say something.
    fn some_turns(&mut self, name: &'static str) -> Result<Turns, Wrong> {
        let column = self.column(name);
        match self.turns(name)? {
            Turns::Text(text) if text.is_empty() => Err((LineFault::Blank { field: name.into() }, column)),
            turns => Ok(turns),
        }
    }

    /// Whether the answer is a good one; it stays where the numbers are read.
    fn label(&self) -> Result<(), Wrong> {
        let fine = match self.object.get("label") {
            Some(Value::Bool(_)) => true,
            Some(Value::Number(number)) => number.as_f64().is_some_and(|number| number == 0.0 || number == 1.0),
            _ => false,
        };
        let found = self.object.get("label").map_or("missing", kind);
        if fine { Ok(()) } else { Err(self.wrong_type("label", found, "true or false (or 1 or 0)")) }
    }

    fn column(&self, name: &str) -> usize {
        column(self.text, &[Step::Field(name)])
    }

    fn wrong_type(&self, name: &str, found: &'static str, wanted: &'static str) -> Wrong {
        (LineFault::Type { field: name.to_owned(), found, wanted }, self.column(name))
    }
}

/// Fields that the chat template takes.
const TEMPLATE_FIELDS: [&str; 2] = ["tools", "chat_template_kwargs"];

/// Text as it stands, everything else as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
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

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(text) if text.is_empty() => "empty text",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, method: &str) -> Result<Record, Wrong> {
        let wanted = Shape::of_method(method).unwrap();
        let (text, object) = object(text.as_bytes())?;
        let shape = shape_of(text, &object, &wanted)?;
        record(text, object, shape)
    }

    #[test]
    fn each_supervised_shape_is_told_from_its_fields() {
        let text = read(r#"{"text": "once"}"#, "supervised").unwrap();
        let pair = read(r#"{"prompt": "2+2", "completion": "4", "weight": 0.5, "good": true}"#, "supervised").unwrap();
        let chat = read(r#"{"messages": [{"role": "assistant", "content": "hi"}]}"#, "supervised").unwrap();

        assert_eq!(text.content, Content::Text("once".into()));
        assert_eq!(pair.content, Content::PromptCompletion(Turns::Text("2+2".into()), Turns::Text("4".into())));
        assert_eq!(pair.columns, BTreeMap::from([("weight".into(), 0.5), ("good".into(), 1.0)]));
        assert!(matches!(chat.content, Content::Messages(messages) if messages[0].role == "assistant"));
    }

    #[test]
    fn a_line_that_is_not_json_names_the_column_in_characters() {
        let (fault, column) = read(r#"{"text": "é" "b"}"#, "supervised").unwrap_err();

        assert!(matches!(fault, LineFault::NotJson(_)));
        assert_eq!(column, 14);
    }

    #[test]
    fn bytes_that_are_not_text_are_found() {
        assert_eq!(object(b"{\"text\": \"\xFF\"}").unwrap_err(), (LineFault::NotText, 11));
    }

    #[test]
    fn half_a_record_names_the_missing_half() {
        let (fault, _) = read(r#"{"prompt": "2+2"}"#, "supervised").unwrap_err();

        assert_eq!(fault, LineFault::Missing { field: "completion", shape: Shape::PromptCompletion });
    }

    #[test]
    fn a_pair_is_not_taken_for_a_prompt_that_lost_its_completion() {
        let (fault, _) = read(r#"{"prompt": "a", "chosen": "b", "rejected": "c"}"#, "supervised").unwrap_err();

        assert!(matches!(fault, LineFault::Unwanted { found: Shape::Preference, .. }));
    }

    #[test]
    fn an_answer_with_its_label_is_read_with_the_label_as_a_number() {
        let line = |label: &str| format!(r#"{{"prompt": "2+2", "completion": "5", "label": {label}}}"#);
        for (label, number) in [("false", 0.0), ("true", 1.0), ("0", 0.0), ("1.0", 1.0)] {
            assert_eq!(read(&line(label), "unpaired").unwrap().columns["label"], number);
        }
        let (fault, column) = read(&line("0.5"), "unpaired").unwrap_err();
        assert_eq!(fault.to_string(), "`label` is a number, true or false (or 1 or 0) is wanted");
        assert_eq!(line("0.5").chars().nth(column - 1), Some('0'));
        assert!(matches!(read(&line("\"good\""), "unpaired"), Err((LineFault::Type { .. }, _))));
    }

    #[test]
    fn a_labelled_answer_is_named_as_such_where_it_is_not_wanted_and_lacking_where_it_is() {
        let line = r#"{"prompt": "2+2", "completion": "5"}"#;
        let (fault, _) = read(line, "unpaired").unwrap_err();
        assert!(matches!(fault, LineFault::Unwanted { found: Shape::PromptCompletion, .. }), "{fault}");
        let (fault, _) = read(r#"{"prompt": "2+2", "completion": "5", "label": true}"#, "preference").unwrap_err();
        assert!(matches!(fault, LineFault::Unwanted { found: Shape::Unpaired, .. }), "{fault}");
    }

    #[test]
    fn a_prompt_keeps_its_answer_from_the_numbers_that_a_method_sees() {
        let line = r#"{"prompt": "2+2", "answer": 4, "level": 2, "unit": "cm", "list": [1, 2], "none": null}"#;
        let found = read(line, "prompts").unwrap();
        let Content::Prompt(prompt, fields) = found.content else { panic!("a prompt") };

        assert_eq!(prompt, Turns::Text("2+2".into()));
        assert_eq!(found.columns, BTreeMap::from([("level".into(), 2.0)]));
        let fields: Vec<_> = fields.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(fields, [("answer", "4"), ("level", "2"), ("list", "[1,2]"), ("unit", "cm")]);
    }

    #[test]
    fn a_record_without_a_prompt_is_told_so() {
        let (fault, _) = read(r#"{"question": "2+2", "answer": "4"}"#, "prompts").unwrap_err();
        assert_eq!(fault, LineFault::Missing { field: "prompt", shape: Shape::Prompts });
        let (fault, _) = read(r#"{"prompt": ""}"#, "prompts").unwrap_err();
        assert_eq!(fault, LineFault::Blank { field: "prompt".into() });
    }

    #[test]
    fn an_instruction_stands_alone_or_beside_its_counterpart() {
        let found = read(r#"{"harmful": "steal"}"#, "instructions").unwrap().content;
        assert_eq!(found, Content::Instructions(Some(Turns::Text("steal".into())), None));
        let found = read(r#"{"harmful": "steal", "harmless": "bake"}"#, "instructions").unwrap().content;
        assert!(matches!(found, Content::Instructions(Some(_), Some(_))));
        let (fault, _) = read(r#"{"prompt": "bake"}"#, "instructions").unwrap_err();
        assert!(matches!(fault, LineFault::Missing { shape: Shape::Instructions, .. }), "{fault}");
        let (fault, _) = read(r#"{"harmless": ""}"#, "instructions").unwrap_err();
        assert_eq!(fault, LineFault::Blank { field: "harmless".into() });
    }

    #[test]
    fn a_contrast_needs_both_texts() {
        let found = read(r#"{"positive": "please", "negative": "no"}"#, "contrast").unwrap().content;
        assert_eq!(found, Content::Contrast(Turns::Text("please".into()), Turns::Text("no".into())));
        let (fault, _) = read(r#"{"positive": "please"}"#, "contrast").unwrap_err();
        assert_eq!(fault, LineFault::Missing { field: "negative", shape: Shape::Contrast });
        let (fault, _) = read(r#"{"harmful": "steal"}"#, "contrast").unwrap_err();
        assert!(matches!(fault, LineFault::Unwanted { found: Shape::Instructions, .. }), "{fault}");
    }

    #[test]
    fn a_message_without_a_role_is_pointed_at() {
        let line = r#"{"messages": [{"role": "user", "content": "a"}, {"role": 3, "content": "b"}]}"#;
        let (fault, column) = read(line, "supervised").unwrap_err();

        assert_eq!(fault.to_string(), "`messages[1].role` is a number, text such as `user` is wanted");
        assert_eq!(line.chars().nth(column - 1), Some('3'));
    }

    #[test]
    fn a_conversation_without_an_answer_is_refused() {
        let (fault, _) = read(r#"{"messages": [{"role": "user", "content": "a"}]}"#, "supervised").unwrap_err();

        assert_eq!(fault, LineFault::NoAnswer);
    }

    #[test]
    fn two_conversations_with_one_beginning_share_it_as_the_prompt() {
        let line = r#"{"chosen": [{"role":"user","content":"q"},{"role":"assistant","content":"a"}],
            "rejected": [{"role":"user","content":"q"},{"role":"assistant","content":"b"}]}"#;
        let Content::Preference(Turns::Messages(prompt), Turns::Messages(chosen), _) =
            read(line, "preference").unwrap().content
        else {
            panic!("a preference record of messages");
        };

        assert_eq!((prompt.len(), chosen.len()), (1, 1));
    }
}
