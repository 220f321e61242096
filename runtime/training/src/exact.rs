//! Serializes an `f64` that may not be finite as its bits, an integer: JSON has finite numbers only.
//!
//! For `#[serde(with = "exact")]`, and `exact::pairs` for lists of named numbers.

use serde::{Deserialize, Deserializer, Serializer};

/// Serializes the bits of a number (`f64::to_bits`) as an unsigned integer.
pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(value.to_bits())
}

/// Deserializes a number from its bits, an unsigned integer. Every bit pattern is accepted, NaN included.
pub(crate) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<f64, D::Error> {
    u64::deserialize(deserializer).map(f64::from_bits)
}

/// Lists of names and numbers.
pub(crate) mod pairs {
    use super::{Deserialize, Deserializer, Serializer};

    /// Serializes a list of named numbers as pairs of the name and the bits.
    pub(crate) fn serialize<S: Serializer>(values: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|(name, value)| (name, value.to_bits())))
    }

    /// Deserializes a list of pairs of a name and the bits of a number.
    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Vec<(String, f64)>, D::Error> {
        let pairs = Vec::<(String, u64)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().map(|(name, bits)| (name, f64::from_bits(bits))).collect())
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
