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
    /// The non-negative integer of a key. Errors: missing or of another type.
    pub(super) fn size(&self, key: &str) -> Result<usize> {
        let missing = || Error::missing(format!("`{}`", self.full(key)), self.metadata.path());
        self.optional_size(key)?.ok_or_else(missing)
    }

    /// The non-negative integer of a key; `None` if missing. A list of one size for each layer counts if all are equal.
    /// Errors: any other value.
    pub(super) fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.metadata.value(&self.full(key)) else { return Ok(None) };
        value.whole().map(Some).ok_or_else(|| self.value_error(key, "one whole number for all layers"))
    }

    /// The number of a key; `None` if it is missing or not a number.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        match self.metadata.value(&self.full(key))? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The text of a key; `None` if it is missing or not a text.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.metadata.string(&self.full(key))
    }

    /// The list of numbers, or of booleans as 0 and 1, of a key; `None` if it is missing or not such a list.
    pub(super) fn numbers(&self, key: &str) -> Option<&'a [f64]> {
        match self.metadata.value(&self.full(key))? {
            Value::Numbers(numbers) => Some(numbers),
            _ => None,
        }
    }

    /// An error that names the key, its value, the file and, as `allowed`, what the value may be.
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
        Error::key(&key, found, self.metadata.path(), format!("expected {allowed}"))
    }

    /// The key with the architecture as prefix: `llama.block_count`.
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }
}
