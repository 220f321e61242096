//! The schema of a run file, and the check of a document against it.
//!
//! The schema comes from the tables themselves, so what is documented, what is offered to
//! editors and what is enforced are one thing.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::document::{Document, Half};
use super::fault::{ConfigurationError, Problem};
use super::tables::RunFile;

/// The JSON schema of a run file.
#[must_use]
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<RunFile>().to_value()
}

/// The whole key of a run file whose last part is this name: `train.steps` for `steps`.
#[must_use]
pub fn key_called(name: &str) -> Option<String> {
    below(&schema(), "", name)
}

fn below(schema: &Value, above: &str, name: &str) -> Option<String> {
    let properties = schema["properties"].as_object()?;
    if !above.is_empty() && properties.contains_key(name) {
        return Some(format!("{above}{name}"));
    }
    properties.iter().find_map(|(key, schema)| below(schema, &format!("{above}{key}."), name))
}

/// Walks a document along the schema; the first thing wrong is the error.
///
/// Text values that a `--set` read as numbers become text again where text is wanted.
pub(super) fn check(document: &mut Document) -> Result<(), ConfigurationError> {
    let mut tree = std::mem::take(&mut document.tree);
    let result = Walk { document, path: Vec::new() }.table(&schema(), &mut tree);
    document.tree = tree;
    result
}

struct Walk<'a> {
    document: &'a Document,
    path: Vec<String>,
}

impl Walk<'_> {
    fn table(&mut self, schema: &Value, table: &mut Map<String, Value>) -> Result<(), ConfigurationError> {
        let nothing = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&nothing);
        for (key, value) in table.iter_mut() {
            self.path.push(key.clone());
            match properties.get(key) {
                Some(below) => self.value(below, value)?,
                None if schema["additionalProperties"] == Value::Bool(false) => {
                    return Err(self.unknown(key, properties));
                }
                None => {}
            }
            self.path.pop();
        }
        self.required(schema, properties, table)
    }

    fn required(
        &mut self,
        schema: &Value,
        properties: &Map<String, Value>,
        table: &Map<String, Value>,
    ) -> Result<(), ConfigurationError> {
        let mut required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let Some(key) = required.find(|key| !table.contains_key(*key)) else { return Ok(()) };
        self.path.push(key.to_owned());
        if let Some(below) = properties.get(key).filter(|below| below["properties"].is_object()) {
            // The key that is missing in a table that is missing says more than the table.
            self.table(below, &mut Map::new())?;
        }
        Err(self.error(Problem::Missing { key: self.key() }, Half::Key))
    }

    fn value(&mut self, schema: &Value, value: &mut Value) -> Result<(), ConfigurationError> {
        if let Some(cases) = schema["anyOf"].as_array() {
            return self.any_of(cases, value);
        }
        let names = type_names(schema);
        if names.contains(&"string")
            && self.document.is_override(&self.path)
            && let Some(text) = scalar_text(value)
        {
            *value = Value::String(text);
        }
        if !names.is_empty() && !names.iter().any(|name| is_of(value, name)) {
            let expected = names.iter().filter(|name| **name != "null").map(|name| article(name)).collect::<Vec<_>>();
            let problem =
                Problem::Type { key: self.key(), found: found(value).to_owned(), expected: expected.join(" or ") };
            return Err(self.error(problem, Half::Value));
        }
        self.choice(schema, value)?;
        self.range(schema, value)?;
        match value {
            Value::Object(table) => self.table(schema, table),
            Value::Array(items) => items.iter_mut().enumerate().try_for_each(|(number, item)| {
                if !item.is_object() {
                    return self.value(&schema["items"], item);
                }
                self.path.push(number.to_string());
                self.value(&schema["items"], item)?;
                self.path.pop();
                Ok(())
            }),
            _ => Ok(()),
        }
    }

    /// The first case that fits; if none does, the complaint of the case of the value's own type.
    fn any_of(&mut self, cases: &[Value], value: &mut Value) -> Result<(), ConfigurationError> {
        let cases: Vec<&Value> = cases.iter().filter(|case| case["type"] != "null").collect();
        let depth = self.path.len();
        let mut complaint = None;
        for case in cases {
            match self.value(case, value) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.path.truncate(depth);
                    let better = !matches!(error.problem, Problem::Type { .. }) || complaint.is_none();
                    complaint = if better { Some(error) } else { complaint };
                }
            }
        }
        complaint.map_or(Ok(()), Err)
    }

    fn choice(&self, schema: &Value, value: &Value) -> Result<(), ConfigurationError> {
        let choices = choices(schema);
        match value.as_str() {
            Some(text) if !choices.is_empty() && !choices.iter().any(|choice| choice == text) => {
                let problem = Problem::Choice { key: self.key(), value: text.to_owned(), choices };
                Err(self.error(problem, Half::Value))
            }
            _ => Ok(()),
        }
    }

    fn range(&self, schema: &Value, value: &Value) -> Result<(), ConfigurationError> {
        let Some(number) = value.as_f64() else { return Ok(()) };
        let at = |key: &str| schema[key].as_f64();
        let low = at("minimum").is_none_or(|low| number >= low);
        let high = at("maximum").is_none_or(|high| number <= high);
        let above = at("exclusiveMinimum").is_none_or(|low| number > low);
        let below = at("exclusiveMaximum").is_none_or(|high| number < high);
        if low && high && above && below {
            return Ok(());
        }
        let problem = Problem::Range { key: self.key(), value: value.to_string(), range: range_words(schema) };
        Err(self.error(problem, Half::Value))
    }

    fn unknown(&self, key: &str, properties: &Map<String, Value>) -> ConfigurationError {
        let table = self.path[..self.path.len() - 1].join(".");
        let known = properties.keys().cloned().collect();
        self.error(Problem::UnknownKey { key: key.to_owned(), table, known }, Half::Key)
    }

    fn error(&self, problem: Problem, half: Half) -> ConfigurationError {
        ConfigurationError { problem, spot: self.document.spot(&self.path, half).map(Box::new) }
    }

    fn key(&self) -> String {
        self.path.join(".")
    }
}

fn type_names(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ if schema["oneOf"].is_array() => vec!["string"],
        _ => Vec::new(),
    }
}

/// The texts that a value can be: `enum`, or `oneOf` with a `const` each (documented variants).
fn choices(schema: &Value) -> Vec<String> {
    let plain = schema["enum"].as_array().into_iter().flatten();
    let documented = schema["oneOf"].as_array().into_iter().flatten();
    let documented = documented.flat_map(|case| match case["enum"].as_array() {
        Some(several) => several.iter().collect(),
        None => vec![&case["const"]],
    });
    plain.chain(documented).filter_map(Value::as_str).map(str::to_owned).collect()
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        _ => false,
    }
}

fn article(name: &str) -> String {
    match name {
        "string" => "text in quotes".into(),
        "integer" => "a whole number".into(),
        "boolean" => "`true` or `false`".into(),
        "object" => "a table".into(),
        "array" => "a list".into(),
        other => format!("a {other}"),
    }
}

fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

/// How a scalar was typed, near enough: `--set run.name=42` means the text.
fn scalar_text(value: &Value) -> Option<String> {
    (value.is_number() || value.is_boolean()).then(|| value.to_string())
}

/// What a key takes, in the words that settings of methods are told in.
fn range_words(schema: &Value) -> String {
    let bounds =
        [("at least", "minimum"), ("above", "exclusiveMinimum"), ("at most", "maximum"), ("below", "exclusiveMaximum")];
    let words = bounds.iter().filter_map(|(word, key)| Some(format!("{word} {}", schema[*key].as_f64()?)));
    words.collect::<Vec<_>>().join(" and ")
}
