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
    /// The keys of an object; `place` names the file.
    pub(super) fn new(value: &'a Value, place: &'a str) -> Result<Self> {
        let map = value.as_object();
        let map = map
            .ok_or_else(|| Error::Broken { what: "the configuration is not an object".into(), place: place.into() })?;
        Ok(Self { map, place })
    }

    /// Any value that is there and not null.
    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether the key is there, be it with `null`.
    pub(super) fn contains_key(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// Whether there are no keys at all.
    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// A text that has to be there.
    pub(super) fn text(&self, key: &str) -> Result<&'a str> {
        self.optional_text(key)?.ok_or_else(|| self.missing(key))
    }

    /// A text, if it is there.
    pub(super) fn optional_text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "texts", Value::as_str)
    }

    /// A size that has to be there.
    pub(super) fn size(&self, key: &str) -> Result<usize> {
        self.optional_size(key)?.ok_or_else(|| self.missing(key))
    }

    /// A size that has to be there unless the family has a default.
    pub(super) fn size_or(&self, key: &str, default: Option<usize>) -> Result<usize> {
        self.optional_size(key)?.or(default).ok_or_else(|| self.missing(key))
    }

    /// A size, if it is there.
    pub(super) fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "whole numbers", |value| usize::try_from(value.as_u64()?).ok())
    }

    /// A number that has to be there.
    pub(super) fn number(&self, key: &str) -> Result<f64> {
        self.optional_number(key)?.ok_or_else(|| self.missing(key))
    }

    /// A number, if it is there.
    pub(super) fn optional_number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "numbers", Value::as_f64)
    }

    /// True or false; the default if it is not there.
    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.typed(key, "true and false", Value::as_bool)?.unwrap_or(default))
    }

    /// An object, if it is there.
    pub(super) fn object(&self, key: &str) -> Result<Option<Self>> {
        let map = self.typed(key, "objects", Value::as_object)?;
        Ok(map.map(|map| Self { map, place: self.place }))
    }

    /// A list of texts, if it is there.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        self.typed(key, "lists of texts", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }

    /// A list of numbers, if it is there.
    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        self.typed(key, "lists of numbers", |value| value.as_array()?.iter().map(Value::as_f64).collect())
    }

    /// Token ids: one number or a list of them; empty if they are not there.
    pub(super) fn ids(&self, key: &str) -> Result<Vec<u32>> {
        let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let read = |value: &'a Value| match value.as_array() {
            Some(list) => list.iter().map(id).collect(),
            None => Some(vec![id(value)?]),
        };
        Ok(self.typed(key, "token ids", read)?.unwrap_or_default())
    }

    /// Refuses every value but this one, if the key is there.
    pub(super) fn only(&self, key: &str, allowed: &Value) -> Result<()> {
        match self.value(key) {
            Some(value) if !same(value, allowed) => Err(self.value_error(key, &format!("only `{}`", plain(allowed)))),
            _ => Ok(()),
        }
    }

    /// An error about the value of a key.
    pub(super) fn value_error(&self, key: &str, allowed: &str) -> Error {
        let found = self.map.get(key).map_or_else(|| "missing".into(), plain);
        Error::KeyValue { key: key.into(), found, place: self.place.into(), allowed: allowed.into() }
    }

    fn missing(&self, key: &str) -> Error {
        Error::KeyMissing { key: key.into(), place: self.place.into() }
    }

    fn typed<T>(&self, key: &str, allowed: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => Ok(Some(read(value).ok_or_else(|| self.value_error(key, allowed))?)),
        }
    }
}

/// 1 and 1.0 are the same value.
fn same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

fn plain(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), String::from);
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
