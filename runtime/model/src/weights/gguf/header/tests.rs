//! Tests of GGUF headers with false lengths.

use super::*;

fn read(bytes: &[u8]) -> Result<Header> {
    let mut cursor = Cursor { path: "hostile.gguf".into(), input: bytes, at: 0, length: bytes.len() as u64 };
    cursor.header()
}

fn header(tensors: u64, values: u64) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(tensors.to_le_bytes());
    bytes.extend(values.to_le_bytes());
    bytes
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn number(bytes: &mut Vec<u8>, key: &str, number: u32) {
    text(bytes, key);
    bytes.extend(4u32.to_le_bytes());
    bytes.extend(number.to_le_bytes());
}

#[test]
fn a_text_longer_than_the_file_is_refused_before_it_is_allocated() {
    let mut bytes = header(0, 1);
    bytes.extend(u64::MAX.to_le_bytes());
    assert!(matches!(read(&bytes), Err(Error::Broken { .. })));
}

#[test]
fn a_list_longer_than_the_file_is_refused_before_it_is_allocated() {
    let mut bytes = header(0, 1);
    text(&mut bytes, "tokens");
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(8u32.to_le_bytes());
    bytes.extend((1u64 << 40).to_le_bytes());
    let error = read(&bytes).unwrap_err();
    assert_eq!(error.to_string(), "a list of `1099511627776` values is longer than what is left of the head");
}

#[test]
fn a_header_as_long_as_a_file_of_holes_is_not_read_to_its_end() {
    let mut bytes = header(0, 1);
    text(&mut bytes, "tokens");
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend((MAX_HEADER_BYTES / 2).to_le_bytes());
    let read = |bytes: &[u8]| {
        let input = bytes.chain(std::io::repeat(0));
        Cursor { path: "hostile.gguf".into(), input, at: 0, length: 1 << 40 }.header()
    };
    assert!(read(&bytes).is_ok());
    let count = bytes.len() - 8;
    bytes[count..].copy_from_slice(&(1u64 << 39).to_le_bytes());
    let error = read(&bytes).unwrap_err();
    assert!(error.to_string().ends_with("values is longer than what is left of the head"), "{error}");
}

#[test]
fn lists_of_lists_of_lists_end_the_reading_instead_of_the_stack() {
    let mut bytes = header(0, 1);
    text(&mut bytes, "deep");
    bytes.extend(9u32.to_le_bytes());
    for _ in 0..10_000 {
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
    }
    assert!(matches!(read(&bytes), Err(Error::Broken { .. })));
}

#[test]
fn an_alignment_of_zero_is_refused() {
    let mut bytes = header(0, 1);
    number(&mut bytes, "general.alignment", 0);
    assert!(matches!(read(&bytes), Err(Error::Broken { .. })));
}

#[test]
fn a_tensor_whose_sides_overflow_is_refused() {
    let mut bytes = header(1, 0);
    text(&mut bytes, "token_embd.weight");
    bytes.extend(2u32.to_le_bytes());
    bytes.extend((1u64 << 63).to_le_bytes());
    bytes.extend((1u64 << 63).to_le_bytes());
    bytes.extend([0; 12]);
    assert!(matches!(read(&bytes), Err(Error::Broken { .. })));
}

#[test]
fn every_shorter_piece_of_a_header_is_refused() {
    let mut bytes = header(1, 2);
    number(&mut bytes, "a", 7);
    text(&mut bytes, "names");
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(8u32.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    text(&mut bytes, "one");
    text(&mut bytes, "t");
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(2u64.to_le_bytes());
    bytes.extend([0; 12]);
    for length in 0..bytes.len() {
        assert!(read(&bytes[..length]).is_err(), "{length} bytes were enough");
    }
    bytes.resize(bytes.len().next_multiple_of(32) + 8, 0);
    let header = read(&bytes).unwrap();
    assert_eq!(header.metadata.u32("a"), Some(7));
    assert_eq!(header.metadata.value("names"), Some(&Value::Texts(vec!["one".into()])));
    assert_eq!(header.tensors["t"].shape, [2]);
}

#[test]
fn a_name_that_is_there_twice_is_refused() {
    let mut bytes = header(0, 2);
    number(&mut bytes, "a", 7);
    number(&mut bytes, "a", 8);
    assert!(read(&bytes).unwrap_err().to_string().contains("twice"), "{:?}", read(&bytes));
    let mut bytes = header(2, 0);
    for _ in 0..2 {
        text(&mut bytes, "t");
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(2u64.to_le_bytes());
        bytes.extend([0; 12]);
    }
    assert!(read(&bytes).unwrap_err().to_string().contains("twice"), "{:?}", read(&bytes));
}
