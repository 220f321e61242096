//! What a person copies into a shell.

/// A word as a shell takes it for one.
pub(crate) fn word(text: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./:=,@%+".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_part_or_read_stands_in_quotes() {
        let words = ["train.rate=1e-4", "my calm", "it's", ""].map(word);
        assert_eq!(words, ["train.rate=1e-4", "'my calm'", r"'it'\''s'", "''"]);
    }
}
