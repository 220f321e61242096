//! Conversations in the layout of ShareGPT, with calls of functions as LLaMA-Factory writes them, and the `history` of
//! its Alpaca layout.

use serde_json::{Map, Value, json};
use tunebox_foundation::explain::Explanation;

use crate::data::fault::{self, Fault, describe_type};

/// The roles of messages by the names, in lower case, that ShareGPT files give the speakers.
const SPEAKERS: [(&str, &str); 13] = [
    ("human", "user"),
    ("user", "user"),
    ("gpt", "assistant"),
    ("model", "assistant"),
    ("chatgpt", "assistant"),
    ("bing", "assistant"),
    ("bard", "assistant"),
    ("assistant", "assistant"),
    ("system", "system"),
    ("tool", "tool"),
    ("observation", "tool"),
    ("function_response", "tool"),
    (FUNCTION_CALL, "assistant"),
];

/// The speaker whose text is one call of a function, or a list of them: JSON objects with `name` and `arguments`.
const FUNCTION_CALL: &str = "function_call";

/// Whether a value is a list whose first message names a speaker by `from` and a text by `value`.
pub(super) fn is_share_gpt(list: &Value) -> bool {
    list.get(0).is_some_and(|first| first.get("from").is_some() && first.get("value").is_some())
}

/// The hint about a speaker that is not known.
fn speakers_hint() -> String {
    let known: Vec<String> = SPEAKERS.iter().map(|(known, _)| format!("`{known}`")).collect();
    format!("known are {}", known.join(", "))
}

/// Converts the messages of `column`: `from` and `value` become `role` and `content`, or `tool_calls` of the speaker
/// [`FUNCTION_CALL`]; messages without `from` stay as they are. The text `system` becomes the first message unless the
/// first message has the role `system`. Fails for an unknown speaker, for a `value` that is missing or no text, and for
/// one of [`FUNCTION_CALL`] that is no call.
pub(super) fn read_conversation(column: &str, items: Vec<Value>, system: Option<&str>) -> Result<Value, Fault> {
    let mut messages = Vec::with_capacity(items.len());
    for (number, mut item) in items.into_iter().enumerate() {
        if let Some(object) = item.as_object_mut().filter(|object| object.contains_key("from")) {
            let speaker = object.remove("from").unwrap_or_default();
            let name = speaker.as_str().unwrap_or_default().to_lowercase();
            let Some((_, role)) = SPEAKERS.iter().find(|(known, _)| *known == name) else {
                let what = format!("`{column}[{number}].from` is {speaker}, a known speaker is wanted");
                return Err(Explanation::new("data", what).with_hint(speakers_hint()).into());
            };
            let Some(value) = object.remove("value").filter(Value::is_string) else {
                return Err(fault::wrong_type(&format!("{column}[{number}].value"), "missing or no text", "text"));
            };
            object.insert("role".into(), (*role).into());
            let (field, value) = match name == FUNCTION_CALL {
                true => ("tool_calls", read_calls(&format!("{column}[{number}].value"), &value)?),
                false => ("content", value),
            };
            object.insert(field.into(), value);
        }
        messages.push(item);
    }
    let has_system = messages.first().is_some_and(|first| first.get("role").is_some_and(|role| role == "system"));
    let system = system.filter(|_| !has_system).map(|text| json!({ "role": "system", "content": text }));
    Ok(system.into_iter().chain(messages).collect())
}

/// Reads the text of a [`FUNCTION_CALL`], the value of `field`, as the list `tool_calls` of a message. Fails for a text
/// that is neither a call nor a list of calls.
fn read_calls(field: &str, text: &Value) -> Result<Value, Fault> {
    let calls: Option<Value> = text.as_str().and_then(|text| serde_json::from_str(text).ok());
    let calls = match calls {
        Some(Value::Array(calls)) => calls,
        call => call.into_iter().collect(),
    };
    let is_call = |call: &Value| call.get("name").is_some_and(Value::is_string) && call.get("arguments").is_some();
    if calls.is_empty() || !calls.iter().all(is_call) {
        let hint = r#"write `{"name": "…", "arguments": {…}}`, or a list of such objects, as JSON in the text"#;
        return Err(Explanation::new("data", format!("`{field}` is no call of a function")).with_hint(hint).into());
    }
    let wrap = |call: &Value| json!({ "type": "function", "function": { "name": call["name"], "arguments": call["arguments"] } });
    Ok(calls.iter().map(wrap).collect())
}

/// Puts each of the `tools` of a record into the form `{"type": "function", "function": {…}}`, which chat templates
/// expect, as LLaMA-Factory does. Does nothing if `tools` is no list, nor one as JSON in a text.
pub(super) fn wrap_tools(record: &mut Map<String, Value>) {
    let Some(tools) = record.get_mut("tools") else { return };
    if let Some(list) = tools.as_str().and_then(|text| serde_json::from_str(text).ok()) {
        *tools = list;
    }
    for tool in tools.as_array_mut().into_iter().flatten() {
        if tool.get("type").is_none_or(|kind| kind != "function") {
            *tool = json!({ "type": "function", "function": tool.take() });
        }
    }
}

/// The turns before a question as messages, from the value of `column`: a list of pairs of a question and its answer,
/// or such a list as JSON in a text. None if the value is null or an empty text. Fails for any other value.
pub(super) fn read_history(column: &str, value: Value) -> Result<Vec<Value>, Fault> {
    let found = describe_type(Some(&value));
    let pairs = match value {
        Value::String(text) if text.is_empty() => Ok(None),
        Value::String(text) => serde_json::from_str(&text),
        value => serde_json::from_value(value),
    };
    let pairs: Option<Vec<(String, String)>> =
        pairs.map_err(|_| fault::wrong_type(column, found, "a list of pairs of a question and its answer"))?;
    let turns =
        |(question, answer): (String, String)| [json!({ "role": "user", "content": question }), assistant(answer)];
    Ok(pairs.unwrap_or_default().into_iter().flat_map(turns).collect())
}

/// A message of the assistant with this text.
pub(super) fn assistant(text: String) -> Value {
    json!({ "role": "assistant", "content": text })
}
