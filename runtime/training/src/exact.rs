//! Numbers that JSON would lose, kept: one that is not finite becomes its word.
//!
//! For `#[serde(with = "exact")]`, and `exact::pairs` for lists of named numbers. Finite numbers keep their bits.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number as it travels.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Finite(f64),
    Word(Word),
}

#[derive(Serialize, Deserialize)]
enum Word {
    #[serde(rename = "nan")]
    NotANumber,
    #[serde(rename = "inf")]
    Infinite,
    #[serde(rename = "-inf")]
    NegativeInfinite,
}

impl From<f64> for Form {
    fn from(value: f64) -> Self {
        match value {
            value if value.is_nan() => Self::Word(Word::NotANumber),
            f64::INFINITY => Self::Word(Word::Infinite),
            f64::NEG_INFINITY => Self::Word(Word::NegativeInfinite),
            value => Self::Finite(value),
        }
    }
}

impl From<Form> for f64 {
    fn from(form: Form) -> Self {
        match form {
            Form::Finite(value) => value,
            Form::Word(Word::NotANumber) => Self::NAN,
            Form::Word(Word::Infinite) => Self::INFINITY,
            Form::Word(Word::NegativeInfinite) => Self::NEG_INFINITY,
        }
    }
}

pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    Form::from(*value).serialize(serializer)
}

pub(crate) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<f64, D::Error> {
    Form::deserialize(deserializer).map(f64::from)
}

/// The same for lists of names and numbers.
pub(crate) mod pairs {
    use super::{Deserialize, Deserializer, Form, Serializer};

    pub(crate) fn serialize<S: Serializer>(values: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|(name, value)| (name, Form::from(*value))))
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Vec<(String, f64)>, D::Error> {
        let pairs = Vec::<(String, Form)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().map(|(name, form)| (name, form.into())).collect())
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
