//! What can be wrong with a chat template or a conversation, and what to do about it.

use minijinja::ErrorKind;
use tunebox_foundation::explain::{Explain, Explanation, Snippet};

use super::functions::Refusal;
use crate::tokenizer::error::TokenizerError;

/// What can be wrong between a conversation and its tokens.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(category = "chat")]
pub enum ChatError {
    /// The template cannot be read, or fails while it renders.
    #[error("{}", .0.what)]
    #[explain(location = _0.location.clone(), snippet = _0.snippet.clone(), why = _0.why.clone(), hint = _0.hint.clone())]
    Template(Box<Explanation>),
    /// The template refuses the conversation by `raise_exception`.
    #[error("the chat template refuses this conversation: {message}")]
    #[explain(hint = "the order of roles is what most templates check")]
    Refused {
        /// The template's own words.
        message: String,
    },
    /// A text holds the characters that mark answers while rendering.
    #[error("the conversation holds the noncharacter U+{code:04X}")]
    #[explain(
        why = "it is not a character of any text, and marks where answers begin and end while rendering",
        hint = "remove it from the record"
    )]
    Marker {
        /// The code point.
        code: u32,
    },
    /// No message of the conversation is an answer.
    #[error("the conversation has no answer to learn from")]
    #[explain(hint = "give at least one message the role `assistant`")]
    NoAnswer,
    /// A record without a token to learn from.
    #[error("no token is left to learn from")]
    #[explain(hint = "the answer is empty, or lies beyond the longest length")]
    NoTarget,
    /// Where an answer begins or ends cannot be told.
    #[error("it cannot be told where answer {number} {edge}")]
    #[explain(
        why = why.clone(),
        hint = String::from(
            "put `{% generation %}` and `{% endgeneration %}` around the answer in the chat template"
        )
    )]
    Unclear {
        /// Which answer, from 1.
        number: usize,
        /// `begins` or `ends`.
        edge: &'static str,
        /// What was seen.
        why: String,
    },
    /// A tokenizer without an end-of-text token.
    #[error("the tokenizer names no end-of-text token")]
    #[explain(why = "without one the model never learns to stop", hint = "set `eos_token` in `tokenizer_config.json`")]
    NoEnd,
    /// The tokenizer failed.
    #[error(transparent)]
    #[explain(source)]
    Tokenizer(#[from] TokenizerError),
}

impl ChatError {
    /// A [`ChatError::Template`] without line or column. `what` follows "the chat template" in its message.
    pub(super) fn broken(what: &str) -> Self {
        Self::Template(Box::new(Explanation::new("chat", format!("the chat template {what}"))))
    }

    /// Converts an error of the template engine: [`ChatError::Refused`] if the template called `raise_exception`, else
    /// [`ChatError::Template`] with line and column where known. `source` is the template before it was rewritten.
    pub(super) fn from_engine(error: &minijinja::Error, source: &str) -> Self {
        if let Some(refusal) = find_refusal(error) {
            return Self::Refused { message: refusal.0.clone() };
        }

        let what = match (error.kind(), error.detail()) {
            (ErrorKind::OutOfFuel, _) => "does not come to an end".to_owned(),
            (ErrorKind::SyntaxError, Some(detail)) => format!("cannot be read: {detail}"),
            (kind, Some(detail)) => format!("fails: {kind}: {detail}"),
            (kind, None) => format!("fails: {kind}"),
        };
        let mut fault = Explanation::new("chat", format!("the chat template {what}"));
        if let Some(line) = error.line()
            && let Some(text) = source.lines().nth(line.saturating_sub(1))
        {
            let (column, width) = column_of(error, source, line, text);
            let snippet = Snippet { line, text: text.to_owned(), column, width, note: None };
            fault = fault.with_location(format!("chat template:{line}")).with_snippet(snippet);
        }
        fault.why = std::error::Error::source(error).map(ToString::to_string);
        let endless = error.kind() == ErrorKind::OutOfFuel;
        fault.hint = endless.then(|| "use the template that came with the model".into());
        Self::Template(Box::new(fault))
    }
}

/// Finds the [`Refusal`] among the sources of an error, at any depth; `None` if the template did not call
/// `raise_exception`.
fn find_refusal(error: &minijinja::Error) -> Option<&Refusal> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(refusal) = inner.downcast_ref::<Refusal>() {
            return Some(refusal);
        }
        cause = inner.source();
    }
    None
}

/// The column, from 1, and the width of the faulty part of a line, both in characters. (0, 0) if the engine gives no
/// range, or if the range does not lie in this line of the source. `text` is line number `line`, counted from 1.
fn column_of(error: &minijinja::Error, source: &str, line: usize, text: &str) -> (usize, usize) {
    let begin: usize = source.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let Some(range) = error.range() else { return (0, 0) };
    let (Some(from), to) = (range.start.checked_sub(begin), range.end.saturating_sub(begin).min(text.len())) else {
        return (0, 0);
    };
    match (text.get(..from), text.get(from..to)) {
        (Some(before), Some(wrong)) if !wrong.is_empty() => (before.chars().count() + 1, wrong.chars().count()),
        _ => (0, 0),
    }
}
