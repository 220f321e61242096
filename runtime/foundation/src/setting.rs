//! The value of a setting of a method or verifier: declared by its manifest, given by a run file, passed to the component.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A floating-point number.
    Number(f64),
    /// A text.
    Text(String),
}

impl fmt::Display for Value {
    /// Writes the value alone; a text without quotes.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => value.fmt(formatter),
            Self::Integer(value) => value.fmt(formatter),
            Self::Number(value) => value.fmt(formatter),
            Self::Text(value) => value.fmt(formatter),
        }
    }
}
