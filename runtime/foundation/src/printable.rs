//! Text from a stranger, made safe to show.
//!
//! A method's words reach logs, error messages and terminals. Control characters, escape
//! sequences and characters that turn the direction of writing come out as visible escapes.

/// `text` with every character that could act on a terminal escaped, cut to about `limit` bytes.
#[must_use]
pub fn printable(text: &str, limit: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(limit));
    for character in text.chars() {
        if shown.len() >= limit {
            shown.push('…');
            break;
        }
        if acts(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Whether a character does something beside being seen: moves the cursor, turns the direction of writing, hides.
#[must_use]
pub fn acts(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn an_escape_sequence_is_shown_and_not_sent() {
        assert_eq!(printable("a\u{1b}[2Jb\n", 100), "a\\u{1b}[2Jb\\u{a}");
    }

    #[test]
    fn text_that_turns_the_direction_of_writing_is_shown_escaped() {
        assert_eq!(printable("x\u{202e}y", 100), "x\\u{202e}y");
        assert_eq!(printable("x\u{e0041}\u{ad}y", 100), "x\\u{e0041}\\u{ad}y");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(printable("ääää", 4), "ää…");
    }
}
