//! Custom sections of a module or component, at its top level only: found, left out, appended.
//!
//! A section is `id size bytes`; a custom one has id 0 and begins with its name. The walk never
//! enters nested modules, so hostile bytes cost at most one pass.

use std::ops::Range;

use crate::Error;

/// Magic and version.
const HEADER: usize = 8;

/// The largest number of sections that a walk accepts.
const MOST: usize = 100_000;

/// One section at the top level.
struct Section {
    /// From its id to its end.
    whole: Range<usize>,
    /// What follows id and size.
    body: Range<usize>,
    custom: bool,
}

/// Returns the contents of the custom section `name` at the top level, or `None` if there is none. Errors: malformed
/// bytes, or two such sections.
pub fn find<'bytes>(bytes: &'bytes [u8], name: &str) -> Result<Option<&'bytes [u8]>, Error> {
    let mut found = None;
    for section in sections(bytes)? {
        if let Some(contents) = contents(bytes, &section, name)
            && found.replace(contents).is_some()
        {
            return Err(broken(format!("it has two sections `{name}`")));
        }
    }
    Ok(found)
}

/// Returns the bytes without the custom sections `name` at the top level. Errors: malformed bytes.
pub fn without(bytes: &[u8], name: &str) -> Result<Vec<u8>, Error> {
    let kept = sections(bytes)?.into_iter().filter(|section| contents(bytes, section, name).is_none());
    let mut rest = bytes[..HEADER].to_vec();
    kept.for_each(|section| rest.extend_from_slice(&bytes[section.whole]));
    Ok(rest)
}

/// Appends a custom section. Does not look whether there is one of the same name.
pub fn append(bytes: &mut Vec<u8>, name: &str, contents: &[u8]) {
    let mut body = Vec::with_capacity(contents.len() + name.len() + 5);
    write_length(&mut body, name.len());
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(contents);

    bytes.push(0);
    write_length(bytes, body.len());
    bytes.extend_from_slice(&body);
}

/// Returns the contents of a section if it is a custom section of this name, else `None`.
fn contents<'bytes>(bytes: &'bytes [u8], section: &Section, name: &str) -> Option<&'bytes [u8]> {
    if !section.custom {
        return None;
    }
    let body = &bytes[section.body.clone()];
    let (length, start) = read_length(body, 0)?;
    let (found, rest) = body.get(start..)?.split_at_checked(length)?;
    (found == name.as_bytes()).then_some(rest)
}

/// Returns the sections at the top level in order. Errors: no header of WebAssembly, a section that is cut off, or more
/// than [`MOST`] sections.
fn sections(bytes: &[u8]) -> Result<Vec<Section>, Error> {
    if bytes.len() < HEADER || !bytes.starts_with(b"\0asm") {
        return Err(broken("it does not begin like WebAssembly"));
    }
    let (mut sections, mut position) = (Vec::new(), HEADER);
    while position < bytes.len() {
        let (size, start) = read_length(bytes, position + 1).ok_or_else(|| broken("a section has no size"))?;
        let end = start.checked_add(size).filter(|end| *end <= bytes.len());
        let end = end.ok_or_else(|| broken("a section is cut off"))?;
        if sections.len() == MOST {
            return Err(broken("it has too many sections"));
        }
        sections.push(Section { whole: position..end, body: start..end, custom: bytes[position] == 0 });
        position = end;
    }
    Ok(sections)
}

/// Reads a number of at most 32 bits in LEB128 at `position`. Returns the number and the position after it; `None` if
/// it is cut off or larger.
fn read_length(bytes: &[u8], mut position: usize) -> Option<(usize, usize)> {
    let mut value = 0u64;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.get(position)?;
        position += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(value).ok().map(|value| (value as usize, position));
        }
    }
    None
}

/// Appends a number in LEB128.
fn write_length(bytes: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The error for malformed bytes; `problem` says what is wrong.
fn broken(problem: impl std::fmt::Display) -> Error {
    Error::not_component(problem)
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
    fn two_sections_of_one_name_are_refused() {
        let mut bytes = EMPTY.to_vec();
        append(&mut bytes, "one", b"a");
        append(&mut bytes, "one", b"b");
        assert!(find(&bytes, "one").is_err());
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

    #[test]
    fn a_size_beyond_the_file_is_an_error() {
        let bytes = [EMPTY, &[0, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
        assert!(find(&bytes, "one").is_err());
    }
}
