//! The identity of a run, as a checkpoint records it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::configuration::ENDLESS;

/// Settings that do not affect the bits of a run, by dotted name; a name that ends in `.` stands for a whole table.
const SETTINGS_WITHOUT_EFFECT: [&str; 17] = [
    "run.",
    "limits.",
    // The location of a component; its content is compared by digest.
    "method.use",
    "environment.use",
    "model.path",
    "model.adapter",
    // It shows in the tokens of the data.
    "model.chat-template",
    "model.revision",
    "data.path",
    "data.validation",
    "train.recompute",
    "train.cache-reference",
    "train.skip-non-finite",
    "train.save-every",
    "train.keep",
    "train.log-every",
    "train.show-completions",
];

/// The settings of a run's length. A resumed run may have more steps and more patience than before.
pub(crate) const LENGTH_SETTINGS: [&str; 3] = ["train.steps", "train.epochs", "train.patience"];

/// Everything that determines the bits of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Identity {
    /// This program's version.
    pub(crate) version: String,
    /// SHA-256 of the weight files.
    pub(crate) model: String,
    /// SHA-256 of the adapter that the run continues, if any.
    pub(crate) adapter: Option<String>,
    /// SHA-256 of the weight files of each teacher.
    #[serde(default)]
    pub(crate) teachers: Vec<String>,
    /// SHA-256 of the data file.
    pub(crate) data: String,
    /// SHA-256 of the token ids and targets.
    pub(crate) tokens: String,
    /// SHA-256 of the token ids and targets of the validation data, if a validation decides what the run leaves or when
    /// it ends.
    #[serde(default)]
    pub(crate) validation: Option<String>,
    /// SHA-256 of the method's component.
    pub(crate) method: String,
    /// SHA-256 of each verifier's component, or of a reward model's files.
    #[serde(default)]
    pub(crate) verifiers: Vec<String>,
    /// SHA-256 of the environment's component, if the run has one.
    #[serde(default)]
    pub(crate) environment: Option<String>,
    /// Every setting that affects the bits, by dotted name.
    pub(crate) settings: BTreeMap<String, Value>,
    /// The device and number format that computed, such as `cuda in bf16`; `auto` may choose another device next time.
    #[serde(default)]
    pub(crate) computed: Option<String>,
}

impl Identity {
    /// Returns the differences between the run of a checkpoint (`self`) and the run as it is set up now, a clause for a
    /// message each; empty if there are none. Device and number format are compared only if both runs have them; the
    /// tokens only if the data file is the same.
    pub(crate) fn differences(&self, now: &Self) -> Vec<String> {
        let mut compared = vec![
            (self.version == now.version, format!("it was started by tunebox {}, not {}", self.version, now.version)),
            (self.verifiers == now.verifiers, "the verifiers are others".into()),
            (self.environment == now.environment, "the environment is another".into()),
            (self.model == now.model, "the weights of the model are others".into()),
            (self.teachers == now.teachers, "the teachers are others".into()),
            (self.adapter == now.adapter, "the adapter that it began with is another".into()),
            (self.data == now.data, "the data file is another".into()),
            (
                self.tokens == now.tokens || self.data != now.data,
                "the same data gives other tokens: the tokenizer or the chat template is another".into(),
            ),
            (self.validation == now.validation, "the validation data are others".into()),
            (self.method == now.method, "the method's component is another".into()),
        ];
        if let (Some(then), Some(now)) = (&self.computed, &now.computed) {
            compared.push((then == now, format!("it was computed on {then}, and here would be on {now}")));
        }
        let names: BTreeSet<&String> = self.settings.keys().chain(now.settings.keys()).collect();
        for name in names {
            let (then, now) = (self.settings.get(name), now.settings.get(name));
            compared.push((
                then == now,
                format!("`{name}` was {}, is {}", format_setting(name, then), format_setting(name, now)),
            ));
        }
        compared.into_iter().filter(|(is_same, _)| !is_same).map(|(_, clause)| clause).collect()
    }
}

/// Formats a setting's value for a message: in backticks, `not set` for `None`, and in words for the number of steps
/// ([`ENDLESS`]) that stands for a run without an end. `name` is its dotted name.
fn format_setting(name: &str, value: Option<&Value>) -> String {
    match value {
        None => "not set".into(),
        Some(value) if name == "train.steps" && *value == ENDLESS => {
            "without an end, as in runs of `tunebox dev`".into()
        }
        Some(value) => format!("`{value}`"),
    }
}

/// Returns the settings in the run file `file` (as JSON, with defaults) that affect the bits of a run, by dotted name.
/// Leaves out those in [`SETTINGS_WITHOUT_EFFECT`], the interval of validations that decide nothing, and the locations
/// of verifiers and teachers.
pub(crate) fn settings_that_matter(file: &Value) -> BTreeMap<String, Value> {
    let mut flat = BTreeMap::new();
    flatten("", file, &mut flat);
    // The location of a verifier's component or of a teacher; its content is compared by digest.
    for (list, location) in [("verifier", "use"), ("teacher", "path"), ("teacher", "revision")] {
        if let Some(Value::Array(tables)) = flat.get_mut(list) {
            tables.iter_mut().filter_map(Value::as_object_mut).for_each(|table| {
                table.shift_remove(location);
            });
        }
    }
    let decides = has_deciding_validations(&flat);
    flat.retain(|name, _| {
        (decides || name != "train.validate-every")
            && !SETTINGS_WITHOUT_EFFECT
                .iter()
                .any(|free| name == free || (free.ends_with('.') && name.starts_with(free)))
    });
    flat
}

/// Whether validations may decide what the run leaves or when it ends: there is validation data, and `train.keep-best`
/// is not off or `train.patience` is given. `flat` are the settings by dotted name.
fn has_deciding_validations(flat: &BTreeMap<String, Value>) -> bool {
    let keeps_best = flat.get("train.keep-best") != Some(&Value::Bool(false));
    flat.contains_key("data.validation") && (keeps_best || flat.contains_key("train.patience"))
}

/// Inserts the values below `value` into `flat` by dotted name, where `name` is the dotted name of `value`, empty for
/// the whole file. Descends into tables only: a list is one value.
fn flatten(name: &str, value: &Value, flat: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(table) => {
            for (key, below) in table {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, below, flat);
            }
        }
        other => {
            flat.insert(name.to_owned(), other.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_settings_that_change_bits_matter() {
        let file = json!({"train": {"rate": 1e-4, "keep": 3, "adapter": {"rank": 8}}, "run": {"name": "a"}, "limits": {"handles": 5}});
        let settings = settings_that_matter(&file);

        assert_eq!(settings.keys().collect::<Vec<_>>(), ["train.adapter.rank", "train.rate"]);
    }

    #[test]
    fn the_interval_of_validations_matters_where_they_decide_what_ships_or_when_the_run_ends() {
        let matters = |data: Value, train: Value| {
            let settings = settings_that_matter(&json!({ "data": data, "train": train }));
            settings.contains_key("train.validate-every")
        };
        let held_out = json!({ "validation": "v.jsonl" });
        assert!(matters(held_out.clone(), json!({ "validate-every": 5 })));
        assert!(matters(held_out.clone(), json!({ "validate-every": 5, "keep-best": false, "patience": 2 })));
        assert!(!matters(held_out, json!({ "validate-every": 5, "keep-best": false })));
        assert!(!matters(json!({}), json!({ "validate-every": 5 })));
    }

    fn with(name: &str, value: Value) -> Identity {
        Identity { settings: BTreeMap::from([(name.into(), value)]), ..Identity::default() }
    }

    #[test]
    fn a_difference_says_what_was_and_what_is() {
        let endless = "`train.steps` was without an end, as in runs of `tunebox dev`, is `60`";
        for (name, then, now, told) in [
            ("train.rate", json!(0.5), json!(0.25), &["`train.rate` was `0.5`, is `0.25`"][..]),
            ("train.rate", json!(0.5), json!(0.5), &[]),
            ("train.steps", json!(ENDLESS), json!(60), &[endless]),
        ] {
            assert_eq!(with(name, then).differences(&with(name, now)), told);
        }
    }

    #[test]
    fn another_device_under_the_same_word_is_a_difference() {
        let on = |computed: Option<&str>| Identity {
            computed: computed.map(str::to_owned),
            ..with("train.device", json!("auto"))
        };
        let (cuda, cpu) = (on(Some("cuda in bf16")), on(Some("cpu in f32")));

        assert_eq!(cuda.differences(&cpu), ["it was computed on cuda in bf16, and here would be on cpu in f32"]);
        assert!(cpu.differences(&cpu).is_empty());
        // Checkpoints of before do not say.
        assert!(on(None).differences(&cpu).is_empty());
    }
}
