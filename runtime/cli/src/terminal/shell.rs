//! Quoting for commands that users copy into a shell.

/// Returns a word as a POSIX shell must read it: unchanged if it has only letters, digits and `-_./:=,@%+`, else, and
/// if it is empty, in single quotes.
pub(crate) fn quote(text: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:=,@%+".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_a_shell_would_split_or_expand_are_quoted() {
        let words = ["train.rate=1e-4", "my calm", "it's", ""].map(quote);
        assert_eq!(words, ["train.rate=1e-4", "'my calm'", r"'it'\''s'", "''"]);
    }
}
