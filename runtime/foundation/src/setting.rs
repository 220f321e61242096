//! The value of a setting of a method or verifier: declared by its manifest, given by a run file, passed to the
//! component.

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
    /// A list of whole numbers. An empty list of a run file is read as this case.
    Integers(Vec<i64>),
    /// A list of floating-point numbers.
    Numbers(Vec<f64>),
    /// A list of texts.
    Texts(Vec<String>),
}

impl fmt::Display for Value {
    /// Writes the value alone: a text without quotes, a number without an exponent, 1.0 as `1`. A list is written in
    /// brackets, with its texts quoted and escaped.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => value.fmt(formatter),
            Self::Integer(value) => value.fmt(formatter),
            Self::Number(value) => value.fmt(formatter),
            Self::Text(value) => value.fmt(formatter),
            Self::Integers(values) => write!(formatter, "{values:?}"),
            Self::Numbers(values) => {
                let values: Vec<String> = values.iter().map(f64::to_string).collect();
                write!(formatter, "[{}]", values.join(", "))
            }
            Self::Texts(values) => write!(formatter, "{values:?}"),
        }
    }
}
