//! Values as Python prints them, for templates that were written against Python's Jinja.

use minijinja::Value;
use minijinja::value::ValueKind;
use tunebox_foundation::printable::is_unprintable;

/// How deep nested lists and maps are printed: a map of a template may contain itself.
pub(super) const MAX_DEPTH: usize = 100;
/// The most bytes of a printed value, and of a whole rendering: more than any model reads.
pub(super) const MAX_TEXT: usize = 32 << 20;

/// Formats a value as Python's `str` does: strings without quotes, other values as [`repr`] prints them. Undefined
/// gives an empty text.
pub(super) fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_undefined() => String::new(),
        None => {
            let mut out = String::new();
            repr(&mut out, value, 0);
            out
        }
    }
}

/// Appends a value as Python's `repr` prints it: strings in quotes, `None`, `True`, `False`, lists, tuples and dicts.
/// `depth` counts the lists and maps around the value, which becomes `...` if they are more than [`MAX_DEPTH`]. Leaves
/// out further items once `out` has more than [`MAX_TEXT`] bytes.
fn repr(out: &mut String, value: &Value, depth: usize) {
    match value.kind() {
        _ if depth > MAX_DEPTH => out.push_str("..."),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => out.push_str(&quoted(value.as_str().unwrap_or_default())),
        ValueKind::Seq if value.is_tuple() => items(out, value, ['(', ')'], |out, item| repr(out, item, depth + 1)),
        ValueKind::Seq => items(out, value, ['[', ']'], |out, item| repr(out, item, depth + 1)),
        ValueKind::Map => items(out, value, ['{', '}'], |out, key| {
            repr(out, key, depth + 1);
            out.push_str(": ");
            repr(out, &value.get_item(key).unwrap_or_default(), depth + 1);
        }),
        _ => out.push_str(&value.to_string()),
    }
}

/// Appends the items of a sequence or the keys of a map, each by `write`, between the brackets `open` and `close` and
/// separated by `, `. Stops before an item once `out` has more than [`MAX_TEXT`] bytes, but still closes.
fn items(out: &mut String, value: &Value, [open, close]: [char; 2], write: impl Fn(&mut String, &Value)) {
    out.push(open);
    for (number, item) in value.try_iter().into_iter().flatten().enumerate() {
        if out.len() > MAX_TEXT {
            break;
        }
        if number > 0 {
            out.push_str(", ");
        }
        write(out, &item);
    }
    out.push(close);
}

/// Formats a number as Python does: integers as they are, floats in the shortest form that reads back as the same
/// value.
pub(super) fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

/// Formats a float in Python's notation, with an exponent if its absolute value is below 1e-4, but not 0, or from 1e16
/// on; `nan`, `inf` and `-inf` for the values that are not finite.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let written = format!("{number:e}");
        let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
        let (sign, places) = exponent.strip_prefix('-').map_or(("+", exponent), |places| ("-", places));
        return format!("{digits}e{sign}{places:0>2}");
    }
    format!("{number:?}")
}

/// Quotes and escapes a text as Python's `repr` does: in single quotes, or in double quotes if it holds single and no
/// double quotes. Escapes backslashes, the quote, control and format characters, and all spaces but the ASCII one.
/// Unlike `repr`, leaves code points as they are that Unicode has not assigned, or for private use.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => out.extend(['\\', quote]),
            ' ' => out.push(' '),
            _ if is_unprintable(character) || character.is_whitespace() => out.push_str(&escape(character)),
            _ => out.push(character),
        }
    }
    out.push(quote);
    out
}

/// The code point of a character as Python escapes it: `\xa0`, `\u200b` or `\U000e0041`.
fn escape(character: char) -> String {
    match u32::from(character) {
        code @ 0..=0xff => format!("\\x{code:02x}"),
        code @ 0x100..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn what_python_does_not_print_is_escaped_as_it_escapes_it() {
        // As `repr` of Python 3.11 writes it.
        let text = "a\u{a0}b\u{200b}c\u{feff}d\u{85}e\u{3000}f\u{e0041}g é 中 \u{7f}";
        assert_eq!(quoted(text), r"'a\xa0b\u200bc\ufeffd\x85e\u3000f\U000e0041g é 中 \x7f'");
    }
}
