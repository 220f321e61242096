//! Signatures of packages, in the form of minisign: one text beside the package.
//!
//! What is signed is the package's [statement](crate::statement), never the bytes alone. The trusted comment names the
//! package and carries the signer's public key, since a signature of minisign holds only the key's number. A valid
//! signature tells who signed; [`Trust`](crate::trust::Trust) decides whether that signer is accepted.

mod key;

use minisign_verify::Signature;
use semver::Version;
use tunebox_foundation::printable::{is_unprintable, printable};

use crate::Error;
use crate::statement::Statement;
use crate::trust::refusal::{GET_AGAIN, locate, refuse, refuse_unreadable, shorten};

pub use key::{SecretKey, Signer};

/// The text of the untrusted comment, which the signature does not cover.
const COMMENT: &str = "signature of a tunebox package";

/// The largest signature file that is read, in bytes: a real one has a few hundred.
const MAX_SIGNATURE_BYTES: usize = 2 << 10;

/// What begins each line of comment in the form of minisign.
const UNTRUSTED: &str = "untrusted comment: ";
const TRUSTED: &str = "trusted comment: ";

const ASK_FOR_SIGNATURE: &str = "`tunebox pack --sign KEY` makes the signature of a package; ask the publisher for it";

/// A signature that was parsed, and not verified yet.
pub struct Signed {
    /// The package that it names, as `NAME@VERSION`.
    title: String,
    /// The signer that it names.
    signer: Signer,
    signature: Signature,
}

/// Signs a statement and returns the text of a `.minisig` file. The signature is verified before it is returned.
/// Errors: the library cannot sign, or its signature does not verify.
pub fn sign(statement: &Statement, key: &SecretKey) -> Result<String, Error> {
    let (text, signer) = (statement.canonical(), key.signer());
    let comment = format!("tunebox {} key {}", statement.title(), signer.key);
    let signature = key.sign(text.as_bytes(), &comment, COMMENT)?;
    // One library signs and another one verifies, so a signature that the second rejects must not be returned.
    Signed::check(statement, &signature).map_err(|error| locate(error, &statement.title(), ""))?;
    Ok(signature)
}

impl Signed {
    /// Verifies the signature of a package's bytes and returns its signer. Errors: bytes that are no package, and a
    /// signature that is malformed or does not fit them. Whether the signer is trusted is not checked.
    pub fn verify(bytes: &[u8], signature: &str) -> Result<Signer, Error> {
        let statement = Statement::of(bytes).map_err(|error| refuse_unreadable(&error))?;
        Self::check(&statement, signature).map_err(|error| locate(error, &statement.title(), ""))
    }

    /// Verifies the signature of a statement and returns its signer. Errors: a signature that is malformed, names
    /// another package, or does not fit the statement. Whether the signer is trusted is not checked.
    pub(crate) fn check(statement: &Statement, signature: &str) -> Result<Signer, Error> {
        let signed = Self::parse(signature)?;
        if signed.title != statement.title() {
            return Err(refuse(
                "this is the signature of another package",
                format!("it was made for `{}`", signed.title),
                "take package and signature of one and the same version",
            ));
        }
        let key = minisign_verify::PublicKey::from_base64(&signed.signer.key);
        let verified = key.and_then(|key| key.verify(statement.canonical().as_bytes(), &signed.signature, false));
        match verified {
            Ok(()) => Ok(signed.signer),
            Err(_) => {
                let (digest, key) = (shorten(&statement.sha256), signed.signer.key);
                let why = format!("sha256 is {digest}, the signature of {key} covers something else");
                Err(refuse("this package is not what was signed", why, GET_AGAIN))
            }
        }
    }

    /// Parses the text of a `.minisig` file, and verifies nothing. Errors: more than 2 KiB, another form than the four
    /// lines of minisign, an unprintable character in the first line, or a trusted comment that is not `tunebox
    /// NAME@VERSION key RW…`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let malformed = |problem: &str| refuse("the signature cannot be read", problem, ASK_FOR_SIGNATURE);
        if text.len() > MAX_SIGNATURE_BYTES {
            return Err(malformed(&format!("it has {} bytes, a signature has a few hundred", text.len())));
        }
        let lines: Vec<&str> = text.lines().collect();
        let [untrusted, first, trusted, second] = lines[..] else {
            return Err(malformed(&format!("it has {} lines, a signature has 4", lines.len())));
        };
        if !untrusted.starts_with(UNTRUSTED) {
            return Err(malformed("its first line does not begin with `untrusted comment: `"));
        }
        if untrusted.chars().any(is_unprintable) {
            return Err(malformed("its first line holds a control character"));
        }
        let Some(comment) = trusted.strip_prefix(TRUSTED) else {
            return Err(malformed("its third line does not begin with `trusted comment: `"));
        };
        // A signature that the same key made for a file or a mail must not count as one of a package.
        let Some((title, signer)) = parse_trusted_comment(comment) else {
            let comment = printable(comment, 80);
            let why = format!("its trusted comment is `{comment}`, a package's is `tunebox NAME@VERSION key RW…`");
            return Err(refuse("this signature was made for something else", why, ASK_FOR_SIGNATURE));
        };
        let encoded = [first, second].iter().all(|line| line.bytes().all(|byte| byte.is_ascii_graphic()));
        let signature = Signature::decode(text).ok().filter(|_| encoded);
        let signature = signature.ok_or_else(|| malformed("its second or fourth line is not what minisign writes"))?;
        Ok(Self { title, signer, signature })
    }

    /// Returns the package that the signature names, as `NAME@VERSION`. It is a mere claim until
    /// [`verify`](Self::verify) succeeds.
    pub fn title(&self) -> &str {
        &self.title
    }
}

/// Returns the public key of the signer of a package's bytes. `None` if there is no signature, or it does not verify.
pub(crate) fn signer_of(bytes: &[u8], signature: Option<&str>) -> Option<String> {
    signature.and_then(|text| Signed::verify(bytes, text).ok()).map(|signer| signer.key)
}

/// Parses a trusted comment `tunebox NAME@VERSION key RW…`, with single spaces. Returns `NAME@VERSION` and the signer.
/// `None` for any other comment: a name that no manifest may have, a version that is no semantic version, or a key that
/// [`Signer::parse`] rejects.
fn parse_trusted_comment(comment: &str) -> Option<(String, Signer)> {
    let words: Vec<&str> = comment.split(' ').collect();
    let ["tunebox", title, "key", key] = words[..] else { return None };
    let (name, version) = title.split_once('@')?;
    crate::manifest::check_name("the package", name).ok()?;
    Version::parse(version).ok()?;
    Some((title.to_owned(), Signer::parse(key)?))
}

#[cfg(test)]
pub(crate) mod tests;
