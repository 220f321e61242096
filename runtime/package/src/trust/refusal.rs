//! Why a package is not taken, each reason with words of its own.
//!
//! All of them end with exit code 4, and all of them come before anything is installed or compiled.

use tunebox_compute::explain::{Exit, Explain};

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
    /// A signer whom nobody has accepted.
    #[error("nobody here has accepted its signer")]
    NotAccepted {
        /// The signer.
        signer: Signer,
        /// What the signer signs for.
        prefix: String,
    },
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

    /// What the package is called in a sentence.
    fn named(&self) -> &str {
        if self.title.is_empty() { "it" } else { self.title.split('@').next().unwrap_or("it") }
    }
}

impl Explain for TrustError {
    fn area(&self) -> &'static str {
        "trust"
    }

    fn place(&self) -> Option<String> {
        match (self.title.as_str(), self.source_name.as_str()) {
            ("", "") => None,
            ("", source) => Some(source.to_owned()),
            (title, "") => Some(title.to_owned()),
            (title, source) => Some(format!("{title} from {source}")),
        }
    }

    fn why(&self) -> Option<String> {
        Some(match &*self.refusal {
            Refusal::Unreadable(error) => return error.why(),
            Refusal::Digest { digest, locked } => {
                format!("sha256 is {}, tunebox.lock holds {}", short(digest), short(locked))
            }
            Refusal::Misnamed { asked } => format!("`{asked}` was asked for, and a package says itself what it is"),
            Refusal::Malformed { problem } => problem.clone(),
            Refusal::Foreign { comment } => {
                format!("its trusted comment is `{comment}`, a package's is `tunebox NAME@VERSION key RW…`")
            }
            Refusal::OtherPackage { signed } => format!("it was made for `{signed}`"),
            Refusal::Signature { digest, key } => {
                format!("sha256 is {}, the signature of {key} covers something else", short(digest))
            }
            Refusal::Unsigned { before: Some(key) } => format!("{key} signed it before"),
            Refusal::Unsigned { before: None } => {
                "anybody who reaches the registry could have put it there; only a local path may give an unsigned one"
                    .into()
            }
            Refusal::KeyChanged { now, before, known, .. } => format!("{known} {before}, this one is signed by {now}"),
            Refusal::Downgrade { highest } => {
                format!("tunebox.lock has seen {highest}, and an old version brings its mended flaws back")
            }
            Refusal::LookAlike { owner, .. } => format!("that is {owner}, and this one is not by the same hand"),
            Refusal::NotLocked { locked: Some(version) } => {
                format!("tunebox.lock holds version {version}, and `--locked` takes nothing else")
            }
            Refusal::NotLocked { locked: None } => {
                "`--locked` takes only what tunebox.lock holds, from the signer that it names".into()
            }
            Refusal::NotAccepted { signer, prefix } => {
                format!("{signer} signs for `{prefix}` and is not known on this machine")
            }
        })
    }

    fn kept(&self) -> Option<String> {
        Some("nothing was installed and nothing ran".into())
    }

    fn hint(&self) -> Option<String> {
        let name = self.named();
        Some(match &*self.refusal {
            Refusal::Unreadable(error) if error.exit() == Exit::Sandbox => return error.hint(),
            Refusal::Unreadable(_) | Refusal::Signature { .. } => {
                "pull it again; if it repeats, tell the publisher".into()
            }
            Refusal::Digest { .. } => {
                "pull it again; if it repeats, tell the publisher; a package of your own takes a new version".into()
            }
            Refusal::Misnamed { .. } => "tell the publisher, or ask for it by its own name".into(),
            Refusal::Malformed { .. } | Refusal::Foreign { .. } => {
                "`tunebox pack --sign KEY` makes the signature of a package; ask the publisher for it".into()
            }
            Refusal::OtherPackage { .. } => "take package and signature of one and the same version".into(),
            Refusal::Unsigned { before: Some(_) } => {
                format!("use the signed one; to go on without, take `{name}` out of tunebox.lock")
            }
            Refusal::Unsigned { before: None } => {
                "ask the publisher to sign it: `tunebox pack --sign KEY`, then `tunebox push`".into()
            }
            Refusal::KeyChanged { forget, .. } => {
                format!("ask the publisher, not by way of the registry; if the new key is theirs, take {forget}")
            }
            Refusal::Downgrade { highest } => {
                format!("ask for {highest} or later; to go back on purpose, take `{name}` out of tunebox.lock")
            }
            Refusal::LookAlike { like, .. } => format!("did you mean `{like}`?"),
            Refusal::NotLocked { .. } => "the same command without `--locked` adds it, and asks where it must".into(),
            Refusal::NotAccepted { .. } => self.acceptance(),
        })
    }

    fn exit(&self) -> Exit {
        match &*self.refusal {
            // A contract of the future and code that was compiled beforehand are no question of trust.
            Refusal::Unreadable(error) if error.exit() == Exit::Sandbox => Exit::Sandbox,
            _ => Exit::Trust,
        }
    }
}

impl TrustError {
    /// How a signer is accepted.
    fn acceptance(&self) -> String {
        let compare = "compare the key with the one that the publisher shows, then";
        match self.source_name.as_str() {
            source if super::source::Source::parse(source).is_local() => {
                format!("{compare} give the same command with `--yes`")
            }
            source => format!("{compare} `tunebox pull {source} --yes`"),
        }
    }
}

/// The beginning of a digest: enough for people to tell two apart.
fn short(digest: &str) -> String {
    let begin: String = digest.chars().take(12).collect();
    if begin.len() < digest.len() { format!("{begin}…") } else { begin }
}
