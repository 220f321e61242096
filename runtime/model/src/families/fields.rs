//! Typed access to the keys of a `config.json`, with errors that name key, value and file.

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// An object of a `config.json`. A key with the value `null` counts as missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    place: &'a str,
}

impl<'a> Fields<'a> {
    /// Wraps a JSON object; `place` names the file in errors. Errors: the value is not an object.
    pub(super) fn new(value: &'a Value, place: &'a str) -> Result<Self> {
        let map = value.as_object();
        let map = map
            .ok_or_else(|| Error::Broken { what: "the configuration is not an object".into(), place: place.into() })?;
        Ok(Self { map, place })
    }

    /// The value of a key; `None` if it is missing or null.
    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether the key is present, even with the value `null`.
    pub(super) fn contains_key(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// Whether the object has no keys.
    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The text of a key. Errors: missing, null or not a text.
    pub(super) fn text(&self, key: &str) -> Result<&'a str> {
        self.optional_text(key)?.ok_or_else(|| self.missing(key))
    }

    /// The text of a key; `None` if missing or null. Errors: not a text.
    pub(super) fn optional_text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "texts", Value::as_str)
    }

    /// The non-negative integer of a key. Errors: missing, null or of another type.
    pub(super) fn size(&self, key: &str) -> Result<usize> {
        self.optional_size(key)?.ok_or_else(|| self.missing(key))
    }

    /// The non-negative integer of a key, or `default` if it is missing or null. Errors: no default either, or another
    /// type.
    pub(super) fn size_or(&self, key: &str, default: Option<usize>) -> Result<usize> {
        self.optional_size(key)?.or(default).ok_or_else(|| self.missing(key))
    }

    /// The non-negative integer of a key; `None` if missing or null. Errors: of another type.
    pub(super) fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "whole numbers", |value| usize::try_from(value.as_u64()?).ok())
    }

    /// The number of a key. Errors: missing, null or not a number.
    pub(super) fn number(&self, key: &str) -> Result<f64> {
        self.optional_number(key)?.ok_or_else(|| self.missing(key))
    }

    /// The number of a key; `None` if missing or null. Errors: not a number.
    pub(super) fn optional_number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "numbers", Value::as_f64)
    }

    /// The boolean of a key; `default` if missing or null. Errors: not a boolean.
    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.typed(key, "true and false", Value::as_bool)?.unwrap_or(default))
    }

    /// The object of a key; `None` if missing or null. Errors: not an object.
    pub(super) fn object(&self, key: &str) -> Result<Option<Self>> {
        let map = self.typed(key, "objects", Value::as_object)?;
        Ok(map.map(|map| Self { map, place: self.place }))
    }

    /// The list of texts of a key; `None` if missing or null. Errors: not such a list.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        self.typed(key, "lists of texts", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }

    /// The list of numbers of a key; `None` if missing or null. Errors: not such a list.
    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        self.typed(key, "lists of numbers", |value| value.as_array()?.iter().map(Value::as_f64).collect())
    }

    /// The token ids of a key, one integer or a list of them; empty if missing or null. Errors: anything else.
    pub(super) fn ids(&self, key: &str) -> Result<Vec<u32>> {
        let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let read = |value: &'a Value| match value.as_array() {
            Some(list) => list.iter().map(id).collect(),
            None => Some(vec![id(value)?]),
        };
        Ok(self.typed(key, "token ids", read)?.unwrap_or_default())
    }

    /// Checks that a key is missing, null or equal to `allowed`. Errors: any other value.
    pub(super) fn only(&self, key: &str, allowed: &Value) -> Result<()> {
        match self.value(key) {
            Some(value) if !same(value, allowed) => Err(self.value_error(key, &format!("only `{}`", plain(allowed)))),
            _ => Ok(()),
        }
    }

    /// An error that names the key, its value, the file and, as `allowed`, what the value may be.
    pub(super) fn value_error(&self, key: &str, allowed: &str) -> Error {
        let found = self.map.get(key).map_or_else(|| "missing".into(), plain);
        Error::KeyValue { key: key.into(), found, place: self.place.into(), allowed: allowed.into() }
    }

    /// An [`Error::KeyMissing`] for this key and file.
    fn missing(&self, key: &str) -> Error {
        Error::KeyMissing { key: key.into(), place: self.place.into() }
    }

    /// Reads the value of a key by `read`; `None` if missing or null. Errors: `read` gives `None`; `allowed` says in
    /// the message what is expected.
    fn typed<T>(&self, key: &str, allowed: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => Ok(Some(read(value).ok_or_else(|| self.value_error(key, allowed))?)),
        }
    }
}

/// Whether two values are equal, with numbers compared by value: 1 equals 1.0.
fn same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

/// A value as text for messages, without quotes around strings, cut with `…` after 80 characters.
fn plain(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), String::from);
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
