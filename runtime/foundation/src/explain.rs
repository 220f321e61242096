//! What an error tells a person: what, where, why, what was kept, what to do.
//!
//! Every library error implements [`Explain`]; only the command line turns an [`Explanation`]
//! into text, so no library knows about terminals.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
pub use tunebox_explain_derive::Explain;

/// Everything there is to say about one failure. It can be handed from one process to another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The room or subject, as in `error[area]`.
    pub category: Cow<'static, str>,
    /// What is wrong, in one lower-case clause without a full stop.
    pub what: String,
    /// Where: `path:line:column`, or what the machine was doing.
    pub location: Option<String>,
    /// The line of a file that is wrong.
    pub snippet: Option<Snippet>,
    /// What a compiler says of it in its own form, with places and lines of its own; then those above are not shown.
    #[serde(default)]
    pub output: Option<String>,
    /// The cause, in one sentence.
    pub why: Option<String>,
    /// What survived the failure.
    pub kept: Option<String>,
    /// What to do, as a command where possible.
    pub hint: Option<String>,
    /// The functions of a method that were running.
    #[serde(default)]
    pub trace: Option<Trace>,
}

/// The functions of a method that were running when it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// One function each, innermost first, with file and line where they are known.
    pub frames: Vec<String>,
    /// Whether the method keeps names and lines, so that its author wants to see them unasked.
    pub located: bool,
}

impl Explanation {
    /// An explanation that holds only its area and what is wrong.
    pub fn new(category: &'static str, what: impl Into<String>) -> Self {
        Self { category: category.into(), what: what.into(), ..Self::default() }
    }

    /// The same with the place where it went wrong.
    #[must_use]
    pub fn with_location(mut self, location: impl Into<String>) -> Self {
        self.location = Some(location.into());
        self
    }

    /// The same with the line that is wrong.
    #[must_use]
    pub fn with_snippet(mut self, snippet: Snippet) -> Self {
        self.snippet = Some(snippet);
        self
    }

    /// The same with its cause.
    #[must_use]
    pub fn with_why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// The same with what survived.
    #[must_use]
    pub fn with_kept(mut self, kept: impl Into<String>) -> Self {
        self.kept = Some(kept.into());
        self
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// One line of a file, and the part of it that is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snippet {
    /// The line's number, from 1.
    pub line: usize,
    /// The line itself.
    pub text: String,
    /// The first wrong character, from 1; 0 when the whole line is meant.
    pub column: usize,
    /// How many characters are wrong.
    pub width: usize,
    /// A word beside the carets.
    pub note: Option<String>,
}

/// The exit code of the program, by the kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Exit {
    /// The answer to a question is no: a check found something.
    No = 1,
    /// A wrong argument, file or setting, or a machine that cannot do it.
    Usage = 2,
    /// The sandbox refused or ended a method.
    Sandbox = 3,
    /// A digest or signature does not match.
    Trust = 4,
    /// A person stopped the run.
    Interrupted = 130,
}

/// An error that can explain itself to a person.
///
/// Its `Display` is the "what": lower case, no full stop, values in backticks.
pub trait Explain: std::error::Error {
    /// The room or subject, as in `error[area]`.
    fn category(&self) -> &'static str;

    /// Where it went wrong.
    fn location(&self) -> Option<String> {
        None
    }

    /// The line that is wrong.
    fn snippet(&self) -> Option<Snippet> {
        None
    }

    /// What a compiler says of it in its own form.
    fn output(&self) -> Option<String> {
        None
    }

    /// The cause, in one sentence.
    fn why(&self) -> Option<String> {
        None
    }

    /// What survived.
    fn kept(&self) -> Option<String> {
        None
    }

    /// What to do about it.
    fn hint(&self) -> Option<String> {
        None
    }

    /// The functions of a method that were running.
    fn trace(&self) -> Option<Trace> {
        None
    }

    /// The exit code of the program that ends with this error.
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    /// All of the above, put together.
    fn explanation(&self) -> Explanation {
        Explanation {
            category: self.category().into(),
            what: self.to_string(),
            location: self.location(),
            snippet: self.snippet(),
            output: self.output(),
            why: self.why(),
            kept: self.kept(),
            hint: self.hint(),
            trace: self.trace(),
        }
    }
}

impl<E: Explain> Explain for Box<E> {
    fn category(&self) -> &'static str {
        (**self).category()
    }

    fn location(&self) -> Option<String> {
        (**self).location()
    }

    fn snippet(&self) -> Option<Snippet> {
        (**self).snippet()
    }

    fn output(&self) -> Option<String> {
        (**self).output()
    }

    fn why(&self) -> Option<String> {
        (**self).why()
    }

    fn kept(&self) -> Option<String> {
        (**self).kept()
    }

    fn hint(&self) -> Option<String> {
        (**self).hint()
    }

    fn trace(&self) -> Option<Trace> {
        (**self).trace()
    }

    fn exit(&self) -> Exit {
        (**self).exit()
    }
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
        #[explain(category = "pair", hint = "not {0} but {1:?}", exit = No)]
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
        assert_eq!((pair.category(), pair.hint().as_deref(), pair.exit()), ("pair", Some("not 1 but \"b\""), Exit::No));
        assert_eq!((Failure::Bare.hint(), Failure::Bare.exit()), (None, Exit::Sandbox));
    }

    #[test]
    fn an_error_with_a_source_answers_as_the_source_does_except_where_it_says_more() {
        let inner = Failure::Inner(Box::new(Wrapped));
        assert_eq!((inner.category(), inner.exit()), ("inner", Exit::Trust));
        assert_eq!((inner.why().as_deref(), inner.hint().as_deref()), (Some("the cause"), Some("from outside")));
    }
}
