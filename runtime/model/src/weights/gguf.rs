//! GGUF files: their metadata with typed access, and their tensors.
//! Leaves what the keys mean to `families`, and tokens to `tokenizer`.

mod header;
mod tensors;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub(crate) use header::{Header, Location};
pub(crate) use tensors::{bytes, in_blocks, locate_in_file, quantized, read, stored_dtype};

use crate::error::Result;

/// One value of the metadata. Numbers are widened; lists hold one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Any whole number.
    Integer(i128),
    /// Any other number.
    Number(f64),
    /// True or false.
    Boolean(bool),
    /// A text; bytes that are not UTF-8 are replaced.
    Text(String),
    /// A list of whole numbers.
    Integers(Vec<i64>),
    /// A list of other numbers.
    Numbers(Vec<f32>),
    /// A list of truths.
    Booleans(Vec<bool>),
    /// A list of texts.
    Texts(Vec<String>),
    /// A list of lists; nothing here reads them.
    Nested,
}

impl Value {
    fn is_empty(&self) -> bool {
        match self {
            Self::Integers(list) => list.is_empty(),
            Self::Numbers(list) => list.is_empty(),
            Self::Booleans(list) => list.is_empty(),
            Self::Texts(list) => list.is_empty(),
            _ => false,
        }
    }
}

/// What a GGUF file says of itself: sizes, tokens, the chat template.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    path: PathBuf,
    values: HashMap<String, Value>,
}

impl Metadata {
    /// Reads the metadata of a file, and nothing of its tensors.
    ///
    /// # Errors
    /// When the file cannot be read or is not a whole GGUF file.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Header::read(path)?.metadata)
    }

    /// Metadata from values, for a file that does not exist yet.
    #[must_use]
    pub fn from_values(path: &Path, values: HashMap<String, Value>) -> Self {
        Self { path: path.to_path_buf(), values }
    }

    /// Puts a value under a key, in memory only.
    pub fn insert(&mut self, key: &str, value: Value) {
        self.values.insert(key.to_owned(), value);
    }

    /// Takes a key away, in memory only.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.values.remove(key)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the key is there, of whatever kind.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// A value of whatever kind.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// A text; none if missing or of another kind.
    #[must_use]
    pub fn string(&self, key: &str) -> Option<&str> {
        match self.values.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number that fits; none if missing or of another kind.
    #[must_use]
    pub fn u32(&self, key: &str) -> Option<u32> {
        match self.values.get(key)? {
            Value::Integer(number) => u32::try_from(*number).ok(),
            _ => None,
        }
    }

    /// A number; none if missing or of another kind.
    #[must_use]
    pub fn f32(&self, key: &str) -> Option<f32> {
        match self.values.get(key)? {
            Value::Number(number) => Some(*number as f32),
            Value::Integer(number) => Some(*number as f32),
            _ => None,
        }
    }

    /// A truth; none if missing or of another kind.
    #[must_use]
    pub fn bool(&self, key: &str) -> Option<bool> {
        match self.values.get(key)? {
            Value::Boolean(truth) => Some(*truth),
            _ => None,
        }
    }

    /// A list of texts; none if missing or of another kind.
    #[must_use]
    pub fn strings(&self, key: &str) -> Option<&[String]> {
        match self.values.get(key)? {
            Value::Texts(texts) => Some(texts),
            // An empty list has no kind.
            other => other.is_empty().then_some(&[]),
        }
    }

    /// A list of numbers; none if missing or of another kind.
    #[must_use]
    pub fn f32s(&self, key: &str) -> Option<&[f32]> {
        match self.values.get(key)? {
            Value::Numbers(numbers) => Some(numbers),
            other => other.is_empty().then_some(&[]),
        }
    }

    /// A list of whole numbers that all fit; none if missing or of another kind.
    #[must_use]
    pub fn i32s(&self, key: &str) -> Option<Vec<i32>> {
        match self.values.get(key)? {
            Value::Integers(numbers) => numbers.iter().map(|number| i32::try_from(*number).ok()).collect(),
            other => other.is_empty().then(Vec::new),
        }
    }

    /// A list of truths; none if missing or of another kind.
    #[must_use]
    pub fn bools(&self, key: &str) -> Option<&[bool]> {
        match self.values.get(key)? {
            Value::Booleans(truths) => Some(truths),
            other => other.is_empty().then_some(&[]),
        }
    }
}
