//! Makes untrusted text safe to show in terminals and logs.
//!
//! Text of a method reaches logs, error messages and terminals. Control characters, escape sequences and characters
//! that change the writing direction are replaced by visible escapes.

/// Replaces every character of `text` for which [`is_unprintable`] holds by its code point, such as `\u{1b}`. Once the
/// result has `limit` bytes or more, the rest of `text`, if any, is replaced by `…`.
#[must_use]
pub fn printable(text: &str, limit: usize) -> String {
    printable_except(text, limit, &[])
}

/// Replaces every character of `text` for which [`is_unprintable`] holds, unless it is in `kept`, by its code point,
/// such as `\u{1b}`. Once the result has `limit` bytes or more, the rest of `text`, if any, is replaced by `…`.
#[must_use]
pub fn printable_except(text: &str, limit: usize, kept: &[char]) -> String {
    let mut shown = String::with_capacity(text.len().min(limit));
    for character in text.chars() {
        if shown.len() >= limit {
            shown.push('…');
            break;
        }
        if is_unprintable(character) && !kept.contains(&character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Whether a character is unsafe to show: a control character (line breaks and tabs too), a mark of writing direction,
/// or an invisible character such as a soft hyphen or a zero-width space. False for ordinary spaces.
#[must_use]
pub fn is_unprintable(character: char) -> bool {
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
