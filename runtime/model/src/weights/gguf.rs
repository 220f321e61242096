//! GGUF files: their metadata with typed access, and where their tensors lie.
//! Leaves what the keys mean to `families`, and tokens to `tokenizer`.

mod header;
pub(crate) mod write;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub(crate) use header::Header;

use crate::error::Result;

/// The largest number up to which `f64` represents every integer.
const MOST_EXACT: f64 = (1_u64 << 53) as f64;

/// One value of the metadata. Numbers are widened to `f64`.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Any number.
    Number(f64),
    /// True or false.
    Boolean(bool),
    /// A text; bytes that are not UTF-8 are replaced.
    Text(String),
    /// A list of numbers, or of booleans as 0 and 1.
    Numbers(Vec<f64>),
    /// A list of texts. Lists of lists are read as an empty one: no key that is used has them.
    Texts(Vec<String>),
}

impl Value {
    /// The value as a non-negative integer of type `T`; for a list of equal numbers, their value. `None` for anything
    /// else, an empty list, a number above 2^53 or one that does not fit `T`.
    #[must_use]
    pub fn whole<T: TryFrom<u64>>(&self) -> Option<T> {
        let number = match self {
            Self::Number(number) => *number,
            Self::Numbers(list) => *list.first().filter(|first| list.iter().all(|number| number == *first))?,
            _ => return None,
        };
        (number.fract() == 0.0 && (0.0..=MOST_EXACT).contains(&number)).then(|| T::try_from(number as u64).ok())?
    }
}

/// The metadata of a GGUF file, by key: sizes, tokens, the chat template.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    pub(crate) path: PathBuf,
    pub(crate) values: HashMap<String, Value>,
}

impl Metadata {
    /// Reads the metadata of a GGUF file, and no tensor data.
    ///
    /// # Errors
    /// When the file cannot be read or is not a whole GGUF file.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Header::read(path)?.metadata)
    }

    /// The path of the GGUF file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value of a key, of any type; `None` if missing.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// The text of a key; `None` if missing or of another type.
    #[must_use]
    pub fn string(&self, key: &str) -> Option<&str> {
        match self.values.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a non-negative integer, such as a token id. Accepts a list whose items are all equal. `None` if the key
    /// is missing, has another type, or the number is out of range.
    #[must_use]
    pub fn u32(&self, key: &str) -> Option<u32> {
        self.values.get(key)?.whole()
    }

    /// The boolean of a key; `None` if missing or of another type.
    #[must_use]
    pub fn bool(&self, key: &str) -> Option<bool> {
        match self.values.get(key)? {
            Value::Boolean(truth) => Some(*truth),
            _ => None,
        }
    }
}
