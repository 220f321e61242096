//! What a verifier may use up in one call. Its keys of `[limits]` begin with `verifier-`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::limits::{Limit, Unit};

/// What a verifier may use up in one call; past it the verifier could not judge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifierLimits {
    /// Seconds of one call, as a clock on the wall has them.
    #[serde(rename = "verifier-seconds")]
    pub seconds: f64,
    /// Bytes of its memory.
    #[serde(rename = "verifier-memory")]
    pub linear_memory: usize,
    /// Bytes of its component.
    #[serde(rename = "verifier-component-bytes")]
    pub component_bytes: usize,
}

impl Default for VerifierLimits {
    fn default() -> Self {
        Self { seconds: 1.0, linear_memory: 64 << 20, component_bytes: 16 << 20 }
    }
}

/// Every limit of a verifier, in the order of [`VerifierLimits`].
pub const VERIFIER_LIMITS: &[Limit] = &[
    Limit {
        name: "verifier-seconds",
        unit: Unit::Seconds,
        text: "Seconds of one verdict of a verifier, as a clock on the wall has them; past it the verifier could not judge.",
        low: 0.0,
        high: 3_600.0,
    },
    Limit {
        name: "verifier-memory",
        unit: Unit::Bytes,
        text: "Bytes of a verifier's memory.",
        low: 65_536.0,
        high: 4_294_967_296.0,
    },
    Limit {
        name: "verifier-component-bytes",
        unit: Unit::Bytes,
        text: "Bytes of a verifier's component.",
        low: 1_024.0,
        high: 268_435_456.0,
    },
];

impl VerifierLimits {
    /// Every limit with its value, in the order of the list.
    pub fn entries(&self) -> impl Iterator<Item = (&'static Limit, Number)> {
        let values = serde_json::to_value(self).unwrap_or_default();
        VERIFIER_LIMITS.iter().filter_map(move |limit| Some((limit, values.get(limit.name)?.as_number()?.clone())))
    }

    /// These limits with those of a table put in their place.
    ///
    /// # Errors
    /// What is wrong with the table: a name that is no limit, or a value of another kind.
    pub fn with(&self, table: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        let mut values: Map<String, Value> =
            self.entries().map(|(limit, value)| (limit.name.to_owned(), Value::Number(value))).collect();
        values.extend(table.iter().map(|(name, value)| (name.clone(), value.clone())));
        serde_json::from_value(Value::Object(values))
    }
}
