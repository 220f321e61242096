//! Text joined while compiling: the manifest has to be a constant to become a custom section.

/// The version of `tunebox:method` that this SDK speaks.
pub const INTERFACE: &str = "0.1.0";

/// The length of the joined parts.
pub const fn length(parts: &[&str]) -> usize {
    let mut total = 0;
    let mut part = 0;
    while part < parts.len() {
        total += parts[part].len();
        part += 1;
    }
    total
}

/// The parts one after another; `LENGTH` is [`length`] of the same parts.
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

/// Joined parts as text.
pub const fn text(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("joined text is text"),
    }
}

/// A list without its brackets: the settings of a struct that stand among those of another.
pub const fn inner(list: &'static str) -> &'static str {
    let (_, rest) = list.split_at(1);
    rest.split_at(rest.len() - 1).0
}

/// The key, unless there is nothing for it to name.
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
