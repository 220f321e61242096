//! Values as Python prints them, for templates that were written against Python's Jinja.

use minijinja::Value;
use minijinja::value::ValueKind;

/// Formats a value as Python's `str` does; undefined gives an empty text.
pub(super) fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_undefined() => String::new(),
        None => repr(value),
    }
}

/// Formats a value as Python's `repr` does: texts in quotes, `None`, `True`, `False`, lists, tuples and dicts.
fn repr(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "None".into(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.into(),
        ValueKind::Number => number(value),
        ValueKind::String => quoted(value.as_str().unwrap_or_default()),
        ValueKind::Seq if value.is_tuple() => format!("({})", items(value)),
        ValueKind::Seq => format!("[{}]", items(value)),
        ValueKind::Map => format!("{{{}}}", pairs(value)),
        _ => value.to_string(),
    }
}

/// The items of a sequence as Python's `repr` prints them, joined by `, `, without brackets.
fn items(value: &Value) -> String {
    let items = value.try_iter().into_iter().flatten();
    items.map(|item| repr(&item)).collect::<Vec<_>>().join(", ")
}

/// The entries of a map as `key: value` in Python's `repr`, joined by `, `, without braces.
fn pairs(value: &Value) -> String {
    let keys = value.try_iter().into_iter().flatten();
    let pair = |key: Value| format!("{}: {}", repr(&key), repr(&value.get_item(&key).unwrap_or_default()));
    keys.map(pair).collect::<Vec<_>>().join(", ")
}

/// Formats a number as Python does: integers as they are, floats in the shortest form that reads back as the same
/// value.
pub(super) fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

/// Formats a float in Python's notation, with an exponent below 1e-4 and from 1e16 on.
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

/// Quotes and escapes a text as Python's `repr` does: in single quotes, unless it holds single and no double quotes.
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
            _ if character.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(character))),
            _ => out.push(character),
        }
    }
    out.push(quote);
    out
}
