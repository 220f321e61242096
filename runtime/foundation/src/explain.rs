//! The parts of an error message: what happened, where, why, what was kept, what to do.
//!
//! Every error of a library implements [`Explain`], usually by its derive macro. Only the command line turns an
//! [`Explanation`] into text.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};
pub use tunebox_explain_derive::Explain;

/// All parts of one error message. Serializable, because a worker process sends it to the program that started it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}")]
pub struct Explanation {
    /// The area of the error, as `model` in `error[model]`.
    pub category: Cow<'static, str>,
    /// What happened, in one lower-case clause without a full stop.
    pub what: String,
    /// Where it happened: `path:line:column`, or the step or operation.
    pub location: Option<String>,
    /// The line of a file that is wrong.
    pub snippet: Option<Snippet>,
    /// The output of a compiler, shown instead of `location` and `snippet`.
    #[serde(default)]
    pub output: Option<String>,
    /// The cause, in one sentence.
    pub why: Option<String>,
    /// What was saved before the error, such as the last checkpoint.
    pub kept: Option<String>,
    /// What to do, as a command where possible.
    pub hint: Option<String>,
    /// The call stack inside the method.
    #[serde(default)]
    pub trace: Option<Trace>,
    /// Further errors that the same check found, each without `further` of its own; empty for most errors.
    #[serde(default)]
    pub further: Vec<Explanation>,
}

/// The call stack inside a method at the time of the error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// One line per function, innermost first, with file and line if the component has debug information.
    pub frames: Vec<String>,
    /// Whether the component has debug information; if so, the stack is shown even without `--verbose`.
    pub located: bool,
}

impl Explanation {
    /// Creates an explanation with a category and what happened; the other parts are empty.
    pub fn new(category: &'static str, what: impl Into<String>) -> Self {
        Self { category: category.into(), what: what.into(), ..Self::default() }
    }

    /// Sets the location of the error: `path:line:column`, or the step or operation.
    #[must_use]
    pub fn with_location(mut self, location: impl Into<String>) -> Self {
        self.location = Some(location.into());
        self
    }

    /// Sets the wrong line of a file that the message shows.
    #[must_use]
    pub fn with_snippet(mut self, snippet: Snippet) -> Self {
        self.snippet = Some(snippet);
        self
    }

    /// Sets the cause, one sentence.
    #[must_use]
    pub fn with_why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// Sets what was saved before the error, such as the last checkpoint.
    #[must_use]
    pub fn with_kept(mut self, kept: impl Into<String>) -> Self {
        self.kept = Some(kept.into());
        self
    }

    /// Sets the hint: what the user should do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A line of a file with the part of it that is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snippet {
    /// The line's number, from 1.
    pub line: usize,
    /// The line itself.
    pub text: String,
    /// The column of the first wrong character, in characters from 1; 0 if the whole line is wrong.
    pub column: usize,
    /// How many characters are wrong.
    pub width: usize,
    /// A short text beside the carets that mark the wrong characters.
    pub note: Option<String>,
}

impl Snippet {
    /// Creates a snippet of the line of `text` in which the byte range `range` begins, without a note. Marks the part
    /// of the range in that line as wrong, at least one character. A range that begins past the end of the text is
    /// taken to begin at the end, and one that begins inside a character at that character.
    #[must_use]
    pub fn of(text: &str, range: &Range<usize>) -> Self {
        let (before, after) = text.split_at(text.floor_char_boundary(range.start));
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let covered = after.get(..range.end.saturating_sub(before.len())).unwrap_or(after);
        Self {
            line: before.matches('\n').count() + 1,
            text: text[begin..].lines().next().unwrap_or_default().to_owned(),
            column: before[begin..].chars().count() + 1,
            width: covered.lines().next().unwrap_or_default().chars().count().max(1),
            note: None,
        }
    }
}

/// The exit code of the program, by the kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Exit {
    /// A check or comparison failed.
    No = 1,
    /// A wrong argument, file or setting, or a feature that this machine lacks.
    Usage = 2,
    /// The sandbox refused or stopped a method.
    Sandbox = 3,
    /// A digest, signature or name does not match.
    Trust = 4,
    /// The user interrupted the run.
    Interrupted = 130,
}

/// An error that provides the parts of its message, usually by the derive macro of this name.
///
/// `Display` gives what happened: lower case, no full stop, values in backticks.
pub trait Explain: std::error::Error {
    /// All parts of the message; parts that the error does not provide are empty.
    fn explanation(&self) -> Explanation;

    /// The exit code of the program if it ends with this error: [`Exit::Usage`] unless the error says otherwise.
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    /// The area of the error, as `model` in `error[model]`.
    fn category(&self) -> Cow<'static, str> {
        self.explanation().category
    }

    /// The location of the error, if the error provides one.
    fn location(&self) -> Option<String> {
        self.explanation().location
    }

    /// The cause in one sentence, if the error provides it.
    fn why(&self) -> Option<String> {
        self.explanation().why
    }

    /// What the user should do, if the error provides a hint.
    fn hint(&self) -> Option<String> {
        self.explanation().hint
    }
}

impl Explain for Explanation {
    /// Returns a copy of itself.
    fn explanation(&self) -> Explanation {
        self.clone()
    }
}

impl<E: Explain> Explain for Box<E> {
    fn explanation(&self) -> Explanation {
        (**self).explanation()
    }

    fn exit(&self) -> Exit {
        (**self).exit()
    }
}

/// Returns `Ok` if `condition` holds, else the error that `error` builds.
///
/// # Errors
/// The result of `error`, if the condition does not hold.
pub fn ensure<E>(condition: bool, error: impl FnOnce() -> E) -> Result<(), E> {
    if condition { Ok(()) } else { Err(error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error, Explain)]
    #[explain(category = "test", exit = Sandbox)]
    enum Failure {
        #[error("`{name}` is too large")]
        #[explain(location = "{name}:{line}", why = (*line > 1).then(|| "more than 1".to_owned()), hint = "use {{1}}")]
        Large { name: String, line: u32 },
        #[error("{0} of {1}")]
        #[explain(category = "pair", hint = "not {_0} but {_1:?}", exit = No)]
        Pair(u32, String),
        #[error(transparent)]
        #[explain(source, hint = "from outside")]
        Inner(Box<Wrapped>),
        #[error("nothing is given")]
        Bare,
    }

    #[derive(Debug, thiserror::Error, Explain)]
    #[error("wrapped")]
    #[explain(category = "inner", why = "the cause", hint = "unused", exit = Trust)]
    struct Wrapped;

    #[test]
    fn each_variant_answers_by_its_own_arguments_then_by_those_of_the_type() {
        let large = Failure::Large { name: "a".into(), line: 2 }.explanation();
        assert_eq!((large.category.as_ref(), large.what.as_str()), ("test", "`a` is too large"));
        assert_eq!(large.location.as_deref(), Some("a:2"));
        assert_eq!((large.why.as_deref(), large.hint.as_deref()), (Some("more than 1"), Some("use {1}")));
        assert_eq!(Failure::Large { name: "a".into(), line: 1 }.why(), None);

        let pair = Failure::Pair(1, "b".into());
        assert_eq!(
            (pair.category().as_ref(), pair.hint().as_deref(), pair.exit()),
            ("pair", Some("not 1 but \"b\""), Exit::No)
        );
        assert_eq!((Failure::Bare.hint(), Failure::Bare.exit()), (None, Exit::Sandbox));
    }

    #[test]
    fn an_error_with_a_source_answers_as_the_source_does_except_where_it_says_more() {
        let inner = Failure::Inner(Box::new(Wrapped));
        assert_eq!((inner.category().as_ref(), inner.exit()), ("inner", Exit::Trust));
        assert_eq!((inner.why().as_deref(), inner.hint().as_deref()), (Some("the cause"), Some("from outside")));
    }
}
