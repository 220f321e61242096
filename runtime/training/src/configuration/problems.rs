//! The problems of a configuration: collected instead of reported one a run, located, sorted, bounded in number.

use tunebox_foundation::explain::{Exit, Explain, Explanation};

use super::document::{Document, Underline};
use crate::error::Error;

/// Most errors that one message shows.
const MAX_SHOWN: usize = 20;

/// Most problems that a check of a document collects.
const MAX_COLLECTED: usize = 200;

/// A problem with the setting at a dotted key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Problem {
    /// The dotted key of the setting.
    pub(super) key: String,
    /// The part of the setting that is wrong.
    pub(super) underline: Underline,
    /// What is wrong, and what to do; without a location.
    pub(super) explanation: Explanation,
    /// The text beside the underlined part.
    pub(super) note: Option<String>,
}

/// Adds a problem to those that a check of a document found. Does nothing if there are [`MAX_COLLECTED`] already.
pub(super) fn add_problem(problems: &mut Vec<Problem>, problem: Problem) {
    if problems.len() < MAX_COLLECTED {
        problems.push(problem);
    }
}

/// Turns each problem into an error with its location in the document.
pub(super) fn locate(problems: Vec<Problem>, document: &Document) -> Vec<Error> {
    let located = |problem: Problem| document.error(&problem.key, problem.underline, problem.explanation, problem.note);
    problems.into_iter().map(located).collect()
}

/// Joins the errors of one check to one error: the first of them, with the others as its further errors. Errors with a
/// line of the run file come first, sorted by position. Equal errors count once, and at most [`MAX_SHOWN`] are shown.
/// An error whose exit code is not the one of wrong usage is returned alone. `Ok` without errors.
///
/// # Errors
/// The joined error.
pub(crate) fn join(mut errors: Vec<Error>) -> Result<(), Error> {
    if let Some(other) = errors.iter().position(|error| error.exit() != Exit::Usage) {
        return Err(errors.swap_remove(other));
    }
    if errors.len() == 1 {
        return errors.pop().map_or(Ok(()), Err);
    }
    let mut all: Vec<Explanation> = Vec::with_capacity(errors.len());
    for explanation in errors.iter().map(Error::explanation) {
        if !all.contains(&explanation) {
            all.push(explanation);
        }
    }
    // A missing setting and a `--set` have no line, and stay in the order in which they were found.
    all.sort_by_key(|error| error.snippet.as_ref().map_or((usize::MAX, 0), |snippet| (snippet.line, snippet.column)));
    if all.len() > MAX_SHOWN {
        let hidden = all.len() - MAX_SHOWN;
        all.truncate(MAX_SHOWN);
        let count = if hidden + MAX_SHOWN >= MAX_COLLECTED { format!("at least {hidden}") } else { hidden.to_string() };
        all.push(Explanation::new("config", format!("{count} more problems are not shown")));
    }
    let mut all = all.into_iter();
    let Some(first) = all.next() else { return Ok(()) };
    Err(Explanation { further: all.collect(), ..first }.into())
}
