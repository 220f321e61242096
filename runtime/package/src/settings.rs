//! The settings of a run: what a person gave, checked against the manifest and filled in.

use tunebox_foundation::explain::Explain;

use crate::{Kind, Manifest, Setting, Value};
use tunebox_foundation::nearest::nearest;

/// Why a value cannot be taken. The caller knows the file and line of [`name`](Self::name).
#[derive(Debug, Clone, PartialEq, thiserror::Error, Explain)]
#[explain(category = "config")]
pub enum SettingError {
    /// A key that the method does not know.
    #[error("unknown key `{name}`")]
    #[explain(why = "`{name}` is not a setting of method `{method}`", hint = list_settings(method, nearest.as_deref(), known))]
    Unknown {
        /// The method.
        method: String,
        /// The key.
        name: String,
        /// The setting that it resembles.
        nearest: Option<String>,
        /// All settings of the method.
        known: Vec<String>,
    },
    /// A value of the wrong kind, outside the range, or none of the choices.
    #[error("`{name}` is {problem}")]
    #[explain(
        why = "`{name}` of method `{method}`: {doc}",
        hint = "`tunebox inspect {method}` lists settings and ranges"
    )]
    Value {
        /// The method.
        method: String,
        /// The setting.
        name: String,
        /// What the value is and what it must be.
        problem: String,
        /// What the setting does.
        doc: String,
    },
    /// A setting without default that was not given.
    #[error("`{name}` is missing")]
    #[explain(
        why = "method `{method}` has no default for `{name}`: {doc}",
        hint = "add `{name} = …` to `[method]`, or `--set method.{name}=…`"
    )]
    Missing {
        /// The method.
        method: String,
        /// The setting.
        name: String,
        /// What the setting does.
        doc: String,
    },
}

impl SettingError {
    /// Returns the key or setting that the error is about.
    pub fn name(&self) -> &str {
        match self {
            Self::Unknown { name, .. } | Self::Value { name, .. } | Self::Missing { name, .. } => name,
        }
    }
}

/// Returns the hint for an unknown key: the nearest setting, if there is one, and all settings of the method.
fn list_settings(method: &str, nearest: Option<&str>, known: &[String]) -> String {
    if known.is_empty() {
        return format!("method `{method}` has no settings");
    }
    let guess = nearest.map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
    format!("{guess}(settings: {})", known.join(", "))
}

/// Returns every setting of the manifest, in its order, as name and value: the value in `given`, else the default.
/// Errors: a key that is no setting, a value of another kind or outside its range, a setting without value and default.
pub fn resolve_settings(manifest: &Manifest, given: &toml::Table) -> Result<Vec<(String, Value)>, SettingError> {
    let known = || manifest.settings.iter().map(|setting| setting.name.as_str());
    if let Some(name) = given.keys().find(|key| !known().any(|name| name == *key)) {
        return Err(SettingError::Unknown {
            method: manifest.name.clone(),
            name: name.clone(),
            nearest: nearest(name, known()).map(str::to_owned),
            known: known().map(str::to_owned).collect(),
        });
    }
    let mut values = Vec::with_capacity(manifest.settings.len());
    for setting in &manifest.settings {
        values.push((setting.name.clone(), resolve(manifest, setting, given.get(&setting.name))?));
    }
    Ok(values)
}

/// Returns the value of one setting: the one that is given, converted and checked, else the default. Errors: a value of
/// another kind or outside its range, or neither value nor default.
fn resolve(manifest: &Manifest, setting: &Setting, given: Option<&toml::Value>) -> Result<Value, SettingError> {
    let (method, name, doc) = (manifest.name.clone(), setting.name.clone(), setting.doc.clone());
    let value = match given {
        Some(given) => given
            .clone()
            .try_into()
            .map_err(|_| format!("of type {}, it must be {}", given.type_str(), a(setting.kind))),
        None => return setting.default.clone().ok_or(SettingError::Missing { method, name, doc }),
    };
    let value = value.and_then(|value| fits(setting, value));
    value.map_err(|problem| SettingError::Value { method, name, problem, doc })
}

/// Converts a value to the setting's kind (an integer becomes a number where the setting takes one), and checks its
/// range and choices, and that a number is finite as `f32`. The error completes "`name` is …".
pub(crate) fn fits(setting: &Setting, value: Value) -> Result<Value, String> {
    let value = match (setting.kind, value) {
        (Kind::Number, Value::Integer(value)) => Value::Number(value as f64),
        (Kind::Boolean, value @ Value::Boolean(_))
        | (Kind::Integer, value @ Value::Integer(_))
        | (Kind::Number, value @ Value::Number(_))
        | (Kind::Text, value @ Value::Text(_)) => value,
        (kind, other) => return Err(format!("{}, it must be {}", shown(&other), a(kind))),
    };
    let within = match &value {
        Value::Boolean(_) => true,
        Value::Integer(number) => in_range(setting, *number as f64),
        Value::Number(number) => number.is_finite() && in_range(setting, *number),
        Value::Text(text) => setting.choices.is_empty() || setting.choices.contains(text),
    };
    match &value {
        _ if !within => Err(format!("{}, it must be {}", shown(&value), range(setting))),
        // Methods compute with 32 bits; there it would be infinite, and its name lost.
        Value::Number(number) if !(*number as f32).is_finite() => {
            Err(format!("{number:e}, it must be a number that 32 bits hold, 3.4e38 at most"))
        }
        _ => Ok(value),
    }
}

/// Whether a number is within the bounds that a setting has.
fn in_range(setting: &Setting, value: f64) -> bool {
    setting.low.is_none_or(|low| value >= low)
        && setting.high.is_none_or(|high| value <= high)
        && setting.above.is_none_or(|above| value > above)
        && setting.below.is_none_or(|below| value < below)
}

/// Describes what a setting takes, in words: "at least 0 and below 1", "`nll` or `dft`", "a finite number".
pub fn range(setting: &Setting) -> String {
    if !setting.choices.is_empty() {
        let choices: Vec<String> = setting.choices.iter().map(|choice| format!("`{choice}`")).collect();
        return choices.join(" or ");
    }
    let bounds =
        [("at least", setting.low), ("above", setting.above), ("at most", setting.high), ("below", setting.below)];
    let words: Vec<String> =
        bounds.iter().filter_map(|(word, bound)| bound.map(|bound| format!("{word} {bound}"))).collect();
    if words.is_empty() { a(setting.kind).to_owned() } else { words.join(" and ") }
}

/// Returns a phrase for the values of a kind, such as "a whole number".
fn a(kind: Kind) -> &'static str {
    match kind {
        Kind::Boolean => "`true` or `false`",
        Kind::Integer => "a whole number",
        Kind::Number => "a finite number",
        Kind::Text => "a text",
    }
}

/// Formats a value for messages: a text between backticks with escapes, other values as in `run.toml`.
fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("`{}`", text.escape_debug()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
