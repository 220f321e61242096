//! What an error tells a person: what, where, why, what was kept, what to do.
//!
//! Every library error implements [`Explain`]; only the command line turns an [`Explanation`]
//! into text, so no library knows about terminals.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Everything there is to say about one failure. It can be handed from one process to another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The room or subject, as in `error[area]`.
    pub area: Cow<'static, str>,
    /// What is wrong, in one lower-case clause without a full stop.
    pub what: String,
    /// Where: `path:line:column`, or what the machine was doing.
    pub place: Option<String>,
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
    pub fn new(area: &'static str, what: impl Into<String>) -> Self {
        Self { area: area.into(), what: what.into(), ..Self::default() }
    }

    /// The same with the place where it went wrong.
    #[must_use]
    pub fn with_place(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
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
    fn area(&self) -> &'static str;

    /// Where it went wrong.
    fn place(&self) -> Option<String> {
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
            area: self.area().into(),
            what: self.to_string(),
            place: self.place(),
            snippet: self.snippet(),
            output: self.output(),
            why: self.why(),
            kept: self.kept(),
            hint: self.hint(),
            trace: self.trace(),
        }
    }
}
