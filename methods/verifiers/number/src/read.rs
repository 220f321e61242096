//! Numbers as people write them: `-1,234.5`, `3/4`, `50%`, `1e6`, `$42`.

/// The number that a text is, with a unit or a currency sign around it at most.
pub(crate) fn whole(text: &str) -> Option<f64> {
    let text = text.trim().trim_matches(|c: char| c == '$' || c.is_whitespace());
    let numbers = all(text);
    match numbers.as_slice() {
        [(start, end, value)] => {
            let around = text[..*start].chars().chain(text[*end..].chars());
            let unit = |c: char| c.is_alphabetic() || c.is_whitespace() || "€£¥°.\\{}".contains(c);
            around.into_iter().all(unit).then_some(*value)
        }
        _ => None,
    }
}

/// The last number in a text.
pub(crate) fn last(text: &str) -> Option<f64> {
    all(text).last().map(|(.., value)| *value)
}

/// The content of the last `\boxed{…}` that is closed.
pub(crate) fn boxed(text: &str) -> Option<&str> {
    let mut found = None;
    for (start, opening) in text.match_indices("\\boxed{") {
        let content = &text[start + opening.len()..];
        let mut depth = 1;
        let end = content.char_indices().find(|(_, c)| {
            depth += match c {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            depth == 0
        });
        found = end.map(|(end, _)| &content[..end]).or(found);
    }
    found
}

/// Every number of a text with the bytes that it covers.
fn all(text: &str) -> Vec<(usize, usize, f64)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < text.len() {
        match number(text, at) {
            Some((end, value)) => {
                found.push((at, end, value));
                at = end;
            }
            None => at += text[at..].chars().next().map_or(1, char::len_utf8),
        }
    }
    found
}

/// A number that begins at a place: its end and its value.
fn number(text: &str, at: usize) -> Option<(usize, f64)> {
    let before = text[..at].chars().next_back();
    let mut place = at;
    let negative = match text[at..].chars().next()? {
        // A minus between two numbers or words is no sign.
        '-' | '−' if before.is_none_or(|c| !c.is_alphanumeric() && c != ')') => true,
        '+' if before.is_none_or(|c| !c.is_alphanumeric() && c != ')') => false,
        '0'..='9' | '.' => {
            place = at;
            return finish(text, place, false);
        }
        _ => return None,
    };
    place += text[at..].chars().next().map_or(1, char::len_utf8);
    text[place..].starts_with(|c: char| c.is_ascii_digit() || c == '.').then_some(())?;
    finish(text, place, negative)
}

/// The digits from a place on, then a fraction or a percent sign.
fn finish(text: &str, at: usize, negative: bool) -> Option<(usize, f64)> {
    let (mut end, mut value) = digits(text, at)?;
    if let Some(rest) = text[end..].strip_prefix('/')
        && rest.starts_with(|c: char| c.is_ascii_digit())
        && let Some((after, divisor)) = digits(text, end + 1)
        && divisor != 0.0
    {
        (end, value) = (after, value / divisor);
    }
    for sign in ["\\%", "%"] {
        if text[end..].starts_with(sign) {
            (end, value) = (end + sign.len(), value / 100.0);
        }
    }
    Some((end, if negative { -value } else { value }))
}

/// Digits with thousands separators, decimals and an exponent.
fn digits(text: &str, at: usize) -> Option<(usize, f64)> {
    let bytes = text.as_bytes();
    let digit = |place: usize| bytes.get(place).is_some_and(u8::is_ascii_digit);
    let (mut end, mut plain) = (at, String::new());
    loop {
        if digit(end) {
            plain.push(bytes[end] as char);
            end += 1;
        } else if bytes.get(end) == Some(&b',')
            && !plain.is_empty()
            && (1..=3).all(|ahead| digit(end + ahead))
            && !digit(end + 4)
        {
            end += 1;
        } else {
            break;
        }
    }
    if bytes.get(end) == Some(&b'.') && digit(end + 1) {
        plain.push('.');
        end += 1;
        while digit(end) {
            plain.push(bytes[end] as char);
            end += 1;
        }
    }
    let signed = usize::from(bytes.get(end + 1).is_some_and(|sign| b"+-".contains(sign)));
    if bytes.get(end).is_some_and(|letter| b"eE".contains(letter)) && digit(end + 1 + signed) {
        let start = end;
        end += 1 + signed;
        while digit(end) {
            end += 1;
        }
        plain.push_str(&text[start..end]);
    }
    plain.parse().ok().filter(|value: &f64| value.is_finite()).map(|value| (end, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        for (text, wanted) in [
            ("42", 42.0),
            ("-1,234.5", -1234.5),
            ("3/4", 0.75),
            ("50%", 0.5),
            ("50\\%", 0.5),
            ("1e6", 1e6),
            ("$42", 42.0),
            ("5 cm", 5.0),
            (" .5", 0.5),
            ("−3", -3.0),
        ] {
            assert_eq!(whole(text), Some(wanted), "{text}");
        }
        for text in ["", "cm", "1 or 2", "x = 5 + 2", "1/0 and"] {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    #[test]
    fn the_last_number_counts_and_a_minus_between_numbers_is_no_sign() {
        assert_eq!(last("3 + 4 = 7."), Some(7.0));
        assert_eq!(last("10-3"), Some(3.0));
        assert_eq!(last("about -3 or so"), Some(-3.0));
        assert_eq!(last("none"), None);
    }

    #[test]
    fn the_last_closed_box_counts() {
        assert_eq!(boxed("\\boxed{1} then \\boxed{2{3}}"), Some("2{3}"));
        assert_eq!(boxed("\\boxed{1} then \\boxed{2"), Some("1"));
        assert_eq!(boxed("none"), None);
    }
}
