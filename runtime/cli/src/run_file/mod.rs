//! The keys of run files as the schema describes them, for the reference page and for new run files.

pub(crate) mod page;
pub(crate) mod template;

use serde_json::{Map, Value};
use tunebox_foundation::format::group_digits;
use tunebox_training::configuration::{choices, schema, type_names};

/// A table of a run file.
pub(crate) struct Table {
    /// Its heading, such as `[train]` or `[[verifier]]`.
    pub(crate) heading: String,
    /// What it holds, without a full stop.
    pub(crate) text: String,
    /// Its keys, without the tables in it.
    pub(crate) keys: Vec<Key>,
    /// Whether further keys are settings of a method, verifier or environment.
    pub(crate) is_open: bool,
}

/// A key of a table.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// Its effect and unit, on one line.
    pub(crate) text: String,
    /// The values that it takes: type, choices or range, in words.
    pub(crate) takes: String,
    /// Its default as TOML; `None` if it has none.
    pub(crate) default: Option<String>,
    /// Whether every run file must give it.
    pub(crate) is_required: bool,
    /// Its choices with what each means, for those that the schema describes.
    pub(crate) choices: Vec<(&'static str, String)>,
}

/// Returns every table of a run file, in the order of the schema; a table in a table comes after it.
pub(crate) fn tables() -> Vec<Table> {
    let mut tables = Vec::new();
    for (name, schema) in properties(schema()) {
        match schema["type"].as_str() {
            Some("array") => add_table(&mut tables, format!("[[{name}]]"), schema, &schema["items"]),
            _ => add_table(&mut tables, format!("[{name}]"), schema, schema),
        }
    }
    tables
}

/// Adds the table with this heading, described by `outer` and with the keys of `schema`, and the tables in it.
fn add_table(tables: &mut Vec<Table>, heading: String, outer: &'static Value, schema: &'static Value) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (below, keys): (Vec<_>, Vec<_>) = properties(schema).partition(|(_, key)| key["properties"].is_object());
    let keys = keys.into_iter().map(|(name, key)| describe_key(name, key, required.contains(&name.as_str()))).collect();
    let text = description(outer).trim_end_matches('.').to_owned();
    let is_open = schema["additionalProperties"] != Value::Bool(false);
    tables.push(Table { heading: heading.clone(), text, keys, is_open });
    for (name, inner) in below {
        let heading = format!("{}.{name}]", heading.trim_end_matches(']'));
        add_table(tables, heading, inner, inner);
    }
}

/// The keys of a table with their schemas, in order, from the JSON schema of the table; none if that has no properties.
fn properties(schema: &'static Value) -> impl Iterator<Item = (&'static String, &'static Value)> {
    schema["properties"].as_object().into_iter().flat_map(Map::iter)
}

/// Converts the JSON schema of a key to a [`Key`]: its description, the values that it takes, its default, and its
/// choices with what each means. Joins the alternatives of `anyOf` by ", or ", without null. `is_required` is copied.
fn describe_key(name: &'static str, schema: &'static Value, is_required: bool) -> Key {
    let default = Some(&schema["default"]).filter(|value| !value.is_null()).map(Value::to_string);
    // A run file cannot write null: in the schema it stands for a key that is left out.
    let cases = schema["anyOf"].as_array().map_or_else(|| std::slice::from_ref(schema), Vec::as_slice);
    let cases: Vec<&Value> = cases.iter().filter(|case| case["type"] != "null").collect();
    let takes = cases.iter().map(|case| describe_values(case)).collect::<Vec<_>>().join(", or ");
    let documented = cases.iter().flat_map(|case| case["oneOf"].as_array().into_iter().flatten());
    let choices = documented.filter_map(|case| Some((case["const"].as_str()?, description(case)))).collect();
    Key { name, text: description(schema), takes, default, is_required, choices }
}

/// The description of a schema on one line; empty if it has none.
fn description(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Says in words which values a schema permits: its choices, its type and range, or each of its alternatives.
fn describe_values(schema: &Value) -> String {
    if let Some(cases) = schema["anyOf"].as_array() {
        return cases.iter().map(describe_values).collect::<Vec<_>>().join(" or ");
    }
    let choices = choices(schema);
    if !choices.is_empty() {
        return choices.iter().map(|choice| format!("\"{choice}\"")).collect::<Vec<_>>().join(", ");
    }
    let names = type_names(schema);
    let kind = match names.iter().copied().find(|name| *name != "null") {
        Some("integer") => "whole number",
        Some("number") => "number",
        Some("boolean") => "true or false",
        Some("array") => return format!("list of: {}", describe_values(&schema["items"])),
        Some("string") => "text",
        Some("object") => "table",
        _ => "value",
    };
    let bounds = [("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"), ("exclusiveMaximum", "below")];
    let bounds =
        bounds.iter().filter_map(|(key, word)| Some(format!(" {word} {}", format_bound(schema[*key].as_f64()?))));
    format!("{kind}{}", bounds.collect::<String>())
}

/// Formats the bound of a range: a whole number in groups of three digits, any other as it is.
fn format_bound(value: f64) -> String {
    let is_whole = value.fract() == 0.0 && value.abs() < 1e16;
    let sign = if value < 0.0 { "-" } else { "" };
    if is_whole { format!("{sign}{}", group_digits(value.abs() as u64)) } else { value.to_string() }
}
