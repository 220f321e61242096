//! Refusals: why a package is not trusted. All of them come before anything is installed, compiled or run.

use tunebox_foundation::explain::{Exit, Explain, Explanation};

use crate::Error;
use crate::error::Reason;

/// What every refusal says was left unchanged.
pub(crate) const NOTHING_CHANGED: &str = "nothing was installed and nothing ran";

/// The hint against bytes that were altered.
pub(crate) const GET_AGAIN: &str = "get it again; if it repeats, tell the publisher";

/// Makes the error for a package that is not trusted, with exit code 4: what is wrong with it, why, and what to do.
pub(crate) fn refuse(what: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Error {
    Reason::Untrusted.error(explain(what, why, hint))
}

/// Makes the explanation of a refusal from what is wrong, why, and what to do. It says that nothing was installed or
/// run.
pub(crate) fn explain(what: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Explanation {
    Explanation::new("trust", what).with_why(why).with_kept(NOTHING_CHANGED).with_hint(hint)
}

/// Turns the error of bytes that are no package into a refusal. An error that ends with the sandbox's exit code, such
/// as another version of the contract, keeps its hint and exit code.
pub(crate) fn refuse_unreadable(error: &Error) -> Error {
    // Another version of the contract and precompiled code are no question of trust: they keep their hint and exit
    // code.
    let is_sandbox = error.exit() == Exit::Sandbox;
    let hint = if is_sandbox { error.hint() } else { Some(GET_AGAIN.to_owned()) };
    let what = Explanation::new("trust", error.to_string()).with_kept(NOTHING_CHANGED);
    let reason = if is_sandbox { Reason::Sandbox } else { Reason::Untrusted };
    reason.error(Explanation { why: error.why(), hint, ..what })
}

/// Makes the refusal of a package that the key `now` signs and not the known key `before`. The clause `known` stands
/// before that known key in the message; `forget` says which entry to remove from which file if the new key is right.
pub(super) fn refuse_key(now: &str, before: &str, known: &str, forget: &str) -> Error {
    let why = format!("{known} {before}, this one is signed by {now}");
    let hint = format!("ask the publisher, not by way of the registry; if the new key is theirs, take {forget}");
    refuse("another key signs it than before", why, hint)
}

/// Sets the location of a refusal: the package (`NAME@VERSION`; if empty, the present location) and where it came from,
/// if that is not empty. Does nothing to errors of other kinds.
pub(crate) fn locate(error: Error, title: &str, origin: &str) -> Error {
    let Error::Explained { mut source, reason } = error else { return error };
    let present = source.location.take().unwrap_or_default();
    let location = match (if title.is_empty() { &present } else { title }, origin) {
        ("", one) | (one, "") => one.to_owned(),
        (title, origin) => format!("{title} from {origin}"),
    };
    source.location = Some(location).filter(|location| !location.is_empty());
    Error::Explained { source, reason }
}

/// Returns the first 12 characters of a digest for messages, with an ellipsis if there are more.
pub(crate) fn shorten(digest: &str) -> String {
    let begin: String = digest.chars().take(12).collect();
    if begin.len() < digest.len() { format!("{begin}…") } else { begin }
}
