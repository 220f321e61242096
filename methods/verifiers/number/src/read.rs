//! Finds numbers in texts, in the usual notations: `-1,234.5`, `3/4`, `50%`, `1e6`, `$42`.

use tunebox::verifier::split_number;

/// Parses a text that has one number and besides it at most letters, spaces and currency signs. `None` for any other.
pub(crate) fn only_number(text: &str) -> Option<f64> {
    let text = text.trim().trim_matches(|c: char| c == '$' || c.is_whitespace());
    let numbers = find_numbers(text);
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
pub(crate) fn last_number(text: &str) -> Option<f64> {
    find_numbers(text).last().map(|(.., value)| *value)
}

/// Finds all numbers of a text, as (first byte, byte after the last one, value).
fn find_numbers(text: &str) -> Vec<(usize, usize, f64)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < text.len() {
        match parse_number_at(text, at) {
            Some((end, value)) => {
                found.push((at, end, value));
                at = end;
            }
            None => at += text[at..].chars().next().map_or(1, char::len_utf8),
        }
    }
    found
}

/// Parses the number that begins at the byte `at`, with a sign, a divisor (`3/4`) and a percent sign, if it has them.
/// Returns the byte after it and its value; `None` if no number begins there.
fn parse_number_at(text: &str, at: usize) -> Option<(usize, f64)> {
    let before = text[..at].chars().next_back();
    let first = text[at..].chars().next()?;
    let start = match first {
        // Between two numbers or words it is an operator or a hyphen.
        '-' | '−' | '+' if before.is_none_or(|c| !c.is_alphanumeric() && c != ')') => at + first.len_utf8(),
        '0'..='9' | '.' => at,
        _ => return None,
    };
    let (mut value, mut rest) = parse_unsigned(&text[start..])?;
    let divisor = rest.strip_prefix('/').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if let Some((divisor, after)) = divisor.and_then(parse_unsigned)
        && divisor != 0.0
    {
        (value, rest) = (value / divisor, after);
    }
    for percent in ["\\%", "%"] {
        if let Some(after) = rest.strip_prefix(percent) {
            (value, rest) = (value / 100.0, after);
        }
    }
    Some((text.len() - rest.len(), if matches!(first, '-' | '−') { -value } else { value }))
}

/// Parses the number at the beginning of a text, with thousands separators, decimals and an exponent. Returns its value
/// and the rest of the text; `None` if there is none, or it is too large for `f64`.
fn parse_unsigned(text: &str) -> Option<(f64, &str)> {
    let (mut plain, mut rest) = split_number(text);
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let after = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        if after.len() < digits.len() {
            plain += &rest[..rest.len() - after.len()];
            rest = after;
        }
    }
    plain.parse().ok().filter(|value: &f64| value.is_finite()).map(|value| (value, rest))
}

#[cfg(test)]
mod tests {
    use tunebox::verifier::boxes;

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
            assert_eq!(only_number(text), Some(wanted), "{text}");
        }
        for text in ["", "cm", "1 or 2", "x = 5 + 2", "1/0 and"] {
            assert_eq!(only_number(text), None, "{text}");
        }
    }

    #[test]
    fn the_last_number_counts_and_a_minus_between_numbers_is_no_sign() {
        assert_eq!(last_number("3 + 4 = 7."), Some(7.0));
        assert_eq!(last_number("10-3"), Some(3.0));
        assert_eq!(last_number("about -3 or so"), Some(-3.0));
        assert_eq!(last_number("none"), None);
    }

    #[test]
    fn the_last_closed_box_counts() {
        let boxed = |text| boxes(text).pop();
        assert_eq!(boxed("\\boxed{1} then \\boxed{2{3}}"), Some("2{3}"));
        assert_eq!(boxed("\\boxed{1} then \\boxed{2"), Some("1"));
        assert_eq!(boxed("none"), None);
    }
}
