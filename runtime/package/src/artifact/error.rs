//! The errors of an artifact that is no package, or not the one that was named. In all of them `part` is the part of
//! the package: `manifest`, `configuration`, `layer` or `package`.

use tunebox_foundation::explain::Explanation;
use tunebox_foundation::printable::printable;

use crate::Error;
use crate::error::Reason;
use crate::trust::refusal::{NOTHING_CHANGED, refuse};

/// Makes the error for a part whose media type is `found` and not `wanted`, that of a package. Its reason is
/// [`Reason::OtherKind`].
pub(super) fn other_media_type(part: &str, wanted: &str, found: &str) -> Error {
    let what = format!("this is not a WebAssembly package: its {part} is `{found}`");
    let why = format!("the {wanted} of a package is missing: it may be a container image");
    Reason::OtherKind.error(unusable(what, why))
}

/// Makes the error for an artifact with `count` layers.
pub(super) fn other_layers(count: usize) -> Error {
    let what = format!("this is not a WebAssembly package: it has {count} layers");
    unusable(what, "a package has exactly one layer, the component").into()
}

/// Makes the error for a part of `size` bytes, more than `limit`, the most that a package may have there. `part` names
/// it, such as `manifest` or `signature`.
pub(crate) fn too_large(part: &str, size: u64, limit: u64) -> Error {
    let why = format!("it has {size} bytes, {limit} fit; nothing of it was fetched");
    unusable(format!("the {part} is too large for a package"), why).into()
}

/// Makes the error for a document that is not of the required form; `problem` says why. Escapes control characters in
/// `problem` and cuts it to about 300 bytes. `part` names the document, such as `manifest`.
pub(crate) fn malformed(part: &str, problem: &str) -> Error {
    unusable(format!("the {part} of this package cannot be used"), printable(problem, 300)).into()
}

/// The error, with [`Reason::Untrusted`], for a part that has `found` bytes where its descriptor states `wanted`.
/// `part` names it, such as `configuration`.
pub(crate) fn wrong_size(part: &str, wanted: u64, found: u64) -> Error {
    let why = format!("it has {found} bytes, {wanted} were named");
    refuse(format!("the {part} is not as long as was named"), why, PULL_AGAIN)
}

/// The error, with [`Reason::Untrusted`], for a part with the digest `found` where `wanted` was expected. Escapes
/// control characters in both digests and cuts each to about 80 bytes. `part` names it, such as `manifest`.
pub(crate) fn wrong_digest(part: &str, wanted: &str, found: &str) -> Error {
    let why = format!("its digest is {}, {} was named", printable(found, 80), printable(wanted, 80));
    refuse(format!("the {part} is not what was named"), why, PULL_AGAIN)
}

const PULL_AGAIN: &str = "`tunebox pull` it again; if it repeats, tell the publisher";

/// Makes the explanation for an artifact that is no package, from what it is and why that is wrong. Adds that nothing
/// was installed or run, and the hint to check the name.
fn unusable(what: String, why: impl Into<String>) -> Explanation {
    let hint = "check the name; `tunebox push` and `wkg` write packages in the form that is read here";
    Explanation::new("package", what).with_why(why).with_kept(NOTHING_CHANGED).with_hint(hint)
}
