//! What a person is told of a refusal: why, and what to do.

use tunebox_foundation::explain::{Exit, Explain};

use super::{Refusal, TrustError};
use crate::trust::KEYRING;
use crate::trust::source::Source;

impl Explain for TrustError {
    fn category(&self) -> &'static str {
        "trust"
    }

    fn location(&self) -> Option<String> {
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
            Refusal::PathNotLocked => {
                "it was named by its path, and `--locked` takes only the bytes that tunebox.lock holds".into()
            }
            Refusal::OtherSource { locked } => format!("tunebox.lock has it from {locked}"),
            Refusal::NotAccepted { signer, prefix } => {
                format!("{signer} signs for `{prefix}` and is not known on this machine")
            }
            Refusal::OnlyLocked { signer, prefix } => format!(
                "tunebox.lock names {signer} for `{prefix}`; a lock says what a project uses, not whom this machine trusts"
            ),
            Refusal::Doubtful { signer, doubts } => {
                format!("{signer} is not known on this machine; {}", doubts.join("; "))
            }
            Refusal::Replaces { signer, doubts } => {
                format!("{}; this one is signed by {signer} and comes from elsewhere", doubts.join("; "))
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
                "get it again; if it repeats, tell the publisher".into()
            }
            Refusal::Digest { .. } => {
                "get it again; if it repeats, tell the publisher; a package of your own takes a new version".into()
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
            Refusal::PathNotLocked => {
                "leave `--locked` out; or pin it: `tunebox pack`, `tunebox push` into a folder, `tunebox pull` from there"
                    .into()
            }
            Refusal::OtherSource { locked } => {
                format!("pull it from {locked}; the same command without `--locked` takes this one, and asks where it must")
            }
            Refusal::NotAccepted { .. } => self.acceptance(),
            Refusal::OnlyLocked { .. } => format!(
                "accept it once: the same command without `--locked`; where nobody can, let {KEYRING} name a list that has it"
            ),
            Refusal::Doubtful { .. } => {
                "compare the key with the one that the publisher shows; `--yes` does not answer this, a person at a terminal does"
                    .into()
            }
            Refusal::Replaces { .. } => format!(
                "if it is the same package, a person at a terminal says so, which `--yes` does not; or take `{name}` out of tunebox.lock"
            ),
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
    /// What the package is called in a sentence.
    fn named(&self) -> &str {
        if self.title.is_empty() { "it" } else { self.title.split('@').next().unwrap_or("it") }
    }

    /// How a signer is accepted.
    fn acceptance(&self) -> String {
        let compare = "compare the key with the one that the publisher shows, then";
        match self.source_name.as_str() {
            source if Source::parse(source).is_local() => {
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
