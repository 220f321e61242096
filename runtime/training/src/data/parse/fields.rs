//! The fields of a record, taken from its object one by one with their types checked.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tunebox_foundation::explain::Explanation;
use tunebox_model::chat::{LEARNED_FLAGS, Message};

use super::missing_field;
use crate::data::fault::{self, LocatedFault, describe_type, value_column};
use crate::data::layout::FieldMap;
use crate::data::shape::{Content, Shape, TextOrMessages};

/// Fields for the chat template, which verifiers do not get.
const TEMPLATE_FIELDS: [&str; 2] = ["tools", "chat_template_kwargs"];

/// The fields of a record; those that are taken are removed from the object.
pub(super) struct Fields<'a> {
    /// The text of the record, for locating a fault.
    pub(super) text: &'a str,
    pub(super) object: &'a mut Map<String, Value>,
    /// The columns of the file that became fields of other names.
    pub(super) columns: FieldMap,
    /// Whether all values come from a table of text.
    pub(super) is_untyped: bool,
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
    pub(super) fn numbers(&self) -> BTreeMap<String, f32> {
        let number = |value| self.number(value).map(|number| number as f32);
        self.object.iter().filter_map(|(name, value)| Some((name.clone(), number(value)?))).collect()
    }

    /// The fields that are lists of numbers, by name, with null as NaN. In a table of text, a text that is such a list
    /// as JSON counts as well. Ignores all other fields.
    pub(super) fn number_lists(&self) -> BTreeMap<String, Vec<f32>> {
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
    pub(super) fn take_non_empty(&mut self, name: &str) -> Result<TextOrMessages, LocatedFault> {
        match self.take_text_or_messages(name)? {
            TextOrMessages::Text(text) if text.is_empty() => {
                Err((fault::empty_field(self.column_name(name)), self.column(name)))
            }
            turns => Ok(turns),
        }
    }

    /// Removes the field `name` and returns its value, which must be a non-empty text or a non-empty list of messages;
    /// null is a fault. `None` if there is no such field.
    pub(super) fn take_if_present(&mut self, name: &str) -> Result<Option<TextOrMessages>, LocatedFault> {
        if self.object.contains_key(name) { self.take_non_empty(name).map(Some) } else { Ok(None) }
    }

    /// Removes the field `name`, which must be a non-empty text, and returns the text.
    pub(super) fn take_text(&mut self, name: &str) -> Result<String, LocatedFault> {
        match self.remove(name) {
            Some(Value::String(text)) if text.is_empty() => {
                Err((fault::empty_field(self.column_name(name)), self.column(name)))
            }
            Some(Value::String(text)) => Ok(text),
            other => Err(self.wrong_type(name, other.as_ref(), "text")),
        }
    }

    /// Removes the field `name`, which must be a non-empty list of messages, and returns the messages.
    pub(super) fn take_messages(&mut self, name: &str) -> Result<Vec<Message>, LocatedFault> {
        match self.remove(name) {
            Some(Value::Array(items)) => self.read_messages(name, items),
            other => {
                let wanted = if self.is_untyped { "a list of messages as JSON" } else { "a list of messages" };
                Err(self.wrong_type(name, other.as_ref(), wanted))
            }
        }
    }

    /// Puts the text of the field `system`, if there is one, before the messages as the first, unless they begin with
    /// one of the system.
    pub(super) fn add_system(&self, messages: &mut Vec<Message>) {
        let text = self.object.get("system").and_then(Value::as_str).filter(|text| !text.is_empty());
        let has_own = messages.first().is_some_and(|first| ["system", "developer"].contains(&first.role.as_str()));
        if let Some(text) = text.filter(|_| !has_own) {
            messages.insert(0, Message::new("system", text));
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
    /// its `content` text or a list of text parts, or null or missing if the message has `tool_calls`. The `weight` of
    /// an answer must be 0, which says that the answer is not learned, or 1. A message that is no answer cannot be
    /// marked as learned by `train` or `training`, and none by parts with `training_detail`.
    fn read_message(&self, list: &str, index: usize, item: Value) -> Result<Message, LocatedFault> {
        let list = self.column_name(list);
        let wrong = |name: Option<&str>, found: &str, wanted: &str| {
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
        let is_answer = object.get("role").is_some_and(|role| role == "assistant" || role == "model");
        let weight = object.get("weight").filter(|weight| is_answer && !weight.is_null());
        if let Some(weight) = weight.filter(|weight| ![Some(0.0), Some(1.0)].contains(&weight.as_f64())) {
            return Err(wrong(Some("weight"), &weight.to_string(), "0 or 1"));
        }
        if object.get("training_detail").is_some_and(|parts| !parts.is_null()) {
            return Err(wrong(Some("training_detail"), "a list of parts", "an answer that is learned as a whole"));
        }
        let is_marked = |name: &&&str| object.get(**name) == Some(&Value::Bool(true));
        if let Some(name) = LEARNED_FLAGS.iter().find(is_marked).filter(|_| !is_answer) {
            return Err(wrong(Some(*name), "true for a message that is no answer", "an answer of the assistant"));
        }
        let problem = |error: serde_json::Error| Explanation::new("data", format!("`{list}[{index}]`: {error}"));
        let place = value_column(self.text, &[list, &index.to_string(), "content"]);
        serde_json::from_value(item).map_err(|error| (problem(error).into(), place))
    }

    /// Removes `prompt` and `completion`, each a text (an empty one, too) or a non-empty list of messages, and returns
    /// them.
    pub(super) fn take_pair(&mut self) -> Result<Content, LocatedFault> {
        let (prompt, completion) = (self.take_text_or_messages("prompt")?, self.take_text_or_messages("completion")?);
        self.check_weights("completion", 0, &completion)?;
        Ok(Content::PromptCompletion(prompt, completion))
    }

    /// Fails for an answer in `turns` that a field such as `weight` leaves out: `turns` are learned as a whole. They
    /// were the messages of the field `list` from the index `first` on.
    fn check_weights(&self, list: &str, first: usize, turns: &TextOrMessages) -> Result<(), LocatedFault> {
        let TextOrMessages::Messages(messages) = turns else { return Ok(()) };
        let marked = messages.iter().enumerate().find_map(|(at, message)| Some((first + at, message.left_out_by()?)));
        let Some((index, field)) = marked else { return Ok(()) };
        let (list, value) = (self.column_name(list), if field == "weight" { "0" } else { "false" });
        let problem = Explanation::new(
            "data",
            format!("`{list}[{index}].{field}` is {value}, but `{list}` is learned as a whole"),
        );
        let hint = format!(
            "leave the record out, or give the conversation as `messages`, where answers of `{field}` {value} are not learned"
        );
        Err((problem.with_hint(hint).into(), value_column(self.text, &[list, &index.to_string(), field])))
    }

    /// Removes `tools` and returns it. It must be a list, or such a list as JSON in a text, the only form in which many
    /// data sets can hold tools with different parameters. `None` if it is missing, null or empty.
    pub(super) fn take_tools(&mut self) -> Result<Option<Value>, LocatedFault> {
        match self.remove_structure("tools") {
            Some(Value::Array(items)) => Ok(Some(Value::Array(items)).filter(|tools| tools.get(0).is_some())),
            None => Ok(None),
            other => Err(self.wrong_type("tools", other.as_ref(), "a list of tools, or one as JSON in a text")),
        }
    }

    /// Removes `chat_template_kwargs` and returns it. It must be an object, or one as JSON in a text. `None` if it is
    /// missing, null or an empty text.
    pub(super) fn take_template_variables(&mut self) -> Result<Option<Map<String, Value>>, LocatedFault> {
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
    /// Without `prompt`, the prompt is what both answers begin with, which is cut from them: messages, of which there
    /// may be none, or text ([`split_shared_text`]). Lists of answers are also cut in this way, and a `prompt` of text
    /// is ignored, if both lists begin with a message that is no answer, because they then repeat the prompt. Another
    /// `prompt` of text beside lists of messages becomes a message of the user.
    pub(super) fn take_preference(&mut self) -> Result<Content, LocatedFault> {
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
            Some(prompt) => {
                self.check_weights("chosen", 0, &chosen)?;
                self.check_weights("rejected", 0, &rejected)?;
                let prompt = match (prompt, &chosen) {
                    (TextOrMessages::Text(text), TextOrMessages::Messages(_)) => {
                        TextOrMessages::Messages(vec![Message::new("user", text)])
                    }
                    (prompt, _) => prompt,
                };
                return Ok(Content::Preference(prompt, chosen, rejected));
            }
            None => {}
        }
        let (mut prompt, mut rejected) = match (chosen, rejected) {
            (TextOrMessages::Messages(chosen), TextOrMessages::Messages(rejected)) => (chosen, rejected),
            (TextOrMessages::Text(chosen), TextOrMessages::Text(rejected)) => {
                let parts = split_shared_text(&chosen, &rejected).map(|part| TextOrMessages::Text(part.to_owned()));
                let [prompt, chosen, rejected] = parts;
                if prompt != TextOrMessages::Text(String::new()) {
                    return Ok(Content::Preference(prompt, chosen, rejected));
                }
                return Err(missing_field(self.text, self.object, "prompt", Shape::Preference));
            }
            _ => return Err(missing_field(self.text, self.object, "prompt", Shape::Preference)),
        };
        let shared = prompt.iter().zip(&rejected).take_while(|(one, other)| one == other).count();
        let answers = [prompt.split_off(shared), rejected.split_off(shared)];
        let [chosen, rejected] = answers.map(TextOrMessages::Messages);
        self.check_weights("chosen", shared, &chosen)?;
        self.check_weights("rejected", shared, &rejected)?;
        Ok(Content::Preference(TextOrMessages::Messages(prompt), chosen, rejected))
    }

    /// Removes `prompt`, which must not be empty, and returns it with a copy of every further field that is not null
    /// and not in [`TEMPLATE_FIELDS`], as text for the verifiers: a string as it is, any other value as JSON. Also
    /// removes `answer`, so that the method does not get it as a number; its copy for the verifiers stays.
    pub(super) fn take_prompt(&mut self) -> Result<Content, LocatedFault> {
        let prompt = self.take_non_empty("prompt")?;
        let further =
            self.object.iter().filter(|(name, value)| !TEMPLATE_FIELDS.contains(&name.as_str()) && !value.is_null());
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let fields = further.map(|(name, value)| (name.clone(), text(value))).collect();
        self.object.remove("answer");
        Ok(Content::Prompt(prompt, fields))
    }

    /// Checks that no images, video or audio belong to the text: a list of them that is not empty, or one beside a text
    /// that has its placeholder, such as `<image>`. The text would be trained on without them.
    pub(super) fn check_media(&self) -> Result<(), LocatedFault> {
        for medium in ["image", "video", "audio"] {
            let list = format!("{medium}s");
            let has_list = self.object.get(&list).is_some_and(|items| items.get(0).is_some());
            let has_placeholder = self.object.contains_key(medium) && self.text.contains(&format!("<{medium}>"));
            if has_list || has_placeholder {
                let name = if has_list { list.as_str() } else { medium };
                let fault =
                    Explanation::new("data", format!("`{name}` is beside the text, and only text is trained on"));
                let fault = fault.with_hint("take records without images, video and audio");
                return Err((fault.into(), value_column(self.text, &[name])));
            }
        }
        Ok(())
    }

    /// Checks that the field `label` is there and is a boolean, 0 or 1, or in a table of text one of these as text.
    /// Does not remove the field, so it becomes a column of the record.
    pub(super) fn check_label(&self) -> Result<(), LocatedFault> {
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
    pub(super) fn column(&self, name: &str) -> usize {
        value_column(self.text, &[self.column_name(name)])
    }

    /// The fault about a field of the wrong type, with the column of its value `found`. `wanted` is the type in words.
    fn wrong_type(&self, name: &str, found: Option<&Value>, wanted: &str) -> LocatedFault {
        (fault::wrong_type(self.column_name(name), describe_type(found), wanted), self.column(name))
    }
}

/// Splits two answers that repeat their prompt into the text with which both begin, without a blank at its end, and the
/// rest of each, as TRL's `extract_prompt` does.
fn split_shared_text<'a>(chosen: &'a str, rejected: &'a str) -> [&'a str; 3] {
    let pairs = chosen.chars().zip(rejected.chars());
    let shared: usize = pairs.take_while(|(one, other)| one == other).map(|(one, _)| one.len_utf8()).sum();
    let prompt = &chosen[..shared];
    let prompt = prompt.strip_suffix(' ').unwrap_or(prompt);
    [prompt, &chosen[prompt.len()..], &rejected[prompt.len()..]]
}
