//! The JSON schema of a run file, and the check of a document against it.
//!
//! The schema is generated from `tables`, so documentation, editor completion and the check cannot differ.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::nearest::nearest;

use super::document::{Document, Underline, join_key};
use super::tables::RunFile;
use crate::error::Error;

/// Tests whether a number is within a bound.
type IsWithin = fn(number: f64, bound: f64) -> bool;

/// The bounds of a number: key in the schema, words, and the test of a number against the bound.
const BOUNDS: [(&str, &str, IsWithin); 4] = [
    ("minimum", "at least", |number, bound| number >= bound),
    ("exclusiveMinimum", "above", |number, bound| number > bound),
    ("maximum", "at most", |number, bound| number <= bound),
    ("exclusiveMaximum", "below", |number, bound| number < bound),
];

/// Tests whether a value has a type.
type IsOfType = fn(&Value) -> bool;

/// The types of values: name in the schema, words, and the test of a value.
const TYPES: [(&str, &str, IsOfType); 6] = [
    ("string", "text in quotes", Value::is_string),
    ("integer", "a whole number", |value| value.is_i64() || value.is_u64()),
    ("number", "a number", Value::is_number),
    ("boolean", "`true` or `false`", Value::is_boolean),
    ("object", "a table", Value::is_object),
    ("array", "a list", Value::is_array),
];

/// Returns the JSON schema of a run file (draft 2020-12), generated from its tables, without references between its
/// parts.
#[must_use]
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<RunFile>().to_value()
}

/// Finds the dotted key of a run file whose last part equals `name`: `train.steps` for `steps`. Returns the first in
/// the order of the schema; `None` if there is none. Top-level tables and keys of `[[verifier]]` do not count.
#[must_use]
pub fn find_key(name: &str) -> Option<String> {
    find_key_below(&schema(), "", name)
}

/// Finds the first key named `name` in the table with this schema, whose dotted key is `table`, and in the tables below
/// it; returns its dotted key.
fn find_key_below(schema: &Value, table: &str, name: &str) -> Option<String> {
    let properties = schema["properties"].as_object()?;
    if !table.is_empty() && properties.contains_key(name) {
        return Some(join_key(table, name));
    }
    properties.iter().find_map(|(key, schema)| find_key_below(schema, &join_key(table, key), name))
}

/// Checks a document against the schema of run files: keys, types, choices, ranges, required keys.
///
/// Numbers and booleans of a `--set` become text where the schema wants text; nothing else of the document changes. A
/// document without values is checked as an empty table, so its first required key is missing.
///
/// # Errors
/// The first problem, with its location.
pub(super) fn check(document: &mut Document) -> Result<(), Error> {
    let mut table = match document.tree.take() {
        Value::Object(table) => table,
        _ => Map::new(),
    };
    let result = document.check_table("", &schema(), &mut table);
    document.tree = Value::Object(table);
    result
}

impl Document {
    /// Checks every value of `table`, whose dotted key is `path` (empty for the whole file), in the order of the table;
    /// that it has no key outside of the schema, if the schema permits no others; then that no required key is missing.
    /// Fails at the first problem.
    fn check_table(&self, path: &str, schema: &Value, table: &mut Map<String, Value>) -> Result<(), Error> {
        let nothing = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&nothing);
        for (key, value) in table.iter_mut() {
            match properties.get(key) {
                Some(below) => self.check_value(&join_key(path, key), below, value)?,
                None if schema["additionalProperties"] == Value::Bool(false) => {
                    return Err(self.unknown_key(path, key, properties));
                }
                None => {}
            }
        }
        self.check_required(path, schema, table)
    }

    /// Checks that `table`, whose dotted key is `path`, has every required key. Fails for the first that is missing; if
    /// that is a table with required keys, the error names the first of those.
    fn check_required(&self, path: &str, schema: &Value, table: &Map<String, Value>) -> Result<(), Error> {
        let mut required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let Some(key) = required.find(|key| !table.contains_key(*key)) else { return Ok(()) };
        let missing = join_key(path, key);
        let below = &schema["properties"][key];
        if below["properties"].is_object() {
            // Name the missing key of a missing table, not the table.
            self.check_table(&missing, below, &mut Map::new())?;
        }
        let problem = Explanation::new("config", format!("`{missing}` is missing")).with_hint(missing_hint(&missing));
        Err(self.error(&missing, Underline::Key, problem, None))
    }

    /// Checks the type, choice and range of the value at the dotted key `path`, then the values in it. Of alternatives
    /// (`anyOf`), takes the first with the value's type, null left out, else the first. Converts a number or boolean of
    /// a `--set` to text where the schema wants text.
    fn check_value(&self, path: &str, schema: &Value, value: &mut Value) -> Result<(), Error> {
        if let Some(cases) = schema["anyOf"].as_array() {
            let cases = || cases.iter().filter(|case| case["type"] != "null");
            let fits = |case: &&Value| type_names(case).iter().any(|name| has_type(value, name));
            // A value of no case's type is reported by the first case.
            return cases().find(fits).or(cases().next()).map_or(Ok(()), |case| self.check_value(path, case, value));
        }
        let names = type_names(schema);
        let is_scalar = value.is_number() || value.is_boolean();
        if names.contains(&"string") && is_scalar && self.is_override(path) {
            // `--set run.name=42` means the text.
            *value = Value::String(value.to_string());
        }
        if !names.is_empty() && !names.iter().any(|name| has_type(value, name)) {
            return Err(self.wrong_type(path, &names, value));
        }
        self.check_choice(path, schema, value)?;
        self.check_range(path, schema, value)?;
        match value {
            Value::Object(table) => self.check_table(path, schema, table),
            Value::Array(items) => items.iter_mut().enumerate().try_for_each(|(number, item)| {
                let inside = if item.is_object() { join_key(path, &number.to_string()) } else { path.to_owned() };
                self.check_value(&inside, &schema["items"], item)
            }),
            _ => Ok(()),
        }
    }

    /// The error about the value at `path`, whose type is not among the schema types `names`.
    fn wrong_type(&self, path: &str, names: &[&str], value: &Value) -> Error {
        let expected = TYPES.iter().filter(|(name, ..)| names.contains(name)).map(|(_, words, _)| *words);
        let expected = format!("{} is wanted", expected.collect::<Vec<_>>().join(" or "));
        let mut problem = Explanation::new("config", format!("`{path}` is {}, {expected}", describe_value(value)));
        if value.is_string() {
            problem.hint = table_hint(path);
        }
        self.error(path, Underline::Value, problem, Some(expected))
    }

    /// Checks that a text is one of the choices, if the schema lists choices. Accepts values that are no text.
    fn check_choice(&self, path: &str, schema: &Value, value: &Value) -> Result<(), Error> {
        let choices = choices(schema);
        match value.as_str() {
            Some(text) if !choices.is_empty() && !choices.contains(&text) => {
                let problem = Explanation::new("config", format!("`{path}` cannot be `{text}`"));
                let problem = problem.with_hint(suggest(text, &choices, "it can be"));
                Err(self.error(path, Underline::Value, problem, None))
            }
            _ => Ok(()),
        }
    }

    /// Checks a number against the bounds of the schema ([`BOUNDS`]), those that it has. Accepts values that are no
    /// numbers.
    fn check_range(&self, path: &str, schema: &Value, value: &Value) -> Result<(), Error> {
        let Some(number) = value.as_f64() else { return Ok(()) };
        let bounds = BOUNDS.iter().filter_map(|(key, words, test)| Some((schema[*key].as_f64()?, words, test)));
        if bounds.clone().all(|(bound, _, test)| test(number, bound)) {
            return Ok(());
        }
        let range = bounds.map(|(bound, words, _)| format!("{words} {bound}")).collect::<Vec<_>>().join(" and ");
        let problem = Explanation::new("config", format!("`{path}` is {value}, it must be {range}"));
        Err(self.error(path, Underline::Value, problem, None))
    }

    /// The error about a key of `table` that the schema does not have; `properties` are the known keys. The hint names
    /// a similar one.
    fn unknown_key(&self, table: &str, key: &str, properties: &Map<String, Value>) -> Error {
        let known: Vec<&str> = properties.keys().map(String::as_str).collect();
        let (list, note) = match table {
            "" => ("tables".to_owned(), "not a table of a run file".to_owned()),
            _ => (format!("keys of `[{table}]`"), format!("not a key of `[{table}]`")),
        };
        let problem = Explanation::new("config", format!("unknown key `{key}`")).with_hint(suggest(key, &known, &list));
        self.error(&join_key(table, key), Underline::Key, problem, Some(note))
    }
}

/// The names of the JSON types that a schema permits; empty if it permits all. Documented choices (`oneOf`) are
/// strings.
fn type_names(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ if schema["oneOf"].is_array() => vec!["string"],
        _ => Vec::new(),
    }
}

/// The texts that the schema permits: those of its `enum` or `const`, or of each case of its `oneOf`. Empty if any text is
/// permitted.
fn choices(schema: &Value) -> Vec<&str> {
    let several = schema["enum"].as_array().into_iter().flatten().chain([&schema["const"]]);
    let documented = schema["oneOf"].as_array().into_iter().flatten().flat_map(choices);
    several.filter_map(Value::as_str).chain(documented).collect()
}

/// Whether a value has the type that a JSON schema calls `name`.
fn has_type(value: &Value, name: &str) -> bool {
    TYPES.iter().any(|(known, _, test)| *known == name && test(value))
}

/// Names the type of a JSON value, with its article, in the words of TOML: `a table`, `a list`.
fn describe_value(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

/// Returns a hint that lists the words `known` after `intro`, and first proposes the one that is most similar to
/// `word`, if [`nearest`] finds one.
fn suggest(word: &str, known: &[&str], intro: &str) -> String {
    let list = known.join(", ");
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`? ({intro}: {list})"),
        None => format!("{intro}: {list}"),
    }
}

/// The hint about a `--set` argument that is not of the form `table.key=value`: the full key if the name alone was
/// given, else an example.
pub(super) fn override_hint(assignment: &str) -> String {
    let example = "for example `--set train.batch=2`";
    match assignment.split_once('=').filter(|(name, _)| !name.is_empty() && !name.contains('.')) {
        None => example.into(),
        Some((name, value)) => match find_key(name.trim()) {
            Some(key) => format!("did you mean `--set {key}={value}`?"),
            None => format!("{example}; a setting of the method is `--set method.{}={value}`", name.trim()),
        },
    }
}

/// Says how to write a table for which only its main value was given, as in `method = "lora"`; `None` for other tables
/// than `method`, `model` and `data`.
fn table_hint(table: &str) -> Option<String> {
    let first = match table {
        "method" => "use",
        "model" | "data" => "path",
        _ => return None,
    };
    Some(format!("write `[{table}]`, and `{first} = …` on a line below it"))
}

/// A hint that says how to give the missing setting with the dotted key `key`.
fn missing_hint(key: &str) -> String {
    match key {
        "model.path" => "name a model folder, a `.gguf` file or a hub name: `--model PATH`".into(),
        "data.path" => "name a JSONL file: `--data FILE`".into(),
        "method.use" => "name a method: `--method lora`, a method folder or a `.wasm` file".into(),
        _ => format!("add it to the run file, or give `--set {key}=…`"),
    }
}
