//! The filter `tojson` of chat templates, as transformers defines it.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde_json::Value as Json;

use super::python_repr;

/// Implements `value | tojson(ensure_ascii, indent, separators, sort_keys=…)` as Python's `json.dumps`, without HTML
/// escapes. Arguments may be positional or named, except `sort_keys`. Defaults: characters outside ASCII as they are,
/// one line, `, ` between items (`,` with an indent), `: ` after keys, keys in the order of the map. Errors: a value
/// that is not JSON, is nested more than 100 deep or becomes longer than 32 MiB, an unknown named argument, or an
/// argument of another type.
pub(super) fn tojson(
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    separators: Option<Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let given = |place: Option<Value>, name: &str| -> Result<Value, Error> {
        Ok(match place {
            Some(value) => value,
            None => named.get::<Option<Value>>(name)?.unwrap_or_default(),
        })
    };
    let ascii = given(ensure_ascii, "ensure_ascii")?.is_true();
    let indent = indentation(&given(indent, "indent")?)?;
    let separators = given(separators, "separators")?;
    let sorted = given(None, "sort_keys")?.is_true();
    named.assert_all_used()?;

    let (between, after_key) = match separators.is_none() || separators.is_undefined() {
        false => (part(&separators, 0)?, part(&separators, 1)?),
        true if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        true => (", ".to_owned(), ": ".to_owned()),
    };
    let mut writer = Writer { out: String::new(), ascii, indent, between, after_key, sorted };
    writer.write(value, 0)?;
    Ok(writer.out)
}

/// Converts the argument `indent` to the string that indents one level: `None` for none or undefined, a string
/// unchanged, an integer as that many spaces, clamped to 0 to 64. Errors: any other value.
fn indentation(value: &Value) -> Result<Option<String>, Error> {
    if value.is_none() || value.is_undefined() {
        return Ok(None);
    }
    if let Some(text) = value.as_str() {
        return Ok(Some(text.to_owned()));
    }
    let wide = value.as_i64().ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "`indent` is not a number"))?;
    Ok(Some(" ".repeat(usize::try_from(wide.min(64)).unwrap_or(0))))
}

/// Returns the string at an index of the argument `separators`: 0 is between items, 1 after keys. Errors: there is no
/// string at this index.
fn part(separators: &Value, index: usize) -> Result<String, Error> {
    let item = separators.get_item_by_index(index)?;
    let text = item.as_str().map(str::to_owned);
    text.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "`separators` is not a pair of texts"))
}

/// Writes values as JSON with the options of `tojson`.
struct Writer {
    /// The JSON written so far.
    out: String,
    /// Whether characters outside printable ASCII are escaped.
    ascii: bool,
    /// The text that indents one level; `None` writes everything in one line.
    indent: Option<String>,
    /// The text between two items.
    between: String,
    /// The text between a key and its value.
    after_key: String,
    /// Whether maps are sorted by key.
    sorted: bool,
}

impl Writer {
    /// Appends a value as JSON. `depth` is the number of lists and maps around it, for the indent. Errors: a value that
    /// is not JSON, is nested deeper than [`python_repr::MAX_DEPTH`], or makes `out` longer than
    /// [`python_repr::MAX_TEXT`].
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > python_repr::MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "lists lie too deep in one another to be written as JSON",
            ));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number_text(value)),
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            kind => {
                let detail = format!("a value of kind `{kind}` cannot be written as JSON");
                return Err(Error::new(ErrorKind::InvalidOperation, detail));
            }
        }
        Ok(())
    }

    /// Appends a sequence or iterator as a JSON array.
    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.items(['[', ']'], value.try_iter()?, depth, |writer, item| writer.write(item, depth + 1))
    }

    /// Appends a map as a JSON object, sorted by key if `sort_keys` is set. Keys become texts: `null`, `true`, `false`,
    /// numbers as [`number_text`], others as Python prints them.
    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sorted {
            keys.sort();
        }
        self.items(['{', '}'], keys, depth, |writer, key| {
            match key.kind() {
                ValueKind::None => writer.text("null"),
                ValueKind::Bool => writer.text(if key.is_true() { "true" } else { "false" }),
                ValueKind::Number => writer.text(&number_text(key)),
                _ => writer.text(&python_repr::text(key)),
            }
            writer.out.push_str(&writer.after_key);
            writer.write(&value.get_item(key)?, depth + 1)
        })
    }

    /// Appends items between brackets, each by `write`, with the separator between them. With an indent, each item and
    /// the closing bracket begin a line; without items, there are no line breaks. `depth` is the number of lists and
    /// maps around this one. Errors: those of `write`, or `out` is longer than [`python_repr::MAX_TEXT`] before an
    /// item.
    fn items(
        &mut self,
        [open, close]: [char; 2],
        items: impl IntoIterator<Item = Value>,
        depth: usize,
        write: impl Fn(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        let mut empty = true;
        for item in items {
            if self.out.len() > python_repr::MAX_TEXT {
                return Err(Error::new(ErrorKind::InvalidOperation, "the JSON is longer than any text"));
            }
            if !empty {
                self.out.push_str(&self.between);
            }
            empty = false;
            self.start_line(depth + 1);
            write(self, &item)?;
        }
        if !empty {
            self.start_line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    /// Appends a line break and the indent of `depth` levels. Does nothing if the JSON is written in one line.
    fn start_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out.push_str(&indent.repeat(depth));
        }
    }

    /// Appends a JSON string. With `ensure_ascii`, characters outside printable ASCII become `\uXXXX` escapes of
    /// UTF-16.
    fn text(&mut self, text: &str) {
        for character in Json::from(text).to_string().chars() {
            if !self.ascii || (' '..='~').contains(&character) {
                self.out.push(character);
                continue;
            }
            for unit in character.encode_utf16(&mut [0; 2]) {
                self.out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
}

/// A number in Python's notation, with `NaN`, `Infinity` and `-Infinity` as `json.dumps` writes them.
fn number_text(value: &Value) -> String {
    let written = python_repr::number(value);
    match written.as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        _ => written,
    }
}
