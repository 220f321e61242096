//! `[limits]`: limits of the method, the verifiers and the environment, with safe defaults.
//!
//! The keys come from the sandbox's list of limits, so every limit of the sandbox can be set.

use schemars::{Schema, SchemaGenerator};
use serde::Serializer;
use serde_json::{Map, Number, Value, json};
use tunebox_sandbox::{Limit, Limits, Unit};

/// Serializes the limits that differ from the defaults, by name.
pub(super) fn serialize<S: Serializer>(limits: &Limits, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(limits.changed().map(|(limit, value, _)| (limit.name, value)))
}

/// Generates the JSON schema of `[limits]` from the sandbox's list of limits. Other keys are not permitted.
pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
    let properties: Map<String, Value> =
        Limits::default().entries().map(|(limit, usual)| (limit.name.to_owned(), limit_schema(limit, usual))).collect();
    let schema = json!({
        "description": "`[limits]`: limits of the method, the verifiers and the environment.",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    Schema::try_from(schema).unwrap_or_default()
}

/// The JSON schema of one limit: its description, type, range and default.
fn limit_schema(limit: &Limit, usual: Number) -> Value {
    let (kind, low) = match limit.unit {
        Unit::Seconds => ("number", "exclusiveMinimum"),
        Unit::Bytes | Unit::Count | Unit::Operations | Unit::Instructions => ("integer", "minimum"),
    };
    let text = limit.text.trim();
    json!({"description": text, "type": kind, low: limit.low, "maximum": limit.high, "default": usual})
}

#[cfg(test)]
mod tests {
    use tunebox_sandbox::LIMITS;

    use super::*;
    use crate::configuration::RunSettings;

    /// The limits of a run with these in its run file.
    fn limits(table: &Map<String, Value>) -> Limits {
        let named = ["model.path=m", "data.path=d", "method.use=lora"].map(str::to_owned);
        let set = table.iter().map(|(name, value)| format!("limits.{name}={value}"));
        RunSettings::from_overrides(&named.into_iter().chain(set).collect::<Vec<_>>()).unwrap().file.limits
    }

    #[test]
    fn every_limit_of_the_sandbox_can_be_set() {
        let table = LIMITS.iter().map(|limit| (limit.name.to_owned(), json!(limit.high as u64))).collect();
        for (limit, value) in limits(&table).entries() {
            assert_eq!(value.as_f64(), Some(limit.high), "{}", limit.name);
        }
    }

    #[test]
    fn entries_in_verifiers_stand_in_the_same_table() {
        let table = json!({"verifier-seconds": 0.5, "verifier-memory": 1 << 20, "handles": 100});
        let limits = limits(table.as_object().unwrap());
        assert_eq!((limits.verifier_seconds, limits.verifier_memory, limits.handles), (0.5, 1 << 20, 100));
        assert_eq!(serialize(&limits, serde_json::value::Serializer).unwrap(), table);
    }
}
