//! What can go wrong between this machine and a registry, each with what to do about it.

use std::io::{self, ErrorKind};
use std::net::ToSocketAddrs;
use std::path::PathBuf;

use tunebox_compute::explain::{Exit, Explain, Snippet};
use tunebox_compute::printable::printable;

use crate::Error;
use crate::artefact::ArtefactError;

/// How many versions a message lists.
const MOST_LISTED: usize = 8;

/// Why a package does not get to a registry, or from one.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A text that names no place.
    #[error("`{text}` is no place for a package")]
    Place {
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
    /// What came is no package, or not the one that was named.
    #[error("{error}")]
    Artefact {
        /// What was asked for.
        place: String,
        /// What is wrong with it.
        error: ArtefactError,
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

impl RegistryError {
    /// The error that explains itself, where this one only carries it.
    fn inner(&self) -> Option<&dyn Explain> {
        match self {
            Self::Artefact { error, .. } => Some(error),
            Self::Package(error) => Some(error.as_ref()),
            _ => None,
        }
    }

    fn said(said: Option<&String>) -> Option<String> {
        said.map(|said| format!("it says: {said}"))
    }
}

impl Explain for RegistryError {
    fn area(&self) -> &'static str {
        self.inner().map_or("registry", Explain::area)
    }

    fn place(&self) -> Option<String> {
        match self {
            Self::Unauthorised { place, .. }
            | Self::Forbidden { place, .. }
            | Self::Status { place, .. }
            | Self::Truncated { place, .. }
            | Self::Artefact { place, .. } => Some(place.clone()),
            _ => self.inner().and_then(Explain::place),
        }
    }

    fn snippet(&self) -> Option<Snippet> {
        self.inner().and_then(Explain::snippet)
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::Place { problem, .. } | Self::Tls { problem, .. } | Self::Broken { problem, .. } => {
                Some(problem.clone())
            }
            Self::Unauthorised { problem, .. } => problem.clone(),
            Self::Forbidden { said, .. } | Self::Status { said, .. } => Self::said(said.as_ref()),
            Self::NotFound { there, .. } if there.is_empty() => {
                Some("nothing of that name is there, or only for those who are logged in".into())
            }
            Self::NotFound { there, .. } => {
                let shown: Vec<_> = there.iter().rev().take(MOST_LISTED).map(String::as_str).collect();
                let more = if there.len() > MOST_LISTED { " and older ones" } else { "" };
                Some(format!("there are: {}{more}", shown.join(", ")))
            }
            Self::Truncated { wanted, found, .. } => Some(format!("{found} of {wanted} bytes came")),
            Self::Taken { .. } => Some("what others have pinned under a version must not change".into()),
            Self::Insecure { .. } => Some("what is asked in secret must not be asked in the open".into()),
            _ => self.inner().and_then(Explain::why),
        }
    }

    fn kept(&self) -> Option<String> {
        match self {
            Self::Truncated { .. } => Some("nothing was installed".into()),
            _ => self.inner().and_then(Explain::kept),
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Place { .. } => {
                "a place is like `registry.example/me/calm:0.1.0`, or a folder: `./stick`, `./stick//calm:0.1.0`".into()
            }
            Self::NoVersion { highest: Some(highest), .. } => format!("the highest there is `{highest}`"),
            Self::NoVersion { place, .. } => format!("add it, as in `{place}:0.1.0`"),
            Self::Misnamed { .. } => "leave the version out, and end the place with the package's name".into(),
            Self::Offline { .. } => "leave `--offline` out, or use what was pulled before: `tunebox list`".into(),
            Self::Refused { .. } => "check host and port, and that the registry is running".into(),
            Self::NotResolved { .. } => "check the name of the registry and the connection".into(),
            Self::Tls { .. } => {
                "`SSL_CERT_FILE` names the certificates of an authority of your own; `--plain-http` does without".into()
            }
            Self::Certificates { .. } => "it must hold certificates in the form PEM".into(),
            Self::Insecure { .. } => "tell whoever runs the registry".into(),
            Self::TimedOut { .. } | Self::Broken { .. } | Self::Truncated { .. } => {
                "try again; if it repeats, check the connection and the registry".into()
            }
            Self::Redirects { .. } => "tell whoever runs the registry, or a proxy in front of it".into(),
            Self::Unauthorised { registry, problem: None, .. } => format!("`docker login {registry}`"),
            Self::Unauthorised { registry, .. } => format!("mend that, or log in anew: `docker login {registry}`"),
            Self::Forbidden { registry, .. } => {
                format!("ask for the right to it, or log in as somebody else: `docker login {registry}`")
            }
            Self::NotFound { source_name, nearest: Some(nearest), .. } => {
                format!("did you mean `{source_name}:{nearest}`?")
            }
            Self::NotFound { there, source_name, .. } => match there.last() {
                Some(highest) => format!("`tunebox pull {source_name}:{highest}`"),
                None => "check the name; `docker login` may be needed".into(),
            },
            Self::TooMany { wait: Some(seconds), .. } => format!("try again in {seconds} seconds"),
            Self::TooMany { .. } => "try again later; those who are logged in may often ask more".into(),
            Self::Status { status: 500.., .. } => "try again; if it repeats, tell whoever runs the registry".into(),
            Self::Status { .. } => "check that the host is a registry, and that it takes WebAssembly packages".into(),
            Self::Taken { .. } => "raise `version` in Cargo.toml, build and pack again".into(),
            Self::Artefact { .. } | Self::Package(_) => return self.inner().and_then(Explain::hint),
        })
    }

    fn exit(&self) -> Exit {
        match self {
            Self::TimedOut { .. } | Self::Broken { .. } | Self::Truncated { .. } | Self::TooMany { .. } => Exit::No,
            Self::Status { status: 500.., .. } => Exit::No,
            other => other.inner().map_or(Exit::Usage, Explain::exit),
        }
    }
}
