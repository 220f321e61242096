//! What a component of the world `verifier` is allowed to be: like a method, and without any import.

use super::VerifierLimits;
use crate::admission;
use crate::error::Error;
use crate::printable::printable;

/// What a verifier must export.
const VERIFY: &str = "verify";

/// Everything that is checked before compiling.
pub(super) fn admit(bytes: &[u8], name: &str, limits: &VerifierLimits) -> Result<(), Error> {
    let survey = admission::examine(bytes, name, limits.component_bytes)?;
    if let Some(import) = survey.imports.first() {
        return Err(Error::VerifierImports { verifier: name.to_owned(), import: printable(import, 200) });
    }
    if let Some(missing) = admission::unoffered(&survey, name, VERIFY)? {
        return Err(Error::NoVerify { verifier: name.to_owned(), missing });
    }
    admission::validate(bytes, name).map(drop)
}
