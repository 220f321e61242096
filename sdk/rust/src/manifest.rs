//! Text joined while compiling: the manifest has to be a constant to become a custom section.

/// The version of `tunebox:method` that this SDK speaks.
pub const INTERFACE: &str = "0.2.0";

/// The total length of the parts in bytes.
pub const fn length(parts: &[&str]) -> usize {
    let mut total = 0;
    let mut part = 0;
    while part < parts.len() {
        total += parts[part].len();
        part += 1;
    }
    total
}

/// Concatenates the parts as bytes. `LENGTH` must be their [`length`], else compilation fails or zeros remain.
pub const fn join<const LENGTH: usize>(parts: &[&str]) -> [u8; LENGTH] {
    let mut joined = [0; LENGTH];
    let mut end = 0;
    let mut part = 0;
    while part < parts.len() {
        let bytes = parts[part].as_bytes();
        let mut index = 0;
        while index < bytes.len() {
            joined[end] = bytes[index];
            end += 1;
            index += 1;
        }
        part += 1;
    }
    joined
}

/// Converts joined bytes back to text. Panics, while compiling, if they are not UTF-8.
pub const fn text(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("joined text is text"),
    }
}

/// Removes the brackets of a JSON list, to put its settings into the list of another struct.
pub const fn inner(list: &'static str) -> &'static str {
    let (_, rest) = list.split_at(1);
    rest.split_at(rest.len() - 1).0
}

/// Returns `key`, or nothing if `value` is empty: then the JSON has no such entry.
pub const fn key_of(key: &'static str, value: &'static str) -> &'static str {
    if value.is_empty() { "" } else { key }
}

#[cfg(test)]
mod tests {
    use super::INTERFACE;

    #[test]
    fn the_interface_version_is_the_one_of_the_contract() {
        let world = include_str!("../../../wit/world.wit");
        assert!(world.contains(&format!("package tunebox:method@{INTERFACE};")));
    }
}
