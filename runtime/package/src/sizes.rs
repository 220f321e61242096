//! The size of a component by kind of section.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tunebox_foundation::printable::printable;
use wasmparser::{Parser, Payload};

use crate::Error;

/// One part of a component.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Part {
    /// The kind: `code`, `data`, the name of a custom section, or `types and wiring` for everything else.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The name of the part that is neither code nor data nor a custom section.
const REST: &str = "types and wiring";

/// Returns the parts of a component with their bytes, nested modules included; the largest first, ties by name.
/// Sections of one kind or name are added up; what is in none of them is the part `types and wiring`. Control
/// characters in names are escaped, and names are cut to about 64 bytes. Errors: bytes that are no WebAssembly.
pub fn sizes(bytes: &[u8]) -> Result<Vec<Part>, Error> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |name: &str, bytes: usize| *found.entry(printable(name, 64)).or_default() += bytes as u64;
    let mut rest = bytes.len();
    for payload in Parser::new(0).parse_all(bytes) {
        let (name, length) = match payload? {
            Payload::CodeSectionStart { range, .. } => ("code", range.len()),
            Payload::DataSection(reader) => ("data", reader.range().len()),
            Payload::CustomSection(reader) => (reader.name(), reader.range().len()),
            _ => continue,
        };
        rest = rest.saturating_sub(length);
        add(name, length);
    }
    add(REST, rest);
    let mut parts: Vec<Part> = found.into_iter().map(|(name, bytes)| Part { name, bytes }).collect();
    parts.sort_by_key(|part| Reverse(part.bytes));
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{builtin, manifest, section};

    #[test]
    fn the_parts_of_every_built_in_method_are_its_whole_file() {
        for method in builtin::list() {
            let parts = sizes(method.bytes).unwrap();
            assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), method.bytes.len() as u64, "{}", method.name);
            assert_eq!(parts[0].name, "code", "{}: {parts:?}", method.name);
            assert!(parts.iter().any(|part| part.name == manifest::SECTION), "{parts:?}");
        }
    }

    #[test]
    fn a_section_that_grows_is_the_one_that_is_named() {
        let mut bytes = builtin::list()[0].bytes.to_vec();
        section::append(&mut bytes, "ballast\u{1b}[2J", &[0; 1 << 20]);
        let parts = sizes(&bytes).unwrap();
        assert!(parts[0].name.starts_with("ballast\\u{1b}") && parts[0].bytes >= 1 << 20, "{:?}", parts[0]);
    }
}
