//! What can be wrong with a chat template or a conversation, and what to do about it.

use std::path::PathBuf;

use minijinja::ErrorKind;
use tunebox_foundation::explain::{Explain, Snippet};

use super::functions::Refusal;
use crate::tokenizer::error::TokenizerError;

/// What can be wrong between a conversation and its tokens.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(category = "chat")]
pub enum ChatError {
    /// The template cannot be read, or fails while it renders.
    #[error("{0}")]
    #[explain(location = _0.location(), snippet = _0.snippet(), why = _0.why.clone(), hint = _0.hint())]
    Template(Box<TemplateFault>),
    /// The template refuses the conversation by `raise_exception`.
    #[error("the chat template refuses this conversation: {message}")]
    #[explain(hint = "the order of roles is what most templates check")]
    Refused {
        /// The template's own words.
        message: String,
    },
    /// A file beside the template cannot be read.
    #[error("`{}` cannot be read", path.display())]
    #[explain(why = "{source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
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
    /// Nobody answers.
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

/// A template that fails, and where.
#[derive(Debug, thiserror::Error)]
#[error("the chat template {what}")]
pub struct TemplateFault {
    /// What is wrong, after "the chat template".
    pub what: String,
    /// The line, from 1, and its text.
    pub line: Option<(usize, String)>,
    /// The first wrong character of the line, from 1, and how many; 0 where the whole line is meant.
    pub column: (usize, usize),
    /// What lies behind it.
    pub why: Option<String>,
    /// Whether it ran out of its allowance.
    pub endless: bool,
}

impl TemplateFault {
    fn location(&self) -> Option<String> {
        self.line.as_ref().map(|(line, _)| format!("chat template:{line}"))
    }

    fn snippet(&self) -> Option<Snippet> {
        let (line, text) = self.line.clone()?;
        Some(Snippet { line, text, column: self.column.0, width: self.column.1, note: None })
    }

    fn hint(&self) -> Option<String> {
        self.endless.then(|| "use the template that came with the model".into())
    }
}

impl ChatError {
    /// A template that is wrong as a whole; `what` follows "the chat template".
    pub(super) fn broken(what: String) -> Self {
        let fault = TemplateFault { what, line: None, column: (0, 0), why: None, endless: false };
        Self::Template(Box::new(fault))
    }

    /// Sorts an error of the template engine; `source` is the template as its author wrote it.
    pub(super) fn from_engine(error: &minijinja::Error, source: &str) -> Self {
        if let Some(refusal) = find_refusal(error) {
            return Self::Refused { message: refusal.0.clone() };
        }

        let endless = error.kind() == ErrorKind::OutOfFuel;
        let what = match (error.kind(), error.detail()) {
            (ErrorKind::OutOfFuel, _) => "does not come to an end".to_owned(),
            (ErrorKind::SyntaxError, Some(detail)) => format!("cannot be read: {detail}"),
            (kind, Some(detail)) => format!("fails: {kind}: {detail}"),
            (kind, None) => format!("fails: {kind}"),
        };
        let text = error.line().and_then(|line| Some((line, source.lines().nth(line.checked_sub(1)?)?.to_owned())));
        let column = text.as_ref().map_or((0, 0), |(line, text)| column_of(error, source, *line, text));
        let why = std::error::Error::source(error).map(ToString::to_string);
        Self::Template(Box::new(TemplateFault { what, line: text, column, why, endless }))
    }
}

/// The refusal behind an error, however deep a macro buried it.
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

/// Column and width of the fault, where the engine's range lies on the line as the author wrote it.
fn column_of(error: &minijinja::Error, source: &str, line: usize, text: &str) -> (usize, usize) {
    let begin: usize = source.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let Some(range) = error.range() else { return (0, 0) };
    let (Some(from), to) = (range.start.checked_sub(begin), range.end.saturating_sub(begin).min(text.len())) else {
        return (0, 0);
    };
    match (text.get(..from), text.get(from..to)) {
        (Some(before), Some(wrong)) if !wrong.is_empty() => (before.chars().count() + 1, wrong.chars().count()),
        _ => (0, 0),
    }
}
