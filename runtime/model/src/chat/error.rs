//! The errors of a chat template and a conversation, with what to do about them.

use minijinja::ErrorKind;
use tunebox_foundation::explain::{Explanation, Snippet};

use super::functions::Refusal;
use crate::error::Error;

/// Creates the explanation of an error in the category `chat`; `what` is its message.
pub(super) fn explain(what: impl Into<String>) -> Explanation {
    Explanation::new("chat", what)
}

/// The error of a chat template without line or column. `what` follows "the chat template" in its message.
pub(super) fn broken(what: &str) -> Error {
    explain(format!("the chat template {what}")).into()
}

/// The error for an answer that cannot be located in the rendered text. `number` counts answers from 1; `edge` is
/// `begins` or `ends`, whichever cannot be found; `why` is the cause.
pub(super) fn unclear(number: usize, edge: &str, why: impl Into<String>) -> Error {
    let hint = "put `{% generation %}` and `{% endgeneration %}` around the answer in the chat template";
    explain(format!("cannot determine where answer {number} {edge}")).with_why(why).with_hint(hint).into()
}

/// Converts an error of the template engine. If the template called `raise_exception`, the result shows only its
/// message and a hint about the order of roles. Else it shows the cause, and the line and column where known; a
/// template that used up its steps gets a hint. `source` is the template before its generation tags were rewritten.
pub(super) fn from_engine(error: &minijinja::Error, source: &str) -> Error {
    if let Some(refusal) = find_refusal(error) {
        let refused = explain(format!("the chat template refuses this conversation: {}", refusal.0));
        return refused.with_hint("the order of roles is what most templates check").into();
    }

    let what = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "does not come to an end".to_owned(),
        (ErrorKind::SyntaxError, Some(detail)) => format!("cannot be read: {detail}"),
        (kind, Some(detail)) => format!("fails: {kind}: {detail}"),
        (kind, None) => format!("fails: {kind}"),
    };
    let mut fault = explain(format!("the chat template {what}"));
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
    fault.into()
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
