//! Checks that a chat template renders the calls of tools in a conversation.

use serde_json::{Value, json};

use super::error;
use super::message::{Conversation, Message};
use super::template::ChatTemplate;
use crate::error::Result;

/// The fields of a message that hold calls: a list, and the older one of a single call.
const FIELDS: [&str; 2] = ["tool_calls", "function_call"];

/// Fails if the template leaves out the call of a tool, or its arguments: the model would learn the conversation without
/// them.
///
/// The name of a function alone does not say that its call is there: it also stands in the list of tools, and may be part of
/// a word. So this renders the conversation once more with other names and arguments, and searches for these. Does nothing
/// if no message calls a tool, or if the template rejects that conversation.
pub(super) fn check(template: &ChatTemplate, conversation: &Conversation<'_>) -> Result<()> {
    if !conversation.messages.iter().any(|message| FIELDS.iter().any(|field| message.fields.contains_key(*field))) {
        return Ok(());
    }
    let mut messages = conversation.messages.to_vec();
    let mut sought = Vec::new();
    for function in messages.iter_mut().flat_map(called_functions) {
        let Some(name) = function.get("name").and_then(Value::as_str).map(str::to_owned) else { continue };
        let number = sought.len();
        let (mark, argument) = (format!("marked_call_{number}_"), format!("marked_argument_{number}_"));
        function["name"] = mark.clone().into();
        sought.push((mark, format!("the call of `{name}`")));
        let marked = json!({ argument.as_str(): "" });
        match function.get("arguments") {
            Some(Value::Object(given)) if !given.is_empty() => function["arguments"] = marked,
            Some(Value::String(given)) if !["", "{}"].contains(&given.trim()) => {
                function["arguments"] = marked.to_string().into();
            }
            _ => continue,
        }
        sought.push((argument, format!("the arguments of the call of `{name}`")));
    }
    if sought.is_empty() {
        return Ok(());
    }
    let Ok(text) = template.render_conversation(&Conversation { messages: &messages, ..*conversation }, false) else {
        return Ok(());
    };
    sought.iter().find(|(mark, _)| !text.contains(mark)).map_or(Ok(()), |(_, what)| {
        let problem = error::explain(format!("the chat template leaves out {what}"));
        Err(problem.with_hint("take a model whose chat template has tools").into())
    })
}

/// The functions that a message calls, as objects: the calls themselves, or what is in their field `function`.
fn called_functions(message: &mut Message) -> Vec<&mut Value> {
    let fields = message.fields.iter_mut().filter(|(field, _)| FIELDS.contains(&field.as_str()));
    let calls = fields.flat_map(|(_, value)| match value {
        Value::Array(calls) => calls.iter_mut().collect(),
        call => vec![call],
    });
    let is_nested = |call: &Value| call.get("function").is_some_and(Value::is_object);
    let functions = calls.map(|call| if is_nested(call) { &mut call["function"] } else { call });
    functions.filter(|function| function.is_object()).collect()
}
