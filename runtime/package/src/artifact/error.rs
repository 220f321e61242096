//! Why an artifact is no package, or not the one that was named.

use tunebox_foundation::explain::Explain;
use tunebox_foundation::printable::printable;

/// Why an artifact is no package, or not the one that was named.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(
    category = "package",
    kept = "nothing was installed and nothing ran",
    hint = "check the name; `tunebox push` and `wkg` write packages in the form that is read here"
)]
pub enum ArtifactError {
    /// A media type that packages do not have.
    #[error("this is not a WebAssembly package: its {what} is `{found}`")]
    #[explain(why = "the {wanted} of a package is missing: it may be a container image")]
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
    #[explain(why = "a package has exactly one layer, the component")]
    Layers {
        /// How many it has.
        count: usize,
    },
    /// The bytes have another digest than was named.
    #[error("the {what} is not what was named")]
    #[explain(
        category = "trust",
        why = "its digest is {found}, {wanted} was named",
        hint = "`tunebox pull` it again; if it repeats, tell the publisher",
        exit = Trust
    )]
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
    #[explain(
        category = "trust",
        why = "it has {found} bytes, {wanted} were named",
        hint = "`tunebox pull` it again; if it repeats, tell the publisher",
        exit = Trust
    )]
    Size {
        /// The part of the artifact.
        what: &'static str,
        /// How many bytes were named.
        wanted: u64,
        /// How many there are.
        found: u64,
    },
    /// More bytes than a package may have.
    #[error("the {what} is too large for a package")]
    #[explain(why = "it has {size} bytes, {limit} fit; nothing of it was fetched")]
    TooLarge {
        /// The part of the artifact.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A document that breaks the form.
    #[error("the {what} of this package cannot be used")]
    #[explain(why = problem.clone())]
    Malformed {
        /// The part of the artifact.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl ArtifactError {
    /// Makes the error for a document that breaks the form. `what` is the part of the package; control characters in
    /// `problem` are escaped.
    pub(crate) fn malformed(what: &'static str, problem: &str) -> Self {
        Self::Malformed { what, problem: printable(problem, 300) }
    }

    /// Makes the error for bytes that have the digest `found` where `wanted` was named. `what` is the part of the
    /// package; control characters in both digests are escaped.
    pub(crate) fn altered(what: &'static str, wanted: &str, found: &str) -> Self {
        Self::Digest { what, wanted: printable(wanted, 80), found: printable(found, 80) }
    }
}
