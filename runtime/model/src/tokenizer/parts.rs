//! Splits a long text for its encoding, which takes some 300 bytes of memory for each byte of a text.

/// The most bytes of a part.
const MAX_BYTES: usize = 1 << 20;

/// Splits a text into parts of at most 1 MiB, in order; a shorter text, an empty one too, is one part. A part ends at
/// the last line end within 1 MiB that no white space follows, where tokens do not reach across; without one, at the
/// last character.
pub(super) fn split_long(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        if text.len() <= MAX_BYTES {
            return rest.take();
        }
        let most = text.floor_char_boundary(MAX_BYTES);
        let is_free = |(at, _): &(usize, &str)| !text[at + 1..].starts_with(char::is_whitespace);
        let line = text[..most].rmatch_indices('\n').find(is_free).map(|(at, _)| at + 1);
        let (part, after) = text.split_at(line.unwrap_or(most));
        rest = Some(after);
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_split_at_line_ends_and_none_of_it_is_lost() {
        let lines = "Der Rhein fließt.\n\n  Weiter.\n".repeat(100_000);
        for text in ["", "short", &lines, &"ß".repeat(MAX_BYTES)] {
            let parts: Vec<&str> = split_long(text).collect();
            assert_eq!(parts.concat(), text);
            assert_eq!(parts.len(), text.len().div_ceil(MAX_BYTES).max(1));
            assert!(parts.iter().all(|part| part.len() <= MAX_BYTES));
        }
        assert!(split_long(&lines).all(|part| part.starts_with("Der") && part.ends_with("Weiter.\n")));
    }
}
