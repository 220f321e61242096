//! JSON in and out of templates: records as template values, and `tojson` as transformers defines it.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde_json::{Map, Value as Json};

use super::{budget, python_repr};

/// A JSON value as a template sees it; the order of keys is kept.
pub(super) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Value::from(whole),
            (None, Some(whole)) => Value::from(whole),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(value).collect::<Vec<_>>()),
        Json::Object(fields) => object(fields),
    }
}

/// A JSON object as a template sees it.
pub(super) fn object(fields: &Map<String, Json>) -> Value {
    Value::from_pairs(fields.iter().map(|(name, field)| (name.as_str(), value(field))))
}

/// `value | tojson(ensure_ascii, indent, separators, sort_keys=…)`: Python's `json.dumps`, without HTML escapes.
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

fn part(separators: &Value, index: usize) -> Result<String, Error> {
    let item = separators.get_item_by_index(index)?;
    let text = item.as_str().map(str::to_owned);
    text.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "`separators` is not a pair of texts"))
}

struct Writer {
    out: String,
    ascii: bool,
    indent: Option<String>,
    between: String,
    after_key: String,
    sorted: bool,
}

impl Writer {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
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

    fn number(&mut self, value: &Value) {
        let written = python_repr::number(value);
        self.out.push_str(match written.as_str() {
            "nan" => "NaN",
            "inf" => "Infinity",
            "-inf" => "-Infinity",
            other => other,
        });
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.next(empty, depth + 1)?;
            empty = false;
            self.write(&item, depth + 1)?;
        }
        self.close(empty, depth, ']')
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sorted {
            keys.sort();
        }
        self.out.push('{');
        for (index, key) in keys.iter().enumerate() {
            self.next(index == 0, depth + 1)?;
            match key.kind() {
                ValueKind::None => self.text("null"),
                ValueKind::Bool => self.text(if key.is_true() { "true" } else { "false" }),
                _ => self.text(&python_repr::text(key)),
            }
            self.out.push_str(&self.after_key.clone());
            self.write(&value.get_item(key)?, depth + 1)?;
        }
        self.close(keys.is_empty(), depth, '}')
    }

    fn next(&mut self, first: bool, depth: usize) -> Result<(), Error> {
        if !first {
            budget::charge(self.between.len() as u64)?;
            self.out.push_str(&self.between.clone());
        }
        self.line(depth)
    }

    fn close(&mut self, empty: bool, depth: usize, bracket: char) -> Result<(), Error> {
        if !empty {
            self.line(depth)?;
        }
        self.out.push(bracket);
        Ok(())
    }

    fn line(&mut self, depth: usize) -> Result<(), Error> {
        if let Some(indent) = &self.indent {
            budget::charge((indent.len() as u64).saturating_mul(depth as u64))?;
            self.out.push('\n');
            self.out.push_str(&indent.repeat(depth));
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                _ if character < ' ' || (self.ascii && !(' '..='~').contains(&character)) => self.escaped(character),
                _ => self.out.push(character),
            }
        }
        self.out.push('"');
    }

    fn escaped(&mut self, character: char) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            self.out.push_str(&format!("\\u{unit:04x}"));
        }
    }
}
