//! What can go wrong between this machine and a registry, each with what to do about it.

mod explain;

use std::io::{self, ErrorKind};
use std::net::ToSocketAddrs;
use std::path::PathBuf;

use tunebox_foundation::printable::printable;

use crate::Error;
use crate::artifact::ArtifactError;

/// Why a package does not get to a registry, or from one.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A text that names no place.
    #[error("`{text}` is no place for a package")]
    Location {
        /// What was written.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A name without a version.
    #[error("`{place}` names no version")]
    NoVersion {
        /// What was asked for.
        place: String,
        /// The name with the highest version that is there.
        highest: Option<String>,
    },
    /// A package that is to go where another one belongs.
    #[error("the package is `{title}`, it cannot go to `{place}`")]
    Misnamed {
        /// Where it was to go.
        place: String,
        /// What it is.
        title: String,
    },
    /// No network is to be used.
    #[error("`{place}` is on a network, and none is used offline")]
    Offline {
        /// What was asked for.
        place: String,
    },
    /// Nobody listens there.
    #[error("`{registry}` refuses the connection")]
    Refused {
        /// The registry.
        registry: String,
    },
    /// A name that nothing knows.
    #[error("there is no `{registry}` to be found")]
    NotResolved {
        /// The registry.
        registry: String,
    },
    /// An encrypted connection that does not come about.
    #[error("no encrypted connection to `{registry}`")]
    Tls {
        /// The registry.
        registry: String,
        /// What is wrong.
        problem: String,
    },
    /// A file of certificates without any.
    #[error("there is no certificate in `{file}`", file = file.display())]
    Certificates {
        /// The file.
        file: PathBuf,
    },
    /// An address without encryption, from one with it.
    #[error("`{registry}` leads to `{to}`, without encryption")]
    Insecure {
        /// The registry.
        registry: String,
        /// Where it leads.
        to: String,
    },
    /// Nothing came for too long.
    #[error("`{registry}` does not answer in time")]
    TimedOut {
        /// The registry.
        registry: String,
    },
    /// A connection that ended, or an answer that is none.
    #[error("the connection to `{registry}` broke")]
    Broken {
        /// The registry.
        registry: String,
        /// What happened.
        problem: String,
    },
    /// Answers that lead on and on.
    #[error("`{registry}` leads from address to address without end")]
    Redirects {
        /// The registry.
        registry: String,
    },
    /// A login is missing, or not taken.
    #[error("{}", unauthorised(registry, *tried))]
    Unauthorised {
        /// What was asked for.
        place: String,
        /// The registry.
        registry: String,
        /// Whether there was a login.
        tried: bool,
        /// Why a login that is there could not be used.
        problem: Option<String>,
    },
    /// A login that would have to be sent where everybody on the way can read it.
    #[error("`{registry}` wants a login, and none is sent without encryption")]
    LoginInTheOpen {
        /// The registry.
        registry: String,
    },
    /// A login that may not do this.
    #[error("`{registry}` does not allow it")]
    Forbidden {
        /// What was asked for.
        place: String,
        /// The registry.
        registry: String,
        /// What it says.
        said: Option<String>,
    },
    /// No such package or version.
    #[error("there is no `{place}`")]
    NotFound {
        /// What was asked for.
        place: String,
        /// The same without its version.
        source_name: String,
        /// The versions that are there.
        there: Vec<String>,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// Asked too often.
    #[error("`{registry}` was asked too often")]
    TooMany {
        /// The registry.
        registry: String,
        /// Seconds to wait, if it says so.
        wait: Option<u64>,
    },
    /// An answer that nobody expects.
    #[error("`{registry}` answers with status {status}")]
    Status {
        /// What was asked for.
        place: String,
        /// The registry.
        registry: String,
        /// The status.
        status: u16,
        /// What it says.
        said: Option<String>,
    },
    /// Bytes that end early.
    #[error("the {what} ended early")]
    Truncated {
        /// The part of the package.
        what: &'static str,
        /// What was asked for.
        place: String,
        /// How many bytes there should be.
        wanted: u64,
        /// How many came.
        found: u64,
    },
    /// A version that is there with other bytes.
    #[error("there is another package at `{place}`")]
    Taken {
        /// Where it was to go.
        place: String,
    },
    /// The same bytes are there, signed by somebody else than these.
    #[error("the package at `{place}` has a signature that this one has not")]
    Signed {
        /// Where it was to go.
        place: String,
        /// The key that signed what is there.
        signer: String,
    },
    /// A path into a folder of packages, of which only the folder is one.
    #[error("`{path}` is no folder of packages", path = path.display())]
    Slashes {
        /// What was asked for.
        path: PathBuf,
        /// The folder.
        folder: PathBuf,
        /// What was probably meant, behind two slashes.
        package: String,
    },
    /// A file, where a folder of packages is wanted.
    #[error("`{path}` is a file, not a folder of packages", path = path.display())]
    NotFolder {
        /// What was asked for.
        path: PathBuf,
    },
    /// What came is no package, or not the one that was named.
    #[error("{error}")]
    Artifact {
        /// What was asked for.
        place: String,
        /// What is wrong with it.
        error: ArtifactError,
    },
    /// A package or folder that cannot be read or written.
    #[error(transparent)]
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

fn unauthorised(registry: &str, tried: bool) -> String {
    if tried { format!("`{registry}` does not take the login") } else { format!("`{registry}` wants a login") }
}

impl RegistryError {
    /// What a failure of the network means; `secure` connections fail in more ways.
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
            // The system gives no name to a host that is not found, so it is asked once more.
            _ if !resolves(&registry) => Self::NotResolved { registry },
            _ => Self::Broken { registry, problem },
        }
    }
}

/// Whether a host is known, with or without a port.
fn resolves(authority: &str) -> bool {
    let port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let whole = if port { authority.to_owned() } else { format!("{authority}:443") };
    whole.to_socket_addrs().is_ok()
}
