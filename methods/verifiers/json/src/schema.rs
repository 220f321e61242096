//! A part of JSON Schema: types, constants, numbers, texts, lists, objects, and how schemas combine.

use serde_json::{Map, Value};

/// The supported keywords. Any other is an error: to ignore a rule would reward completions that break it.
const KEYWORDS: [&str; 28] = [
    "$schema",
    "title",
    "description",
    "default",
    "examples",
    "type",
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "items",
    "properties",
    "required",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
];

/// The largest depth of nested schemas.
const DEPTH: usize = 32;

/// Refuses what is not understood. The error completes "`schema` …".
pub(crate) fn check(schema: &Value, depth: usize) -> Result<(), String> {
    if depth > DEPTH {
        return Err(format!("is nested more than {DEPTH} deep"));
    }
    let rules = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(rules) => rules,
        other => return Err(format!("holds `{other}` where a schema is wanted")),
    };
    if let Some(key) = rules.keys().find(|key| !KEYWORDS.contains(&key.as_str())) {
        return Err(format!("uses `{key}`, which this verifier does not know"));
    }
    for key in ["items", "additionalProperties", "not"] {
        rules.get(key).map_or(Ok(()), |inner| check(inner, depth + 1))?;
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        list(rules, key).iter().try_for_each(|inner| check(inner, depth + 1))?;
    }
    let inner = rules.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::values);
    inner.into_iter().try_for_each(|inner| check(inner, depth + 1))
}

/// Whether a value satisfies a schema that [`check`] accepted.
pub(crate) fn allows(schema: &Value, value: &Value) -> bool {
    let Value::Object(rules) = schema else { return schema != &Value::Bool(false) };
    let own = match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| allows_number(rules, number)),
        Value::String(text) => is_within(rules, "minLength", "maxLength", text.chars().count()),
        Value::Array(items) => allows_list(rules, items),
        Value::Object(object) => allows_object(rules, object),
        Value::Null | Value::Bool(_) => true,
    };
    own && is_typed(rules.get("type"), value)
        && rules.get("const").is_none_or(|wanted| is_equal(wanted, value))
        && rules.get("enum").is_none_or(|_| list(rules, "enum").iter().any(|wanted| is_equal(wanted, value)))
        && list(rules, "allOf").iter().all(|inner| allows(inner, value))
        && rules.get("anyOf").is_none_or(|_| list(rules, "anyOf").iter().any(|inner| allows(inner, value)))
        && rules
            .get("oneOf")
            .is_none_or(|_| list(rules, "oneOf").iter().filter(|inner| allows(inner, value)).count() == 1)
        && rules.get("not").is_none_or(|inner| !allows(inner, value))
}

/// Whether a value has the type, or one of the types, that the keyword `type` names. True without the keyword.
fn is_typed(wanted: Option<&Value>, value: &Value) -> bool {
    let is = |name: &Value| match (name.as_str().unwrap_or_default(), value) {
        ("null", Value::Null) | ("boolean", Value::Bool(_)) | ("number", Value::Number(_)) => true,
        ("string", Value::String(_)) | ("array", Value::Array(_)) | ("object", Value::Object(_)) => true,
        ("integer", Value::Number(number)) => number.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => false,
    };
    match wanted {
        None => true,
        Some(Value::Array(names)) => names.iter().any(is),
        Some(name) => is(name),
    }
}

/// Whether a number satisfies the bounds and `multipleOf` (to 1e-9).
fn allows_number(rules: &Map<String, Value>, number: f64) -> bool {
    let bound = |key: &str| rules.get(key).and_then(Value::as_f64);
    bound("minimum").is_none_or(|low| number >= low)
        && bound("maximum").is_none_or(|high| number <= high)
        && bound("exclusiveMinimum").is_none_or(|low| number > low)
        && bound("exclusiveMaximum").is_none_or(|high| number < high)
        && bound("multipleOf").is_none_or(|step| step > 0.0 && ((number / step).round() * step - number).abs() < 1e-9)
}

/// Whether a list satisfies the rules for its length and its items.
fn allows_list(rules: &Map<String, Value>, items: &[Value]) -> bool {
    let repeated = || (1..items.len()).any(|at| items[..at].iter().any(|before| is_equal(before, &items[at])));
    is_within(rules, "minItems", "maxItems", items.len())
        && rules.get("items").is_none_or(|inner| items.iter().all(|item| allows(inner, item)))
        && !(rules.get("uniqueItems") == Some(&Value::Bool(true)) && repeated())
}

/// Whether an object satisfies the rules for its number of keys, its required keys and its values.
fn allows_object(rules: &Map<String, Value>, object: &Map<String, Value>) -> bool {
    let properties = rules.get("properties").and_then(Value::as_object);
    let inner = |key: &str| properties.and_then(|properties| properties.get(key)).or(rules.get("additionalProperties"));
    let required = list(rules, "required");
    is_within(rules, "minProperties", "maxProperties", object.len())
        && required.iter().filter_map(Value::as_str).all(|key| object.contains_key(key))
        && object.iter().all(|(key, value)| inner(key).is_none_or(|inner| allows(inner, value)))
}

/// Whether a count is within the bounds that the keywords `low` and `high` give; a missing keyword is no bound.
fn is_within(rules: &Map<String, Value>, low: &str, high: &str, count: usize) -> bool {
    let bound = |key: &str| rules.get(key).and_then(Value::as_f64);
    bound(low).is_none_or(|low| count as f64 >= low) && bound(high).is_none_or(|high| count as f64 <= high)
}

/// The list that a keyword has as its value; empty without the keyword.
fn list<'a>(rules: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    rules.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether two JSON values are equal; 1 and 1.0 are.
fn is_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_equal(left, right))
        }
        (left, right) => left == right,
    }
}
