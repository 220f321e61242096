//! Typed access to the keys of a JSON object in a model's files, with errors that name key, value and file.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// An object of a JSON file. A key with the value `null` counts as missing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    file: &'a Path,
}

impl<'a> Fields<'a> {
    /// Wraps a JSON object; `file` is named in errors. Errors: the value is not an object.
    pub(crate) fn new(value: &'a Value, file: &'a Path) -> Result<Self> {
        let map = value.as_object().ok_or_else(|| Error::broken(file, "it is not a JSON object"))?;
        Ok(Self { map, file })
    }

    /// The file that errors name.
    pub(crate) fn file(&self) -> &'a Path {
        self.file
    }

    /// The value of a key; `None` if missing or null. Errors: another type.
    pub(crate) fn get<T: Deserialize<'a>>(&self, key: &str) -> Result<Option<T>> {
        let value = self.map.get(key).unwrap_or(&Value::Null);
        Option::<T>::deserialize(value).map_err(|error| self.key_error(key, error.to_string()))
    }

    /// The value of a key, or `default` if it is missing or null. Errors: the key is missing and `default` is `None`,
    /// or the value has another type.
    pub(crate) fn get_or<T: Deserialize<'a>>(&self, key: &str, default: Option<T>) -> Result<T> {
        self.get(key)?.or(default).ok_or_else(|| Error::missing(format!("`{key}`"), self.file))
    }

    /// The value of a key. Errors: missing, null or of another type.
    pub(crate) fn require<T: Deserialize<'a>>(&self, key: &str) -> Result<T> {
        self.get_or(key, None)
    }

    /// The values of a key that holds one value or a list of them; `None` if missing or null; an empty list stays one.
    /// Errors: another type.
    pub(crate) fn list<T: Deserialize<'a>>(&self, key: &str) -> Result<Option<Vec<T>>> {
        Ok(self.get(key)?.map(|found| match found {
            OneOrMore::One(value) => vec![value],
            OneOrMore::More(list) => list,
        }))
    }

    /// The object of a key; `None` if missing, null or empty. Errors: not an object.
    pub(crate) fn object(&self, key: &str) -> Result<Option<Self>> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(map)) => Ok((!map.is_empty()).then_some(Self { map, file: self.file })),
            Some(_) => Err(self.value_error(key, "an object")),
        }
    }

    /// The keys, in the order of the file.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a String> {
        self.map.keys()
    }

    /// Whether the key is present, even with the value `null`.
    pub(crate) fn contains_key(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// Whether the key has a value other than `null`.
    pub(crate) fn has_value(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    /// Checks that a key is missing, null or equal to `allowed`, with numbers compared by value, so that 1 equals 1.0.
    /// Errors: any other value.
    pub(crate) fn only(&self, key: &str, allowed: &Value) -> Result<()> {
        let is_allowed = |value: &Value| match (value.as_f64(), allowed.as_f64()) {
            (Some(value), Some(allowed)) => value == allowed,
            _ => value == allowed,
        };
        match self.map.get(key) {
            Some(value) if self.has_value(key) && !is_allowed(value) => {
                Err(self.value_error(key, &format!("`{}`, the only value that is supported", plain(allowed))))
            }
            _ => Ok(()),
        }
    }

    /// An error that names the key, its value, the file and, as `allowed`, what the value may be.
    pub(crate) fn value_error(&self, key: &str, allowed: &str) -> Error {
        self.key_error(key, format!("expected {allowed}"))
    }

    /// An error that names the key, its value, the file and the cause.
    pub(crate) fn key_error(&self, key: &str, why: String) -> Error {
        Error::key(key, self.map.get(key).map_or_else(|| "missing".into(), plain), self.file, why)
    }
}

/// One value or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "neither a value of this key nor a list of such values")]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
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
