//! How a component was made, in its custom section `tunebox:build`.

use serde::{Deserialize, Serialize};

use crate::{Error, section};

/// The name of the custom section.
pub(crate) const SECTION: &str = "tunebox:build";

/// How a component was built: what is needed to build the same bytes again, and to detect that the source has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// What built the component: compiler, target and standard library, or the release of `componentize-py`.
    pub toolchain: String,
    /// The SHA-256 of the method's source, in hexadecimal. Dependencies are not part of it, neither crates nor packages
    /// of a `.venv`: a change in them is not detected.
    pub source: String,
    /// Whether the component keeps function names and line numbers, for its author. Such a component is not for
    /// publishing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
}

impl Record {
    /// Reads the build record in a component's custom section. `None` if there is no such section. Errors: bytes that
    /// are no WebAssembly, two such sections, or a record that cannot be parsed.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Error> {
        let Some(text) = section::find(bytes, SECTION)? else { return Ok(None) };
        let record = serde_json::from_slice(text);
        record.map(Some).map_err(|error| Error::manifest(format!("the section `{SECTION}` is broken: {error}")))
    }
}

/// Whether two components have the same bytes apart from their build records. False if one of them is no WebAssembly.
#[must_use]
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    let rest = |bytes| section::without(bytes, SECTION);
    matches!((rest(one), rest(other)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_no_difference_and_everything_else_is() {
        let made = |source: &[u8], code: &[u8]| {
            let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
            section::append(&mut bytes, "code", code);
            section::append(&mut bytes, SECTION, source);
            bytes
        };
        assert!(is_same(&made(b"one", b"a"), &made(b"other", b"a")));
        assert!(!is_same(&made(b"one", b"a"), &made(b"one", b"b")));
        assert!(!is_same(b"", b""), "no component is not the same component");
    }
}
