//! Typed access to the metadata keys of one architecture in a GGUF file, with errors that name key, value and file.

use crate::error::{Error, Result};
use crate::weights::gguf::{Metadata, Value};

/// The keys of one architecture: `llama.block_count` and its like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) metadata: &'a Metadata,
    pub(super) architecture: &'a str,
}

impl<'a> Keys<'a> {
    /// A size that has to be there.
    pub(super) fn size(&self, key: &str) -> Result<usize> {
        let missing = || Error::KeyMissing { key: self.full(key), place: self.place() };
        self.optional_size(key)?.ok_or_else(missing)
    }

    /// A size, if it is there. A list of one size for each layer is taken if all are the same.
    pub(super) fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.metadata.value(&self.full(key)) else { return Ok(None) };
        value.whole().map(Some).ok_or_else(|| self.value_error(key, "one whole number for all layers"))
    }

    /// A number, if it is there.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        match self.metadata.value(&self.full(key))? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// A text, if it is there.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.metadata.string(&self.full(key))
    }

    /// A list of numbers, or of truths as 0 and 1, if it is there.
    pub(super) fn numbers(&self, key: &str) -> Option<&'a [f64]> {
        match self.metadata.value(&self.full(key))? {
            Value::Numbers(numbers) => Some(numbers),
            _ => None,
        }
    }

    /// An error about the value of a key.
    pub(super) fn value_error(&self, key: &str, allowed: &str) -> Error {
        let key = self.full(key);
        let found = self.metadata.value(&key).map_or_else(
            || "missing".into(),
            |value| match value {
                Value::Text(text) => text.chars().take(80).collect(),
                Value::Number(number) => number.to_string(),
                Value::Boolean(truth) => truth.to_string(),
                _ => "a list".into(),
            },
        );
        Error::KeyValue { key, found, place: self.place(), allowed: allowed.into() }
    }

    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn place(&self) -> String {
        self.metadata.path().display().to_string()
    }
}
