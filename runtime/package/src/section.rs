//! Finds, removes and appends custom sections of a module or component, at its top level only.
//!
//! A section is `id size bytes`; a custom one has id 0, and its bytes begin with its name. Nested modules are never
//! parsed, so hostile bytes cost at most one pass.

use std::ops::Range;

use wasm_encoder::{CustomSection, Section as _};
use wasmparser::{BinaryReader, BinaryReaderError, CustomSectionReader};

use crate::Error;

/// The size of magic number and version at the beginning of the file, in bytes.
const HEADER_BYTES: usize = 8;

/// The most sections that a file may have at its top level.
const MAX_SECTIONS: usize = 100_000;

/// One section at the top level.
struct Section<'bytes> {
    /// The byte range of the section in the file, from its id to its end.
    whole: Range<usize>,
    /// Its name and contents, if it is a custom section with a name in UTF-8.
    custom: Option<CustomSectionReader<'bytes>>,
}

impl<'bytes> Section<'bytes> {
    /// Returns the contents of a section if it is a custom section of this name, else `None`.
    fn contents(&self, name: &str) -> Option<&'bytes [u8]> {
        self.custom.as_ref().filter(|custom| custom.name() == name).map(CustomSectionReader::data)
    }
}

/// Returns the contents of the custom section `name` at the top level, or `None` if there is none. Errors: malformed
/// bytes, or two such sections.
pub fn find<'bytes>(bytes: &'bytes [u8], name: &str) -> Result<Option<&'bytes [u8]>, Error> {
    let sections = sections(bytes)?;
    let mut found = sections.iter().filter_map(|section| section.contents(name));
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(Error::not_component(format!("it has two sections `{name}`"))),
        (found, None) => Ok(found),
    }
}

/// Returns the bytes without the custom sections `name` at the top level. Errors: malformed bytes.
pub fn without(bytes: &[u8], name: &str) -> Result<Vec<u8>, Error> {
    let kept = sections(bytes)?.into_iter().filter(|section| section.contents(name).is_none());
    let mut rest = bytes[..HEADER_BYTES].to_vec();
    kept.for_each(|section| rest.extend_from_slice(&bytes[section.whole]));
    Ok(rest)
}

/// Appends a custom section. Does not look whether there is one of the same name.
pub fn append(bytes: &mut Vec<u8>, name: &str, contents: &[u8]) {
    CustomSection { name: name.into(), data: contents.into() }.append_to(bytes);
}

/// Returns the sections at the top level in order. Errors: no header of WebAssembly, a section that is cut off, or more
/// than [`MAX_SECTIONS`] sections.
fn sections(bytes: &[u8]) -> Result<Vec<Section<'_>>, Error> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(b"\0asm") {
        return Err(Error::not_component("it does not begin like WebAssembly"));
    }
    let mut sections = Vec::new();
    let mut reader = BinaryReader::new(&bytes[HEADER_BYTES..], HEADER_BYTES);
    while !reader.eof() {
        if sections.len() == MAX_SECTIONS {
            return Err(Error::not_component("it has too many sections"));
        }
        sections.push(read_section(&mut reader)?);
    }
    Ok(sections)
}

/// Reads the next section. A custom section without a readable name counts as one of another kind. Errors: it has no
/// size, or is cut off.
fn read_section<'bytes>(reader: &mut BinaryReader<'bytes>) -> Result<Section<'bytes>, BinaryReaderError> {
    let start = reader.original_position();
    let is_custom = reader.read_u8()? == 0;
    let size = reader.read_var_u32()? as usize;
    let body = BinaryReader::new(reader.read_bytes(size)?, 0);
    let custom = if is_custom { CustomSectionReader::new(body).ok() } else { None };
    Ok(Section { whole: start..reader.original_position(), custom })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn a_section_that_was_appended_is_found_and_can_be_left_out() {
        let mut bytes = EMPTY.to_vec();
        append(&mut bytes, "one", &[7; 300]);
        append(&mut bytes, "two", b"second");
        assert_eq!(find(&bytes, "one").unwrap(), Some(&[7; 300][..]));
        assert_eq!(find(&without(&bytes, "one").unwrap(), "one").unwrap(), None);
        assert_eq!(find(&without(&bytes, "one").unwrap(), "two").unwrap(), Some(&b"second"[..]));
    }

    #[test]
    fn two_sections_of_one_name_and_a_size_beyond_the_file_are_refused() {
        let mut bytes = EMPTY.to_vec();
        append(&mut bytes, "one", b"a");
        append(&mut bytes, "one", b"b");
        assert!(find(&bytes, "one").is_err());
        assert!(find(&[EMPTY, &[0, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat(), "one").is_err());
    }

    #[test]
    fn every_way_to_cut_a_component_short_is_an_error_or_a_smaller_component() {
        let mut bytes = EMPTY.to_vec();
        append(&mut bytes, "one", &[7; 300]);
        for length in 0..bytes.len() {
            let found = find(&bytes[..length], "one");
            assert!(found.is_err() || found.unwrap().is_none(), "cut to {length}");
        }
    }
}
