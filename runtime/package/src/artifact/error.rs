//! What can be wrong with an artifact that somebody else wrote.

use tunebox_foundation::explain::{Exit, Explain};
use tunebox_foundation::printable::printable;

/// Why an artifact is no package, or not the one that was named.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// It is of another kind.
    #[error("this is not a WebAssembly package: its {what} is `{found}`")]
    MediaType {
        /// The part of the artifact.
        what: &'static str,
        /// The media type of a package.
        wanted: &'static str,
        /// The media type that it has.
        found: String,
    },
    /// Not exactly one layer.
    #[error("this is not a WebAssembly package: it has {count} layers")]
    Layers {
        /// How many it has.
        count: usize,
    },
    /// Bytes that are not those that were named.
    #[error("the {what} is not what was named")]
    Digest {
        /// The part of the artifact.
        what: &'static str,
        /// The digest that was named.
        wanted: String,
        /// The digest of the bytes.
        found: String,
    },
    /// More or fewer bytes than were named.
    #[error("the {what} is not as long as was named")]
    Size {
        /// The part of the artifact.
        what: &'static str,
        /// How many bytes were named.
        wanted: u64,
        /// How many there are.
        found: u64,
    },
    /// More bytes than anybody needs.
    #[error("the {what} is too large for a package")]
    TooLarge {
        /// The part of the artifact.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A document that breaks the form.
    #[error("the {what} of this package cannot be used")]
    Malformed {
        /// The part of the artifact.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl ArtifactError {
    /// A document that breaks the form; the problem may quote foreign text.
    pub(crate) fn malformed(what: &'static str, problem: &str) -> Self {
        Self::Malformed { what, problem: printable(problem, 300) }
    }

    /// Bytes of another digest than was named; both may be foreign text.
    pub(crate) fn altered(what: &'static str, wanted: &str, found: &str) -> Self {
        Self::Digest { what, wanted: printable(wanted, 80), found: printable(found, 80) }
    }
}

impl Explain for ArtifactError {
    fn category(&self) -> &'static str {
        match self {
            Self::Digest { .. } | Self::Size { .. } => "trust",
            _ => "package",
        }
    }

    fn why(&self) -> Option<String> {
        Some(match self {
            Self::MediaType { wanted, .. } => {
                format!("the {wanted} of a package is missing: it may be a container image")
            }
            Self::Layers { .. } => "a package has exactly one layer, the component".into(),
            Self::Digest { wanted, found, .. } => format!("its digest is {found}, {wanted} was named"),
            Self::Size { wanted, found, .. } => format!("it has {found} bytes, {wanted} were named"),
            Self::TooLarge { size, limit, .. } => {
                format!("it has {size} bytes, {limit} fit; nothing of it was fetched")
            }
            Self::Malformed { problem, .. } => problem.clone(),
        })
    }

    fn kept(&self) -> Option<String> {
        Some("nothing was installed and nothing ran".into())
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Digest { .. } | Self::Size { .. } => "`tunebox pull` it again; if it repeats, tell the publisher",
            _ => "check the name; `tunebox push` and `wkg` write packages in the form that is read here",
        };
        Some(hint.to_owned())
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Digest { .. } | Self::Size { .. } => Exit::Trust,
            _ => Exit::Usage,
        }
    }
}
