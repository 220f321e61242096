//! Why a package is not taken, each reason with words of its own.
//!
//! All of them end with exit code 4, and all of them come before anything is installed or compiled.

mod words;

use crate::Error;
use crate::signature::Signer;
use crate::statement::Statement;

/// A package that is not taken.
#[derive(Debug, thiserror::Error)]
#[error("{refusal}")]
pub struct TrustError {
    /// The package as `NAME@VERSION`; empty where its bytes do not say.
    pub title: String,
    /// Where it came from; empty where nobody said.
    pub source_name: String,
    /// Why it is not taken.
    pub refusal: Box<Refusal>,
}

/// Why a package is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Bytes that are no package, or one that this program does not understand.
    #[error("{0}")]
    Unreadable(Box<Error>),
    /// Other bytes than those that are pinned.
    #[error("this package is not the one in the lock")]
    Digest {
        /// The digest of its bytes.
        digest: String,
        /// The digest that is pinned.
        locked: String,
    },
    /// Another package than was asked for.
    #[error("the registry gave another package than was asked for")]
    Misnamed {
        /// What was asked for.
        asked: String,
    },
    /// A signature that is no signature.
    #[error("the signature cannot be read")]
    Malformed {
        /// What is wrong with it.
        problem: String,
    },
    /// A signature of minisign that was made for something that is no package.
    #[error("this signature was made for something else")]
    Foreign {
        /// Its trusted comment.
        comment: String,
    },
    /// A signature of a package, but not of this one.
    #[error("this is the signature of another package")]
    OtherPackage {
        /// The package that it names.
        signed: String,
    },
    /// A signature that these bytes do not bear out.
    #[error("this package is not what was signed")]
    Signature {
        /// The digest of its bytes.
        digest: String,
        /// The key that it names.
        key: String,
    },
    /// A package of a registry that nobody vouches for.
    #[error("this package is not signed")]
    Unsigned {
        /// The signer that it had before.
        before: Option<String>,
    },
    /// Another signer than the one that is known.
    #[error("another key signs it than before")]
    KeyChanged {
        /// The key that signs it now.
        now: String,
        /// The key that is known.
        before: String,
        /// What knows it, as a clause that the key ends.
        known: String,
        /// What to take out where, as a clause.
        forget: String,
    },
    /// An older version than one that was seen.
    #[error("this version is older than one that was used here")]
    Downgrade {
        /// The highest version that was seen.
        highest: String,
    },
    /// A name that could be taken for another.
    #[error("its name looks like `{like}`")]
    LookAlike {
        /// The name that it resembles.
        like: String,
        /// What has that name, as a noun.
        owner: String,
    },
    /// A package that the lock does not hold, where nothing else is taken.
    #[error("it is not in the lock")]
    NotLocked {
        /// The version that is there.
        locked: Option<String>,
    },
    /// A package from a path that the lock does not hold, where nothing else is taken.
    #[error("it is not in the lock")]
    PathNotLocked,
    /// A package of another registry or namespace than the lock says, where nothing else is taken.
    #[error("it is from another place than the one in the lock")]
    OtherSource {
        /// Where the pinned one is from.
        locked: String,
    },
    /// A signer whom nobody has accepted.
    #[error("nobody here has accepted its signer")]
    NotAccepted {
        /// The signer.
        signer: Signer,
        /// What the signer signs for.
        prefix: String,
    },
    /// A signer whom the lock names, and nobody has accepted.
    #[error("nobody here has accepted its signer")]
    OnlyLocked {
        /// The signer.
        signer: Signer,
        /// What the signer signs for.
        prefix: String,
    },
    /// A signer whom nobody has accepted, and against whom something speaks.
    #[error("its signer is new here, and something speaks against it")]
    Doubtful {
        /// The signer.
        signer: Signer,
        /// What does, each a clause.
        doubts: Vec<String>,
    },
    /// A known signer, and a name that stands for an unsigned package from elsewhere.
    #[error("it would take the place of a package that nobody signed")]
    Replaces {
        /// The signer.
        signer: Signer,
        /// What says so, each a clause.
        doubts: Vec<String>,
    },
}

impl Refusal {
    /// The same, where this other one would follow: what is to be taken out is said of both at once.
    pub(super) fn before(self, next: Self) -> Self {
        match (self, next) {
            (Self::KeyChanged { now, before, known, forget }, Self::KeyChanged { forget: more, .. }) => {
                Self::KeyChanged { now, before, known, forget: format!("{forget} and {more}") }
            }
            (first, _) => first,
        }
    }
}

impl TrustError {
    /// A refusal of what comes from a place.
    pub(crate) fn new(source: &str, refusal: Refusal) -> Self {
        Self { title: String::new(), source_name: source.to_owned(), refusal: Box::new(refusal) }
    }

    /// The same for a package whose name is known.
    #[must_use]
    pub(crate) fn of(mut self, statement: &Statement) -> Self {
        self.title = statement.title();
        self
    }
}
