//! The columns by which the layouts of other tools are recognized.

use serde_json::{Map, Value};

use super::conversation::{is_share_gpt, read_history};
use super::{ALPACA, HISTORY, Layout, OPEN_AI_PAIR, SHARE_GPT};
use crate::data::shape::Shape;

/// A layout with a question and its answer in two columns.
struct Pair {
    /// What the layout is known as; empty if it has no name.
    name: &'static str,
    prompt: &'static str,
    /// A column with further text of the prompt, which may be empty or missing.
    context: Option<&'static str>,
    answer: &'static str,
}

/// The layouts with a question and its answer. The first whose columns a record has is taken, so the most specific come
/// first.
const PAIRS: [Pair; 8] = [
    Pair { name: ALPACA, prompt: "instruction", context: Some("input"), answer: "output" },
    Pair { name: "Dolly", prompt: "instruction", context: Some("context"), answer: "response" },
    Pair { name: "", prompt: "question", context: None, answer: "answer" },
    Pair { name: "", prompt: "question", context: None, answer: "response" },
    Pair { name: "", prompt: "prompt", context: None, answer: "response" },
    Pair { name: "", prompt: "query", context: None, answer: "response" },
    Pair { name: "", prompt: "problem", context: None, answer: "solution" },
    Pair { name: "", prompt: "input", context: None, answer: "output" },
];

/// The columns that hold a conversation.
pub(super) const CONVERSATIONS: [&str; 3] = ["conversations", "conversation", "messages"];

/// The columns that say whether an answer is good; the second is that of LLaMA-Factory.
const LABELS: [&str; 2] = ["label", "kto_tag"];

/// Whether an object has the fields of `shape` as they are. Messages must not be in the layout of ShareGPT, and a pair
/// of answers needs a prompt unless the answers are messages.
pub(super) fn is_native(object: &Map<String, Value>, shape: Shape) -> bool {
    match shape {
        Shape::Messages => object.get("messages").is_some_and(|list| !is_share_gpt(list)),
        Shape::Preference => {
            shape.is_complete(object)
                && (object.contains_key("prompt") || object.get("chosen").is_some_and(Value::is_array))
        }
        _ => shape.is_complete(object),
    }
}

/// Finds the columns of a layout from which a record of `shape` can be read; `None` for shapes without such layouts. A
/// question with a `history` is a conversation, but without a chat template only if the history has turns.
pub(super) fn find_columns(object: &Map<String, Value>, shape: Shape, has_template: bool) -> Option<Layout> {
    let has = |name: &str| object.contains_key(name);
    let layout = |name, columns, context| Some(Layout { name, shape, columns, context, has_template });
    let label = LABELS.into_iter().find(|name| has(name));
    let conversation = CONVERSATIONS.into_iter().find(|name| object.get(*name).is_some_and(Value::is_array));
    let columns = match (shape, label) {
        (Shape::Messages, _) => conversation.map(|column| vec![("messages", column)]),
        (Shape::Unpaired, Some(label)) => conversation.map(|column| vec![("messages", column), ("label", label)]),
        (Shape::Preference, _) if has("chosen") && has("rejected") => {
            conversation.map(|column| vec![("prompt", column), ("chosen", "chosen"), ("rejected", "rejected")])
        }
        (Shape::Preference, _) if OPEN_AI_PAIR.iter().all(|name| has(name)) => {
            return layout("OpenAI", ["prompt", "chosen", "rejected"].into_iter().zip(OPEN_AI_PAIR).collect(), None);
        }
        _ => None,
    };
    if let Some(columns) = columns {
        let is_named = conversation.and_then(|column| object.get(column)).is_some_and(is_share_gpt);
        return layout(if is_named { SHARE_GPT } else { "" }, columns, None);
    }
    let has_turns = |turns: &Value| read_history(HISTORY, turns.clone()).map_or(true, |turns| !turns.is_empty());
    let has_history = object.get(HISTORY).is_some_and(|turns| has_template || has_turns(turns));
    PAIRS.iter().find_map(|pair| {
        let (prompt, answer) = (("prompt", pair.prompt), has(pair.answer));
        let columns = match shape {
            Shape::Messages if answer && has_history && pair.name == ALPACA => {
                vec![prompt, ("completion", pair.answer)]
            }
            Shape::PromptCompletion if answer => vec![prompt, ("completion", pair.answer)],
            Shape::Unpaired if answer && label.is_some() => {
                let label = label.map(|label| ("label", label));
                [prompt, ("completion", pair.answer)].into_iter().chain(label).collect()
            }
            Shape::Preference if has("chosen") && has("rejected") => {
                vec![prompt, ("chosen", "chosen"), ("rejected", "rejected")]
            }
            Shape::Prompts if answer => vec![prompt, ("answer", pair.answer)],
            _ => return None,
        };
        let context = pair.context.filter(|name| has(name));
        has(pair.prompt).then(|| layout(pair.name, columns, context))?
    })
}
