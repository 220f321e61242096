//! `[limits]`: what the method and the verifiers may use up; safe defaults where nothing is given.
//!
//! The keys are those of the sandbox's own list, so a limit that exists there can be set here.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tunebox_sandbox::{LIMITS, Limit, Limits, Unit, VERIFIER_LIMITS, VerifierLimits};

/// The limits that a run sets, by their names.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LimitsTable(Map<String, Value>);

impl LimitsTable {
    /// The safe defaults of a method with what the run changes.
    #[must_use]
    pub fn of_method(&self) -> Limits {
        let usual = Limits::default();
        // Names, kinds and ranges were checked when the table was read.
        usual.with(&self.those_of(LIMITS)).unwrap_or(usual)
    }

    /// The same for the verifiers.
    #[must_use]
    pub fn of_verifiers(&self) -> VerifierLimits {
        let usual = VerifierLimits::default();
        usual.with(&self.those_of(VERIFIER_LIMITS)).unwrap_or(usual)
    }

    fn those_of(&self, list: &[Limit]) -> Map<String, Value> {
        let known = |name: &str| list.iter().any(|limit| limit.name == name);
        self.0.iter().filter(|(name, _)| known(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

impl JsonSchema for LimitsTable {
    fn schema_name() -> Cow<'static, str> {
        "LimitsTable".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let properties: Map<String, Value> =
            LIMITS.iter().chain(VERIFIER_LIMITS).map(|limit| (limit.name.to_owned(), key(limit))).collect();
        let schema = json!({
            "description": "`[limits]`: what the method and the verifiers may use up; safe defaults where nothing is given.",
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        });
        Schema::try_from(schema).unwrap_or_default()
    }
}

/// The schema of one limit.
fn key(limit: &Limit) -> Value {
    let text = limit.text.trim();
    match limit.unit {
        Unit::Seconds => {
            json!({"description": text, "type": "number", "exclusiveMinimum": limit.low, "maximum": limit.high})
        }
        Unit::Bytes | Unit::Count | Unit::Operations => {
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
    fn those_of_verifiers_stand_in_the_same_table() {
        let table = json!({"verifier-seconds": 0.5, "verifier-memory": 1 << 20, "handles": 100});
        let limits = LimitsTable(table.as_object().unwrap().clone());
        let verifiers = limits.of_verifiers();
        assert_eq!((verifiers.seconds, verifiers.linear_memory), (0.5, 1 << 20));
        assert_eq!(limits.of_method().handles, 100);
    }
}
