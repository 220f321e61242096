//! Errors of an exchange with a registry.

use std::io::ErrorKind;
use std::net::ToSocketAddrs;

use tunebox_foundation::explain::Explanation;
use tunebox_foundation::printable::printable;

use super::login::Login;
use crate::Error;
use crate::error::Reason;

/// How many versions a message lists.
const MAX_LISTED: usize = 8;

const TRY_AGAIN: &str = "try again; if it repeats, check the connection and the registry";
const OWN_AUTHORITY: &str = "`SSL_CERT_FILE` names the certificates of an authority of your own";

/// Makes an explanation of the category `registry` from what happened and what to do.
pub(super) fn explain(what: impl Into<String>, hint: impl Into<String>) -> Explanation {
    Explanation::new("registry", what).with_hint(hint)
}

/// Makes the error for a name in a registry without a version. `highest` is the name with the highest existing version,
/// if one is known.
pub(crate) fn no_version(name: &str, highest: Option<String>) -> Error {
    let hint = match highest {
        Some(highest) => format!("the highest there is `{highest}`"),
        None => format!("add it, as in `{name}:0.1.0`; a path that is spelt like this begins with `./`"),
    };
    explain(format!("`{name}` names no version"), hint).into()
}

/// Makes the error for a package or version that does not exist. `place` is its location, `source` the location without
/// the version; `there` are the versions that exist, the highest last, and `nearest` the one that was probably meant.
/// Lists up to eight versions, the highest first. The hint names `nearest`, else the highest version.
pub(super) fn not_found(place: &str, source: &str, there: &[String], nearest: Option<&str>) -> Error {
    let hint = match (nearest, there.last()) {
        (Some(nearest), _) => format!("did you mean `{source}:{nearest}`?"),
        (None, Some(highest)) => format!("`tunebox pull {source}:{highest}`"),
        (None, None) => "check the name; `docker login` may be needed".into(),
    };
    let why = if there.is_empty() {
        "nothing of that name is there, or only for those who are logged in".into()
    } else {
        let shown: Vec<_> = there.iter().rev().take(MAX_LISTED).map(String::as_str).collect();
        let more = if there.len() > MAX_LISTED { " and older ones" } else { "" };
        format!("there are: {}{more}", shown.join(", "))
    };
    explain(format!("there is no `{place}`"), hint).with_why(why).into()
}

/// Makes the error for an HTTP status other than the expected ones. `place` is the location of the package, `said` the
/// registry's message, and `wait` the seconds after which to try again, used for status 429 only. The reason is
/// [`Reason::Unreachable`] for 429 and from 500 on, else [`Reason::Other`].
pub(super) fn bad_status(place: &str, registry: &str, status: u16, said: Option<String>, wait: Option<u64>) -> Error {
    let answers = format!("`{registry}` answers with status {status}");
    let busy = format!("`{registry}` was asked too often");
    let (reason, what, hint) = match (status, wait) {
        (403, _) => {
            let hint = format!("ask for the right to it, or log in as another user: `docker login {registry}`");
            (Reason::Other, format!("`{registry}` does not allow it"), hint)
        }
        (429, Some(seconds)) => (Reason::Unreachable, busy, format!("try again in {seconds} seconds")),
        (429, None) => {
            (Reason::Unreachable, busy, "try again later; those who are logged in may often ask more".into())
        }
        (500.., _) => (Reason::Unreachable, answers, "try again; if it repeats, tell its operator".into()),
        _ => {
            (Reason::Other, answers, "check that the host is a registry, and that it takes WebAssembly packages".into())
        }
    };
    let why = said.map(|said| format!("it says: {said}"));
    reason.error(Explanation { why, ..explain(what, hint).with_location(place) })
}

/// Makes the error for a request about the package at `place` that the registry rejects for lack of a valid login.
/// `login` is the one that was found: rejected, unusable, withheld for lack of encryption, or missing.
pub(super) fn unauthorized(place: &str, registry: &str, login: Option<&Login>) -> Error {
    let (wants, hint) = (format!("`{registry}` wants a login"), format!("`docker login {registry}`"));
    let error = match login {
        Some(Login::Password(..) | Login::Identity(_)) => {
            explain(format!("`{registry}` does not take the login"), hint)
        }
        Some(Login::Unusable(problem)) => explain(wants, format!("fix it, or log in again: {hint}")).with_why(problem),
        Some(Login::Withheld) => {
            let hint = format!("reach it encrypted, without `--plain-http`; {OWN_AUTHORITY}");
            let error = explain(format!("{wants}, and none is sent without encryption"), hint);
            error.with_why("anyone on the network path could read it")
        }
        Some(Login::Nobody) | None => explain(wants, hint),
    };
    error.with_location(place).into()
}

/// Makes the error for a redirect to the host `to` without encryption, where that is not allowed.
pub(super) fn insecure_redirect(registry: &str, to: &str) -> Error {
    let error = explain(format!("`{registry}` leads to `{to}`, without encryption"), "tell its operator");
    error.with_why("what is asked in secret must not be asked in the open").into()
}

/// Makes the error for a download that ended early. `what` is the part of the package, `place` its location; `wanted`
/// and `found` are bytes.
pub(super) fn truncated(what: &str, place: &str, wanted: u64, found: u64) -> Error {
    let error = explain(format!("the {what} ended early"), TRY_AGAIN).with_location(place);
    let why = format!("{found} of {wanted} bytes came");
    Reason::Unreachable.error(error.with_why(why).with_kept("nothing was installed"))
}

/// Makes the error for a connection that ended, or an answer that breaks the protocol; `problem` says which.
pub(super) fn broken_connection(registry: &str, problem: impl Into<String>) -> Error {
    let what = format!("the connection to `{registry}` broke");
    Reason::Unreachable.error(explain(what, TRY_AGAIN).with_why(problem))
}

/// Turns a failure of the HTTP client into an error: refused, timed out, TLS, ended early, unknown host, or broken.
/// `secure` says whether the connection uses TLS. Resolves the host's name once more if nothing else fits.
pub(super) fn no_answer(registry: &str, secure: bool, error: &ureq::Error) -> Error {
    use ureq::Error as Http;
    let (kind, problem) = match error {
        Http::Io(error) => (Some(error.kind()), error.to_string()),
        error => (None, error.to_string()),
    };
    let problem = printable(&problem, 200);
    match (error, kind) {
        (Http::Timeout(_), _) | (_, Some(ErrorKind::TimedOut | ErrorKind::WouldBlock)) => {
            Reason::Unreachable.error(explain(format!("`{registry}` does not answer in time"), TRY_AGAIN))
        }
        (_, Some(ErrorKind::ConnectionRefused)) => {
            let hint = "check host and port, and that the registry is running";
            explain(format!("`{registry}` refuses the connection"), hint).into()
        }
        (Http::Tls(_) | Http::Rustls(_) | Http::Pem(_), _) => not_encrypted(registry, problem),
        (_, Some(ErrorKind::InvalidData)) if secure => not_encrypted(registry, problem),
        (
            _,
            Some(
                ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe,
            ),
        ) => broken_connection(registry, "it ended in the middle"),
        // The system has no error kind for an unknown host, so the name is resolved once more.
        (Http::HostNotFound | Http::Io(_), _) if kind.is_none() || !can_resolve(registry) => {
            let hint = "check the name of the registry and the connection; a folder that is called so begins with `./`";
            explain(format!("there is no `{registry}` to be found"), hint).into()
        }
        _ => broken_connection(registry, problem),
    }
}

/// Makes the error for a TLS connection that cannot be made; `problem` says why.
fn not_encrypted(registry: &str, problem: String) -> Error {
    let hint = format!("{OWN_AUTHORITY}; `--plain-http` does without");
    explain(format!("no encrypted connection to `{registry}`"), hint).with_why(problem).into()
}

/// Whether the name of a host, with or without a port, resolves to an address. Asks the system's resolver.
fn can_resolve(authority: &str) -> bool {
    let port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let whole = if port { authority.to_owned() } else { format!("{authority}:443") };
    whole.to_socket_addrs().is_ok()
}
