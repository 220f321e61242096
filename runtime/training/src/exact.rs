//! Serializes `f64` without loss: numbers that are not finite, which JSON lacks, become text such as `"NaN"` or `"-inf"`.
//!
//! For `#[serde(with = "exact")]`, and `exact::pairs` for lists of named numbers. Finite numbers keep their bits.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number, or the text of one that is not finite.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    Other(String),
}

impl From<f64> for Number {
    /// A finite number as it is; any other as its text, such as `NaN` or `-inf`.
    fn from(value: f64) -> Self {
        if value.is_finite() { Self::Finite(value) } else { Self::Other(value.to_string()) }
    }
}

impl Number {
    /// The number as `f64`; fails for a text that is no number.
    fn value<E: Error>(self) -> Result<f64, E> {
        match self {
            Self::Finite(value) => Ok(value),
            Self::Other(text) => text.parse().map_err(E::custom),
        }
    }
}

/// Serializes a finite number as a number, and any other as text such as `"NaN"`.
pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    Number::from(*value).serialize(serializer)
}

/// Deserializes a number, or text that is a number.
pub(crate) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<f64, D::Error> {
    Number::deserialize(deserializer)?.value()
}

/// Lists of names and numbers.
pub(crate) mod pairs {
    use super::{Deserialize, Deserializer, Number, Serializer};

    /// Serializes a list of named numbers as pairs; numbers that are not finite become text.
    pub(crate) fn serialize<S: Serializer>(values: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|(name, value)| (name, Number::from(*value))))
    }

    /// Deserializes a list of pairs of a name and a number, or text that is a number.
    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Vec<(String, f64)>, D::Error> {
        let pairs = Vec::<(String, Number)>::deserialize(deserializer)?;
        pairs.into_iter().map(|(name, number)| Ok((name, number.value()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Numbers(#[serde(with = "super::pairs")] Vec<(String, f64)>, #[serde(with = "super")] f64);

    #[test]
    fn every_number_comes_back_with_its_bits() {
        let hard = [0.1 + 0.2, 2e-4 / 3.0, 5e-324, f64::MAX, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        for value in hard {
            let text = serde_json::to_string(&Numbers(vec![("a".into(), value)], value)).unwrap();
            let Numbers(pairs, one) = serde_json::from_str(&text).unwrap();
            assert_eq!((pairs[0].1.to_bits(), one.to_bits()), (value.to_bits(), value.to_bits()), "{text}");
        }
        assert!(serde_json::from_str::<Numbers>(r#"[[], "one"]"#).is_err());
    }
}
