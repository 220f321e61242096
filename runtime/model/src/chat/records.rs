//! Training examples: token ids, and for each whether it is a target.
//!
//! Follows TRL, so that runs can be compared, in which texts get an end-of-text token and where a prompt ends. Padding
//! and batching are left to [`crate::rows`].

use super::message::{Conversation, Message};
use super::template::ChatTemplate;
use super::{calls, error, spans};
use crate::error::Result;
use crate::tokenizer::{Spans, Tokenizer};

/// Answers of a conversation that are trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Answers {
    /// Every assistant message whose `weight` is not 0.
    #[default]
    All,
    /// Only the last of these messages.
    Last,
}

/// One example: token ids, and for each whether it is a target. The first never is: nothing predicts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The token ids.
    pub ids: Vec<u32>,
    /// Whether each token is a target; as long as `ids`.
    pub targets: Vec<bool>,
    /// Whether the last tokens of the prompt differ when it is tokenized together with the completion. In use, the
    /// prompt is tokenized alone, so the model then sees other tokens than in training.
    pub merged: bool,
}

impl Encoded {
    /// Builds an example. Clears the target mark of the first token. Errors: no target is left.
    fn new(ids: Vec<u32>, mut targets: Vec<bool>) -> Result<Self> {
        if let Some(first) = targets.first_mut() {
            *first = false;
        }
        if !targets.contains(&true) {
            let empty = error::explain("no token is left to learn from");
            return Err(empty.with_hint("the answer is empty, or lies beyond the longest length").into());
        }
        Ok(Self { ids, targets, merged: false })
    }

    /// The number of tokens that are targets.
    pub fn target_count(&self) -> usize {
        self.targets.iter().filter(|target| **target).count()
    }
}

/// A prompt and its completion: as plain texts, or as messages with the template that renders them.
#[derive(Debug, Clone, Copy)]
pub enum Example<'a> {
    /// Plain texts; an end-of-text token is appended to the completion.
    Text {
        /// The prompt.
        prompt: &'a str,
        /// The completion, whose tokens are targets.
        completion: &'a str,
    },
    /// Messages; the template itself writes the end of a turn.
    Messages {
        /// The model's template.
        template: &'a ChatTemplate,
        /// The conversation up to the completion.
        prompt: Conversation<'a>,
        /// The messages whose tokens are targets.
        completion: &'a [Message],
    },
}

/// Renders a conversation with its tools and template variables and encodes the text, without ids that the template
/// does not write. A token is a target if any byte of it lies in an answer; `which` selects all answers whose `weight`
/// is not 0, or only the last of them.
///
/// The end-of-turn token of an answer is a target, and so is what the template writes after it before the next turn.
///
/// # Errors
/// When the conversation has no such answer, the template leaves out a call of a tool, it cannot be told which tokens
/// are answers, no target is left, or rendering or encoding fails.
pub fn encode_conversation(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    conversation: &Conversation<'_>,
    which: Answers,
) -> Result<Encoded> {
    let (text, answers) = spans::find(tokenizer, template, conversation, which)?;
    let Spans { ids, ranges } = tokenizer.encode_spans(&text)?;

    // Both lists are in order, so one loop is enough. A token counts if any byte of it lies in an answer.
    let mut answers = answers.into_iter().filter(|answer| !answer.is_empty()).peekable();
    let mut targets = Vec::with_capacity(ids.len());
    for range in ranges {
        while answers.next_if(|answer| answer.end <= range.start).is_some() {}
        targets.push(answers.peek().is_some_and(|answer| answer.start < range.end && range.start < answer.end));
    }
    Encoded::new(ids, targets)
}

/// Encodes a prompt followed by its completion. Targets are the tokens after the common prefix of this encoding and the
/// encoding of the prompt alone, but never the first token; `merged` is set if that prefix is shorter than the prompt.
///
/// # Errors
/// When no target is left, the template leaves out a call of a tool, or a text needs an end-of-text token that the
/// tokenizer does not have, and the errors of rendering and encoding.
pub fn encode_prompt_completion(tokenizer: &Tokenizer, example: &Example<'_>) -> Result<Encoded> {
    let (prompt, whole) = example.ids(tokenizer)?;
    let shared = shared_length(&prompt, &whole);
    build_example(whole, shared, shared < prompt.len())
}

/// Encodes a prompt with its chosen and its rejected completion; returns the chosen example first. The targets of both
/// begin at the same index: the end of the longest prefix that the two encodings share with the encoding of the prompt
/// alone. The prompt of `chosen` is used; that of `rejected` is expected to be equal.
///
/// # Errors
/// When [`encode_prompt_completion`] fails.
pub fn encode_preference(
    tokenizer: &Tokenizer,
    chosen: &Example<'_>,
    rejected: &Example<'_>,
) -> Result<(Encoded, Encoded)> {
    let (prompt, better) = chosen.ids(tokenizer)?;
    let (_, worse) = rejected.ids(tokenizer)?;
    let shared = shared_length(&prompt, &better).min(shared_length(&prompt, &worse));
    let merged = shared < prompt.len();
    Ok((build_example(better, shared, merged)?, build_example(worse, shared, merged)?))
}

/// Encodes a text, with the end-of-text token appended unless the text ends with it; all tokens but the first are
/// targets.
///
/// # Errors
/// When the tokenizer names no end-of-text token, or the text is one token, and the errors of encoding.
pub fn encode_text(tokenizer: &Tokenizer, text: &str) -> Result<Encoded> {
    let ids = tokenizer.encode_whole(&append_end_text(tokenizer, text)?)?;
    let targets = vec![true; ids.len()];
    Encoded::new(ids, targets)
}

/// Renders and encodes a conversation as a prompt, with the template's opening of an answer at its end. Adds no special
/// ids: the template writes them.
///
/// # Errors
/// When rendering or encoding fails.
pub fn encode_prompt(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    conversation: &Conversation<'_>,
) -> Result<Vec<u32>> {
    tokenizer.encode(&template.render_conversation(conversation, true)?, false)
}

impl Example<'_> {
    /// The token ids of the prompt alone, and of prompt and completion together, in this order. Texts get the
    /// tokenizer's leading ids; both together also get an end-of-text token and the trailing ids, unless they end with
    /// them. Messages are rendered by the template, the prompt alone with the opening of an answer, and get no further
    /// ids.
    fn ids(&self, tokenizer: &Tokenizer) -> Result<(Vec<u32>, Vec<u32>)> {
        match self {
            Self::Text { prompt, completion } => {
                let whole = format!("{prompt}{}", append_end_text(tokenizer, completion)?);
                Ok((tokenizer.encode_opening(prompt)?, tokenizer.encode_whole(&whole)?))
            }
            Self::Messages { template, prompt, completion } => {
                let messages = [prompt.messages, completion].concat();
                let whole = Conversation { messages: &messages, ..*prompt };
                calls::check(template, &whole)?;
                let text = template.render_conversation(&whole, false)?;
                Ok((encode_prompt(tokenizer, template, prompt)?, tokenizer.encode(&text, false)?))
            }
        }
    }
}

/// Returns the text with the tokenizer's end-of-text token appended, or unchanged if it ends with that token. Errors:
/// the tokenizer has no end-of-text token.
fn append_end_text(tokenizer: &Tokenizer, text: &str) -> Result<String> {
    let end = tokenizer.eos_text().ok_or_else(|| {
        error::explain("the tokenizer names no end-of-text token")
            .with_why("without one the model never learns to stop")
            .with_hint("set `eos_token` in `tokenizer_config.json`")
    })?;
    Ok(if text.ends_with(end) { text.to_owned() } else { format!("{text}{end}") })
}

/// The length of the longest common prefix of two encodings, in tokens.
fn shared_length(left: &[u32], right: &[u32]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// Builds an example whose targets are all tokens from index `first_target` on, but never token 0, and sets the
/// example's `merged` flag. Errors: no target is left.
fn build_example(ids: Vec<u32>, first_target: usize, merged: bool) -> Result<Encoded> {
    let targets = (0..ids.len()).map(|place| place >= first_target).collect();
    Ok(Encoded { merged, ..Encoded::new(ids, targets)? })
}
