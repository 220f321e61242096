//! The JSON schema of a run file, and the check of a document against it.
//!
//! The schema is generated from `tables`, so documentation, editor completion and the check cannot differ.

use std::sync::OnceLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use tunebox_foundation::explain::Explanation;
use tunebox_foundation::nearest::nearest;

use super::document::{Document, Underline, join_key};
use super::names::{meant_choice_hint, unknown_key_hint};
use super::problems::{Problem, add_problem};
use super::tables::RunFile;

/// The setting that is one word or a list of names.
const TARGETS: &str = "train.adapter.targets";

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

/// The JSON schema of a run file (draft 7, which editors of TOML understand), generated from its tables, without
/// references between its parts.
#[must_use]
pub fn schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
        settings.into_generator().into_root_schema_for::<RunFile>().to_value()
    })
}

/// Returns the part of [`schema`] that describes the setting with the dotted key `key`; null if there is none.
#[must_use]
pub fn key_schema(key: &str) -> &'static Value {
    let pointer: String = key.split('.').map(|part| format!("/properties/{part}")).collect();
    schema().pointer(&pointer).unwrap_or(&Value::Null)
}

/// Finds the dotted key of a run file whose last part equals `name`: `train.steps` for `steps`. Returns the first in
/// the order of the schema; `None` if there is none. Top-level tables and keys of `[[verifier]]` do not count.
#[must_use]
pub fn find_key(name: &str) -> Option<String> {
    find_key_below(schema(), "", name)
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

/// Checks a document against the schema of run files: keys, types, choices, ranges, required keys. Returns all
/// problems, with those that reading the document found.
///
/// Numbers and booleans of a `--set` become text where the schema wants text; nothing else of the document changes. A
/// document without values is checked as an empty table, so its required keys are missing.
pub(super) fn check(document: &mut Document) -> Vec<Problem> {
    let mut table = match document.tree.take() {
        Value::Object(table) => table,
        _ => Map::new(),
    };
    let mut schema = schema().clone();
    // The data is named by either key; without `files`, `path` is the one that is missing.
    if !has_files(&table) {
        schema["properties"]["data"]["required"] = json!(["path"]);
    }
    let mut check = Check { document, problems: document.unreadable.clone() };
    check.check_table("", &schema, &mut table);
    check.check_data_keys(&table);
    let problems = check.problems;
    document.tree = Value::Object(table);
    problems
}

/// Whether the tables of a run file give `data.files` as a list that is not empty.
fn has_files(tables: &Map<String, Value>) -> bool {
    let files = tables.get("data").and_then(|data| data.get("files")).and_then(Value::as_array);
    files.is_some_and(|files| !files.is_empty())
}

/// Removes the values with a problem from a checked document, and gives the text "" to required settings that are
/// missing then, so that the rest of the settings can be read and checked against each other.
pub(super) fn remove_wrong_values(document: &mut Document, problems: &[Problem]) {
    problems.iter().for_each(|problem| document.remove(&problem.key));
    // What is left is missing.
    document.unreadable.clear();
    let missing = check(document);
    missing.iter().for_each(|problem| document.insert_text(&problem.key));
}

/// A check of a document, with the problems that it found so far.
struct Check<'a> {
    document: &'a Document,
    problems: Vec<Problem>,
}

impl Check<'_> {
    /// Adds a problem with the dotted key `key`. `what` is the problem, and `note` stands beside the underlined text.
    fn add(&mut self, key: &str, underline: Underline, what: String, hint: Option<String>, note: Option<String>) {
        let explanation = Explanation { hint, ..Explanation::new("config", what) };
        add_problem(&mut self.problems, Problem { key: key.to_owned(), underline, explanation, note });
    }

    /// Checks that the tables of a run file do not give both `data.path` and `data.files`.
    fn check_data_keys(&mut self, tables: &Map<String, Value>) {
        if has_files(tables) && tables.get("data").and_then(|data| data.get("path")).is_some() {
            let what = "`data.path` and `data.files` are both given".to_owned();
            self.add("data.files", Underline::Key, what, Some("leave one of them out".to_owned()), None);
        }
    }

    /// Checks every value of `table`, whose dotted key is `path` (empty for the whole file), in the order of the table;
    /// that it has no key outside of the schema, if the schema permits no others, or that their values are of the type
    /// that it permits; then that no required key is missing.
    fn check_table(&mut self, path: &str, schema: &Value, table: &mut Map<String, Value>) {
        let nothing = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&nothing);
        for (key, value) in table.iter_mut() {
            match properties.get(key) {
                Some(below) => self.check_value(&join_key(path, key), below, value),
                None if schema["additionalProperties"] == Value::Bool(false) => {
                    let note = match path {
                        "" => "not a table of a run file".to_owned(),
                        _ => format!("not a key of `[{path}]`"),
                    };
                    let (what, hint) = (format!("unknown key `{key}`"), unknown_key_hint(path, key, properties));
                    self.add(&join_key(path, key), Underline::Key, what, Some(hint), Some(note));
                }
                None if schema["additionalProperties"].is_object() => {
                    self.check_value(&join_key(path, key), &schema["additionalProperties"], value);
                }
                None => {}
            }
        }
        self.check_required(path, schema, table);
    }

    /// Checks that `table`, whose dotted key is `path`, has every required key. Of a missing table with required keys,
    /// those are missing instead of the table.
    fn check_required(&mut self, path: &str, schema: &Value, table: &Map<String, Value>) {
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for key in required.filter(|key| !table.contains_key(*key)) {
            let (missing, below) = (join_key(path, key), &schema["properties"][key]);
            let known = self.problems.len();
            if below["properties"].is_object() {
                self.check_table(&missing, below, &mut Map::new());
            }
            if self.problems.len() == known {
                let what = format!("`{missing}` is missing");
                self.add(&missing, Underline::Key, what, Some(missing_hint(&missing)), None);
            }
        }
    }

    /// Checks the type, choice and range of the value at the dotted key `path`, then the values in it. Of alternatives
    /// (`anyOf`), takes the first with the value's type, null left out, else the first. Converts a number or boolean of
    /// a `--set` to text where the schema wants text. Ignores null, which stands for a number that cannot be read.
    fn check_value(&mut self, path: &str, schema: &Value, value: &mut Value) {
        if value.is_null() {
            return;
        }
        if let Some(cases) = schema["anyOf"].as_array() {
            let cases = || cases.iter().filter(|case| case["type"] != "null");
            let fits = |case: &&Value| type_names(case).iter().any(|name| has_type(value, name));
            // A value of no case's type is reported by the first case.
            if let Some(case) = cases().find(fits).or(cases().next()) {
                self.check_value(path, case, value);
            }
            return;
        }
        let names = type_names(schema);
        let is_scalar = value.is_number() || value.is_boolean();
        if names.contains(&"string") && is_scalar && self.document.is_override(path) {
            // `--set run.name=42` means the text.
            *value = Value::String(value.to_string());
        }
        if !names.is_empty() && !names.iter().any(|name| has_type(value, name)) {
            return self.add_wrong_type(path, &names, value);
        }
        self.check_choice(path, schema, value);
        self.check_range(path, schema, value);
        match value {
            Value::Object(table) => self.check_table(path, schema, table),
            Value::Array(items) => {
                for (number, item) in items.iter_mut().enumerate() {
                    let inside = if item.is_object() { join_key(path, &number.to_string()) } else { path.to_owned() };
                    self.check_value(&inside, &schema["items"], item);
                }
            }
            _ => {}
        }
    }

    /// Adds the problem of the value at `path`, whose type is not among the schema types `names`.
    fn add_wrong_type(&mut self, path: &str, names: &[&str], value: &Value) {
        let expected = TYPES.iter().filter(|(name, ..)| names.contains(name)).map(|(_, words, _)| *words);
        let expected = format!("{} is wanted", expected.collect::<Vec<_>>().join(" or "));
        let what = format!("`{path}` is {}, {expected}", describe_value(value));
        self.add(path, Underline::Value, what, type_hint(path, value), Some(expected));
    }

    /// Checks that a text is one of the choices, if the schema lists choices. Accepts values that are no text.
    fn check_choice(&mut self, path: &str, schema: &Value, value: &Value) {
        let choices = choices(schema);
        let wrong = value.as_str().filter(|text| !choices.is_empty() && !choices.contains(text));
        if let Some(text) = wrong {
            let hint = match meant_choice_hint(path, text, choices.iter().copied()) {
                Some(hint) => format!("{hint} (it can be: {})", choices.join(", ")),
                None if path == TARGETS => format!("a list names modules: `[\"{text}\"]`; or `all-linear`"),
                None => suggest(text, &choices, "it can be"),
            };
            self.add(path, Underline::Value, format!("`{path}` cannot be `{text}`"), Some(hint), None);
        }
    }

    /// Checks a number against the bounds in its schema (the keywords of [`BOUNDS`]), and adds a problem that names all
    /// bounds if one is violated. Does nothing if the schema has no bounds or the value is no number.
    fn check_range(&mut self, path: &str, schema: &Value, value: &Value) {
        let Some(number) = value.as_f64() else { return };
        let bounds = BOUNDS.iter().filter_map(|(key, words, test)| Some((schema[*key].as_f64()?, words, test)));
        if bounds.clone().all(|(bound, _, test)| test(number, bound)) {
            return;
        }
        let range = bounds.map(|(bound, words, _)| format!("{words} {bound}")).collect::<Vec<_>>().join(" and ");
        self.add(path, Underline::Value, format!("`{path}` is {value}, it must be {range}"), None, None);
    }
}

/// The names of the JSON types that a schema permits; empty if it permits all. Documented choices (`oneOf`) are
/// strings.
#[must_use]
pub fn type_names(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ if schema["oneOf"].is_array() => vec!["string"],
        _ => Vec::new(),
    }
}

/// The texts that the schema permits: those of its `enum` or `const`, or of each case of its `oneOf`. Empty if any text
/// is permitted.
#[must_use]
pub fn choices(schema: &Value) -> Vec<&str> {
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
pub(super) fn suggest(word: &str, known: &[&str], intro: &str) -> String {
    let list = known.join(", ");
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`? ({intro}: {list})"),
        None => format!("{intro}: {list}"),
    }
}

/// The hint about `value`, which has another type than the setting or table with the dotted key `path`: how to write a
/// table for which only its main value was given, as in `method = "lora"`, and what to set instead of a share of an
/// epoch. `None` for any other.
fn type_hint(path: &str, value: &Value) -> Option<String> {
    let main = match (path, value) {
        ("train.epochs", Value::Number(_)) => return Some("`train.steps` ends a run within an epoch".to_owned()),
        ("method", Value::String(_)) => "use",
        ("model" | "data", Value::String(_)) => "path",
        ("train.adapter", Value::String(_)) => "kind",
        _ => return None,
    };
    Some(format!("write `[{path}]`, and `{main} = …` on a line below it"))
}

/// A hint that says how to give the missing setting with the dotted key `key`.
fn missing_hint(key: &str) -> String {
    match key {
        "model.path" => "name a model folder, a `.gguf` file or a hub name: `--model PATH`".into(),
        "data.path" => "name a data file or folder: `--data FILE`".into(),
        "method.use" => "name a method: `--method lora`, a method folder or a `.wasm` file".into(),
        _ => format!("add it to the run file, or give `--set {key}=…`"),
    }
}
