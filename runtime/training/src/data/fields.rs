//! The fields of a record, each as what its shape says that it is.

use serde_json::{Map, Value};
use tunebox_model::chat::Message;

use super::fault::LineFault;
use super::locate::{Step, column};
use super::record::{Content, Turns, Wrong};
use super::shape::{Shape, missing};

/// The fields of a record, taken one by one.
pub(super) struct Fields<'a> {
    pub(super) text: &'a str,
    pub(super) object: &'a mut Map<String, Value>,
}

impl Fields<'_> {
    pub(super) fn turns(&mut self, name: &'static str) -> Result<Turns, Wrong> {
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

    pub(super) fn text_of(&mut self, name: &'static str) -> Result<String, Wrong> {
        match self.object.remove(name) {
            Some(Value::String(text)) if text.is_empty() => {
                Err((LineFault::Blank { field: name.into() }, self.column(name)))
            }
            Some(Value::String(text)) => Ok(text),
            other => Err(self.wrong_type(name, other.as_ref().map_or("missing", kind), "text")),
        }
    }

    pub(super) fn messages(&mut self, name: &'static str) -> Result<Vec<Message>, Wrong> {
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

    pub(super) fn preference(&mut self) -> Result<Content, Wrong> {
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
            _ => Err(missing(self.text, self.object, "prompt", Shape::Preference)),
        }
    }

    /// A prompt with what verifiers may know. The answer leaves the numbers that a method sees.
    pub(super) fn prompt(&mut self) -> Result<Content, Wrong> {
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
    pub(super) fn optional(&mut self, name: &'static str) -> Result<Option<Turns>, Wrong> {
        if self.object.contains_key(name) { self.some_turns(name).map(Some) } else { Ok(None) }
    }

    /// Turns that say something.
    pub(super) fn some_turns(&mut self, name: &'static str) -> Result<Turns, Wrong> {
        let column = self.column(name);
        match self.turns(name)? {
            Turns::Text(text) if text.is_empty() => Err((LineFault::Blank { field: name.into() }, column)),
            turns => Ok(turns),
        }
    }

    /// Whether the answer is a good one; it stays where the numbers are read.
    pub(super) fn label(&self) -> Result<(), Wrong> {
        let fine = match self.object.get("label") {
            Some(Value::Bool(_)) => true,
            Some(Value::Number(number)) => number.as_f64().is_some_and(|number| number == 0.0 || number == 1.0),
            _ => false,
        };
        let found = self.object.get("label").map_or("missing", kind);
        if fine { Ok(()) } else { Err(self.wrong_type("label", found, "true or false (or 1 or 0)")) }
    }

    pub(super) fn column(&self, name: &str) -> usize {
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

/// What a value is, in words.
pub(super) fn kind(value: &Value) -> &'static str {
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
