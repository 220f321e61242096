//! The shapes of a record, and its content by shape. A method's manifest says which shapes it learns from.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};
use tunebox_model::chat::Message;

/// The shape of a record: which fields it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// A conversation.
    Messages,
    /// A prompt and its completion.
    PromptCompletion,
    /// Text without roles.
    Text,
    /// A prompt with a better and a worse answer.
    Preference,
    /// A prompt with an answer and whether the answer is good.
    Unpaired,
    /// A prompt for which the model generates completions.
    Prompts,
    /// An instruction that a model refuses, or one that it follows, or both.
    Instructions,
    /// Two texts that differ in one respect.
    Contrast,
}

/// The properties of a shape.
pub(super) struct Facts {
    shape: Shape,
    name: &'static str,
    /// The names of the rows that such a record becomes in a batch.
    sides: &'static [&'static str],
    /// The fields that such a record needs; of `Instructions`, at least one of them.
    pub(super) required: &'static [&'static str],
    /// The fields in words.
    fields: &'static str,
    /// An example line.
    pub(super) example: &'static str,
}

/// Every shape. A record has the first whose fields it has, so `Unpaired` comes before `PromptCompletion`, and
/// `Prompts` is last.
const SHAPES: [Facts; 8] = [
    Facts {
        shape: Shape::Messages,
        name: "a conversation",
        sides: &["example"],
        required: &["messages"],
        fields: "`messages`",
        example: r#"{"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}"#,
    },
    Facts {
        shape: Shape::Unpaired,
        name: "an answer with its label",
        sides: &["example", "mismatched"],
        required: &["prompt", "completion", "label"],
        fields: "`prompt`, `completion` and `label`",
        example: r#"{"prompt": "…", "completion": "…", "label": true}"#,
    },
    Facts {
        shape: Shape::PromptCompletion,
        name: "a prompt with its completion",
        sides: &["example"],
        required: &["prompt", "completion"],
        fields: "`prompt` and `completion`",
        example: r#"{"prompt": "…", "completion": "…"}"#,
    },
    Facts {
        shape: Shape::Text,
        name: "plain text",
        sides: &["example"],
        required: &["text"],
        fields: "`text`",
        example: r#"{"text": "…"}"#,
    },
    Facts {
        shape: Shape::Preference,
        name: "a pair of answers",
        sides: &["chosen", "rejected"],
        required: &["chosen", "rejected"],
        fields: "`prompt`, `chosen` and `rejected`",
        example: r#"{"prompt": "…", "chosen": "…", "rejected": "…"}"#,
    },
    Facts {
        shape: Shape::Instructions,
        name: "an instruction",
        sides: &["harmful", "harmless"],
        required: &["harmful", "harmless"],
        fields: "`harmful` or `harmless`, or both",
        example: r#"{"harmful": "…"}"#,
    },
    Facts {
        shape: Shape::Contrast,
        name: "two contrasting texts",
        sides: &["positive", "negative"],
        required: &["positive", "negative"],
        fields: "`positive` and `negative`",
        example: r#"{"positive": "…", "negative": "…"}"#,
    },
    Facts {
        shape: Shape::Prompts,
        name: "a prompt to answer",
        sides: &["prompt"],
        required: &["prompt"],
        fields: "`prompt`",
        example: r#"{"prompt": "…", "answer": "…"}"#,
    },
];

impl Shape {
    /// Every shape, in the order in which a record is matched against them.
    pub fn all() -> impl Iterator<Item = Self> {
        SHAPES.iter().map(|facts| facts.shape)
    }

    /// Returns the shapes that the word `shape` of a manifest stands for: `supervised` is conversations, prompts with
    /// completions, and texts; `preference`, `unpaired`, `prompts`, `instructions` and `contrast` are the shape of that
    /// name. `None` for any other word.
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

    /// The usual peak learning rate of AdamW on such records. For all weights, TRL's defaults: 2e-5 for learning from
    /// answers, 1e-6 for learning from preferences, labels and rewards. For an adapter ten times that, as of "LoRA
    /// Without Regret" (Schulman et al., 2025).
    #[must_use]
    pub fn usual_rate(self, is_adapter: bool) -> f64 {
        match self {
            Self::Messages | Self::PromptCompletion | Self::Text => {
                if is_adapter {
                    2e-4
                } else {
                    2e-5
                }
            }
            _ if is_adapter => 1e-5,
            _ => 1e-6,
        }
    }

    /// The table entry of this shape: names, sides, fields and an example line.
    pub(super) fn facts(self) -> &'static Facts {
        SHAPES.iter().find(|facts| facts.shape == self).unwrap_or(&SHAPES[0])
    }

    /// The names of the sides of a batch of such records, in the order of an example's rows, such as `chosen` and
    /// `rejected`.
    #[must_use]
    pub fn sides(self) -> &'static [&'static str] {
        self.facts().sides
    }

    /// Whether a list of numbers in such a record can be a column with a number for each target token: it has one row,
    /// in which every target is of this record.
    pub(super) fn has_token_columns(self) -> bool {
        matches!(self, Self::Messages | Self::PromptCompletion | Self::Text)
    }

    /// The fields of a record of this shape, in words for a message, such as `` `prompt` and `completion` ``.
    pub(crate) fn fields(self) -> &'static str {
        self.facts().fields
    }

    /// Whether an object has all required fields of this shape; for an instruction, at least one of them. Values are
    /// not checked: null counts, too.
    pub(super) fn is_complete(self, object: &Map<String, Value>) -> bool {
        let has = |field: &&str| object.contains_key(*field);
        if self == Self::Instructions { self.has_any(object) } else { self.facts().required.iter().all(has) }
    }

    /// Whether an object has at least one required field of this shape. Values are not checked: null counts, too.
    pub(super) fn has_any(self, object: &Map<String, Value>) -> bool {
        self.facts().required.iter().any(|field| object.contains_key(*field))
    }
}

impl fmt::Display for Shape {
    /// Writes the shape in words, with its article, such as `a pair of answers`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.facts().name)
    }
}

/// Text, or messages that the chat template turns into text.
#[derive(Debug, Clone, PartialEq)]
pub enum TextOrMessages {
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
    PromptCompletion(TextOrMessages, TextOrMessages),
    /// Text without roles.
    Text(String),
    /// A prompt, the better answer, the worse answer.
    Preference(TextOrMessages, TextOrMessages, TextOrMessages),
    /// A prompt, and every further field as text for the verifiers.
    Prompt(TextOrMessages, BTreeMap<String, String>),
    /// A harmful and a harmless instruction; at least one of them.
    Instructions(Option<TextOrMessages>, Option<TextOrMessages>),
    /// The positive and the negative text, or conversation.
    Contrast(TextOrMessages, TextOrMessages),
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
    /// Every further field that is a list of numbers, if the shape has columns for tokens.
    pub lists: BTreeMap<String, Vec<f32>>,
}
