//! `[limits]`: limits of the method and the verifiers, with safe defaults.
//!
//! The keys come from the sandbox's list of limits, so every limit of the sandbox can be set.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tunebox_sandbox::{LIMITS, Limit, Limits, Unit, VERIFIER_LIMITS, VerifierLimits};

/// The limits that a run sets, by name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LimitsTable(Map<String, Value>);

impl LimitsTable {
    /// The limits of the method: the defaults, replaced by those that the run sets.
    #[must_use]
    pub fn of_method(&self) -> Limits {
        let defaults = Limits::default();
        // Names, types and ranges were checked when the table was read.
        defaults.with(&self.entries_in(LIMITS)).unwrap_or(defaults)
    }

    /// The limits of each verifier: the defaults, replaced by those that the run sets.
    pub(crate) fn of_verifiers(&self) -> VerifierLimits {
        let defaults = VerifierLimits::default();
        defaults.with(&self.entries_in(VERIFIER_LIMITS)).unwrap_or(defaults)
    }

    /// The entries of the table whose names are those of a limit in `list`.
    fn entries_in(&self, list: &[Limit]) -> Map<String, Value> {
        let known = |name: &str| list.iter().any(|limit| limit.name == name);
        self.0.iter().filter(|(name, _)| known(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

impl JsonSchema for LimitsTable {
    fn schema_name() -> Cow<'static, str> {
        "LimitsTable".into()
    }

    /// Generates the schema of `[limits]` from the sandbox's list of limits. Other keys are not permitted.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let properties: Map<String, Value> =
            LIMITS.iter().chain(VERIFIER_LIMITS).map(|limit| (limit.name.to_owned(), key(limit))).collect();
        let schema = json!({
            "description": "`[limits]`: limits of the method and the verifiers.",
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        });
        Schema::try_from(schema).unwrap_or_default()
    }
}

/// The JSON schema of one limit: its description, type and range.
fn key(limit: &Limit) -> Value {
    let text = limit.text.trim();
    match limit.unit {
        Unit::Seconds => {
            json!({"description": text, "type": "number", "exclusiveMinimum": limit.low, "maximum": limit.high})
        }
        Unit::Bytes | Unit::Count | Unit::Operations | Unit::Instructions => {
            json!({"description": text, "type": "integer", "minimum": limit.low, "maximum": limit.high})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_of_the_sandbox_can_be_set() {
        let table: Map<String, Value> =
            Limits::default().entries().map(|(limit, _)| (limit.name.to_owned(), json!(limit.high as u64))).collect();
        let limits = LimitsTable(table).of_method();
        for (limit, value) in limits.entries() {
            assert_eq!(value.as_f64(), Some(limit.high), "{}", limit.name);
        }
    }

    #[test]
    fn entries_in_verifiers_stand_in_the_same_table() {
        let table = json!({"verifier-seconds": 0.5, "verifier-memory": 1 << 20, "handles": 100});
        let limits = LimitsTable(table.as_object().unwrap().clone());
        let verifiers = limits.of_verifiers();
        assert_eq!((verifiers.verifier_seconds, verifiers.verifier_memory), (0.5, 1 << 20));
        assert_eq!(limits.of_method().handles, 100);
    }
}
