//! The shapes of a record, told by its fields. Which of them a method takes comes from its manifest.

use std::fmt;

use serde_json::{Map, Value};
use tunebox_foundation::nearest::nearest;

use super::fault::LineFault;
use super::locate::{column, key_column};
use super::record::Wrong;

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

    /// What a line of it looks like.
    pub(super) fn example(self) -> &'static str {
        match self {
            Self::Messages => {
                r#"{"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}"#
            }
            Self::PromptCompletion => r#"{"prompt": "…", "completion": "…"}"#,
            Self::Text => r#"{"text": "…"}"#,
            Self::Preference => r#"{"prompt": "…", "chosen": "…", "rejected": "…"}"#,
            Self::Unpaired => r#"{"prompt": "…", "completion": "…", "label": true}"#,
            Self::Prompts => r#"{"prompt": "…", "answer": "…"}"#,
            Self::Instructions => r#"{"harmful": "…"}"#,
            Self::Contrast => r#"{"positive": "…", "negative": "…"}"#,
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
        Some(missing(text, object, field, shape))
    });
    let unknown = || (LineFault::Unknown { fields: object.keys().cloned().collect(), wanted: wanted.to_vec() }, start);
    Err(missing.unwrap_or_else(unknown))
}

/// A field that a record of a shape lacks; at the one that probably means it, if there is one.
pub(super) fn missing(text: &str, object: &Map<String, Value>, field: &'static str, shape: Shape) -> Wrong {
    let others = object.keys().map(String::as_str).filter(|name| !shape.required().contains(name));
    let meant = nearest(field, others).map(str::to_owned);
    let place = meant.as_deref().map_or_else(|| column(text, &[]), |name| key_column(text, name));
    (LineFault::Missing { field, shape, meant }, place)
}
