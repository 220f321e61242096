//! Why a package does not get to a registry, or from one.

use std::io::{self, ErrorKind};
use std::net::ToSocketAddrs;
use std::path::PathBuf;

use tunebox_foundation::explain::{Exit, Explain};
use tunebox_foundation::printable::printable;

use crate::Error;
use crate::artifact::ArtifactError;

/// How many versions a message lists.
const MOST_LISTED: usize = 8;

const TRY_AGAIN: &str = "try again; if it repeats, check the connection and the registry";

/// Why a package does not get to a registry, or from one.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(category = "registry")]
pub enum RegistryError {
    /// A name without a version.
    #[error("`{place}` names no version")]
    #[explain(hint = highest.as_ref().map_or_else(
        || format!("add it, as in `{place}:0.1.0`; a path that is spelt like this begins with `./`"),
        |highest| format!("the highest there is `{highest}`"),
    ))]
    NoVersion {
        /// The name.
        place: String,
        /// The name with the highest version that exists.
        highest: Option<String>,
    },
    /// A package pushed to the name or version of another.
    #[error("the package is `{title}`, it cannot go to `{place}`")]
    #[explain(hint = "leave the version out, and end the place with the package's name")]
    Misnamed {
        /// The destination.
        place: String,
        /// The package's name and version.
        title: String,
    },
    /// A network is needed and `--offline` forbids it.
    #[error("`{place}` is on a network, and none is used offline")]
    #[explain(hint = "leave `--offline` out, or use what was pulled before: `tunebox list`")]
    Offline {
        /// The package.
        place: String,
    },
    /// No server listens at the address.
    #[error("`{registry}` refuses the connection")]
    #[explain(hint = "check host and port, and that the registry is running")]
    Refused {
        /// The registry.
        registry: String,
    },
    /// A host name without an address.
    #[error("there is no `{registry}` to be found")]
    #[explain(hint = "check the name of the registry and the connection; a folder that is called so begins with `./`")]
    NotResolved {
        /// The registry.
        registry: String,
    },
    /// A failed TLS handshake.
    #[error("no encrypted connection to `{registry}`")]
    #[explain(
        why = problem.clone(),
        hint = "`SSL_CERT_FILE` names the certificates of an authority of your own; `--plain-http` does without"
    )]
    Tls {
        /// The registry.
        registry: String,
        /// What is wrong.
        problem: String,
    },
    /// A file of certificates without any.
    #[error("there is no certificate in `{file}`", file = file.display())]
    #[explain(hint = "it must hold certificates in the form PEM")]
    Certificates {
        /// The file.
        file: PathBuf,
    },
    /// A redirect from an encrypted address to one without encryption.
    #[error("`{registry}` leads to `{to}`, without encryption")]
    #[explain(why = "what is asked in secret must not be asked in the open", hint = "tell whoever runs the registry")]
    Insecure {
        /// The registry.
        registry: String,
        /// The host of the redirect.
        to: String,
    },
    /// A time limit that passed without an answer.
    #[error("`{registry}` does not answer in time")]
    #[explain(hint = TRY_AGAIN.to_owned(), exit = No)]
    TimedOut {
        /// The registry.
        registry: String,
    },
    /// A connection that ended, or an answer that breaks the protocol.
    #[error("the connection to `{registry}` broke")]
    #[explain(why = problem.clone(), hint = TRY_AGAIN.to_owned(), exit = No)]
    Broken {
        /// The registry.
        registry: String,
        /// What happened.
        problem: String,
    },
    /// More redirects than are followed.
    #[error("`{registry}` leads from address to address without end")]
    #[explain(hint = "tell whoever runs the registry, or a proxy in front of it")]
    Redirects {
        /// The registry.
        registry: String,
    },
    /// A login that is missing or rejected.
    #[error("`{registry}` {}", if *tried { "does not take the login" } else { "wants a login" })]
    #[explain(location = place.clone(), why = problem.clone(), hint = match problem {
        None => format!("`docker login {registry}`"),
        Some(_) => format!("mend that, or log in anew: `docker login {registry}`"),
    })]
    Unauthorised {
        /// The package.
        place: String,
        /// The registry.
        registry: String,
        /// Whether a login was sent.
        tried: bool,
        /// Why an existing login could not be used.
        problem: Option<String>,
    },
    /// A login that would be sent without encryption.
    #[error("`{registry}` wants a login, and none is sent without encryption")]
    #[explain(
        why = "whoever is on the way could read it",
        hint = "reach it encrypted, without `--plain-http`; `SSL_CERT_FILE` names the certificates of an authority of your own"
    )]
    LoginInTheOpen {
        /// The registry.
        registry: String,
    },
    /// A login without the permission.
    #[error("`{registry}` does not allow it")]
    #[explain(
        location = place.clone(),
        why = quote(said.as_ref()),
        hint = "ask for the right to it, or log in as somebody else: `docker login {registry}`"
    )]
    Forbidden {
        /// The package.
        place: String,
        /// The registry.
        registry: String,
        /// The registry's message.
        said: Option<String>,
    },
    /// No such package or version.
    #[error("there is no `{place}`")]
    #[explain(why = list_versions(there), hint = suggest(source_name, nearest.as_deref(), there))]
    NotFound {
        /// The package.
        place: String,
        /// The package without its version.
        source_name: String,
        /// The versions that exist, the highest last.
        there: Vec<String>,
        /// The version that was probably meant.
        nearest: Option<String>,
    },
    /// The registry's rate limit.
    #[error("`{registry}` was asked too often")]
    #[explain(hint = match wait {
        Some(seconds) => format!("try again in {seconds} seconds"),
        None => "try again later; those who are logged in may often ask more".to_owned(),
    }, exit = No)]
    TooMany {
        /// The registry.
        registry: String,
        /// Seconds to wait, if it says so.
        wait: Option<u64>,
    },
    /// Any other HTTP status.
    #[error("`{registry}` answers with status {status}")]
    #[explain(location = place.clone(), why = quote(said.as_ref()), hint = match status {
        500.. => "try again; if it repeats, tell whoever runs the registry".to_owned(),
        _ => "check that the host is a registry, and that it takes WebAssembly packages".to_owned(),
    }, exit = if *status >= 500 { Exit::No } else { Exit::Usage })]
    Status {
        /// The package.
        place: String,
        /// The registry.
        registry: String,
        /// The status.
        status: u16,
        /// The registry's message.
        said: Option<String>,
    },
    /// A download that ended early.
    #[error("the {what} ended early")]
    #[explain(
        location = place.clone(),
        why = "{found} of {wanted} bytes came",
        kept = "nothing was installed",
        hint = TRY_AGAIN.to_owned(),
        exit = No
    )]
    Truncated {
        /// The part of the package.
        what: &'static str,
        /// The package.
        place: String,
        /// The expected number of bytes.
        wanted: u64,
        /// The received number of bytes.
        found: u64,
    },
    /// A version that exists with other bytes.
    #[error("there is another package at `{place}`")]
    #[explain(
        why = "what others have pinned under a version must not change",
        hint = "raise `version` in Cargo.toml or pyproject.toml, build and pack again"
    )]
    Taken {
        /// The destination.
        place: String,
    },
    /// The same bytes exist with a signature of another key.
    #[error("the package at `{place}` has a signature that this one has not")]
    #[explain(
        why = "{signer} signed it, and who pulls it goes by that",
        hint = "push it with the signature of that key beside it, or as a new version: `tunebox pack --sign KEY`"
    )]
    Signed {
        /// The destination.
        place: String,
        /// The key that signed the existing package.
        signer: String,
    },
    /// A path that goes on, with one slash, behind a folder of packages.
    #[error("`{path}` is no folder of packages", path = path.display())]
    #[explain(
        why = format!("`{}` is one; two slashes stand between it and a package", folder.display()),
        hint = format!("`tunebox pull {}//{package}`", folder.display())
    )]
    Slashes {
        /// The path.
        path: PathBuf,
        /// The folder of packages.
        folder: PathBuf,
        /// The package that was probably meant.
        package: String,
    },
    /// A file in place of a folder of packages.
    #[error("`{path}` is a file, not a folder of packages", path = path.display())]
    #[explain(hint = format!("`tunebox inspect {}` looks at it, `--method` runs it as it is", path.display()))]
    NotFolder {
        /// The path.
        path: PathBuf,
    },
    /// An artifact that is no package, or not the one that was named.
    #[error("{source}")]
    #[explain(source, location = place.clone())]
    Artifact {
        /// The package.
        place: String,
        /// What is wrong with it.
        source: ArtifactError,
    },
    /// A package or folder that cannot be read or written.
    #[error(transparent)]
    #[explain(source)]
    Package(Box<Error>),
}

impl From<Error> for RegistryError {
    fn from(error: Error) -> Self {
        match error {
            Error::Registry(error) => error,
            error => Self::Package(Box::new(error)),
        }
    }
}

impl RegistryError {
    /// Translates an error of the network; only `secure` connections can fail in TLS.
    pub(super) fn of_network(registry: String, secure: bool, error: &io::Error) -> Self {
        let problem = printable(&error.to_string(), 200);
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused { registry },
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Self::TimedOut { registry },
            ErrorKind::InvalidData if secure => Self::Tls { registry, problem },
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => Self::Broken { registry, problem: "it ended in the middle".into() },
            // The system has no error kind for an unknown host, so the name is resolved once more.
            _ if !resolves(&registry) => Self::NotResolved { registry },
            _ => Self::Broken { registry, problem },
        }
    }
}

/// Whether a host, with or without a port, has an address.
fn resolves(authority: &str) -> bool {
    let port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let whole = if port { authority.to_owned() } else { format!("{authority}:443") };
    whole.to_socket_addrs().is_ok()
}

/// The message of a registry as a cause.
fn quote(said: Option<&String>) -> Option<String> {
    said.map(|said| format!("it says: {said}"))
}

/// Lists the highest versions that exist.
fn list_versions(there: &[String]) -> String {
    if there.is_empty() {
        return "nothing of that name is there, or only for those who are logged in".into();
    }
    let shown: Vec<_> = there.iter().rev().take(MOST_LISTED).map(String::as_str).collect();
    let more = if there.len() > MOST_LISTED { " and older ones" } else { "" };
    format!("there are: {}{more}", shown.join(", "))
}

/// Suggests a version in place of a missing one.
fn suggest(source_name: &str, nearest: Option<&str>, there: &[String]) -> String {
    match (nearest, there.last()) {
        (Some(nearest), _) => format!("did you mean `{source_name}:{nearest}`?"),
        (None, Some(highest)) => format!("`tunebox pull {source_name}:{highest}`"),
        (None, None) => "check the name; `docker login` may be needed".into(),
    }
}
