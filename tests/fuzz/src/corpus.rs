//! The committed inputs of a target, and the words that mutations insert into them.

use std::path::PathBuf;

/// The folder with a target's inputs.
#[must_use]
pub fn folder(target: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).join(target)
}

/// The committed inputs of a target with the names of their files, sorted; none where there is no folder.
#[must_use]
pub fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder(target)).into_iter().flatten().flatten();
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        Some((name, std::fs::read(entry.path()).ok()?))
    };
    let mut inputs: Vec<_> = entries.filter_map(read).collect();
    inputs.sort();
    inputs
}

/// The words of a target, from its dictionary in the format of libFuzzer: one in quotes a line. None without a dictionary.
pub(crate) fn words(target: &str) -> Vec<Vec<u8>> {
    let path = format!("{}/words/{target}.dict", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| word(line).unwrap_or_else(|| panic!("{target}: {line} is no word"))).collect()
}

/// The bytes of a word in quotes, in which `\\`, `\"` and `\xAB` stand for one byte each.
fn word(line: &str) -> Option<Vec<u8>> {
    let mut text = line.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::new();
    while let Some((plain, escape)) = text.split_once('\\') {
        bytes.extend(plain.bytes());
        let length = if escape.starts_with('x') { 3 } else { 1 };
        bytes.push(match escape.get(..length)?.strip_prefix('x') {
            Some(digits) => u8::from_str_radix(digits, 16).ok()?,
            None => escape.bytes().next()?,
        });
        text = &escape[length..];
    }
    bytes.extend(text.bytes());
    Some(bytes)
}
