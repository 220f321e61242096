//! How a component was made, in its custom section `tunebox:build`.

use serde::{Deserialize, Serialize};

use crate::{Error, section};

/// The name of the custom section.
pub(crate) const SECTION: &str = "tunebox:build";

/// Enough to build the same bytes again, and to see that a source has changed since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The toolchain's name.
    pub toolchain: String,
    /// The digest of the method's source.
    pub source: String,
    /// Whether it keeps names and lines, for its author: nothing to give to others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
}

impl Record {
    /// The record of a component, if it has one. Errors: bytes that are no component, or a broken record.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Error> {
        let Some(text) = section::find(bytes, SECTION)? else { return Ok(None) };
        let record = serde_json::from_slice(text);
        record.map(Some).map_err(|error| Error::manifest(format!("the section `{SECTION}` is broken: {error}")))
    }
}
