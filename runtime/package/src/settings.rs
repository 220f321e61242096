//! The settings of a run: what a person gave, checked against the manifest and filled in.

use tunebox_foundation::explain::{Explain, Explanation};

use crate::{Kind, Manifest, Setting, Value};
use tunebox_foundation::nearest::nearest;

/// The largest number of items of a list.
pub const MAX_ITEMS: u32 = 1024;

/// Why a value cannot be taken. The caller knows the file and line of the setting.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Explain)]
#[error("{source}")]
#[explain(source)]
pub struct SettingError {
    /// The key or setting that the error is about.
    pub name: String,
    /// Whether the method has no setting of that name; else its value is wrong or missing.
    pub is_unknown: bool,
    /// What is wrong. There is no hint for a wrong value: only the caller knows by which name `tunebox inspect` finds
    /// the method.
    source: Box<Explanation>,
}

/// Makes the error for a key that is no setting of the method. The hint has the nearest setting, if there is one, and
/// all of them.
fn unknown_setting(manifest: &Manifest, name: &str) -> SettingError {
    let (method, known) = (&manifest.name, manifest.settings.iter().map(|setting| setting.name.as_str()));
    let known: Vec<&str> = known.collect();
    let guess = nearest(name, known.iter().copied()).map(|name| format!("did you mean `{name}`? "));
    let hint = match known[..] {
        [] => format!("`{method}` has no settings"),
        _ => format!("{}(settings: {})", guess.unwrap_or_default(), known.join(", ")),
    };
    let error = Explanation::new("config", format!("unknown key `{name}`"));
    let error = error.with_why(format!("`{name}` is not a setting of `{method}`")).with_hint(hint);
    SettingError { name: name.to_owned(), is_unknown: true, source: Box::new(error) }
}

/// Returns every setting of the manifest, in its order, as name and value: the value in `given`, else the default.
/// Errors: a key that is no setting, a value of another kind or outside its range, a setting without value and default.
pub fn resolve_settings(manifest: &Manifest, given: &toml::Table) -> Result<Vec<(String, Value)>, SettingError> {
    if let Some(name) = unknown_keys(manifest, given).next() {
        return Err(unknown_setting(manifest, name));
    }
    manifest.settings.iter().map(|setting| resolve_named(manifest, setting, given)).collect()
}

/// Returns the errors that [`resolve_settings`] can fail with for `given`: first those about unknown keys, at most 64,
/// then wrong and missing values in the order of the manifest.
#[must_use]
pub fn setting_errors(manifest: &Manifest, given: &toml::Table) -> Vec<SettingError> {
    let unknown = unknown_keys(manifest, given).map(|name| unknown_setting(manifest, name));
    let wrong = manifest.settings.iter().filter_map(|setting| resolve_named(manifest, setting, given).err());
    unknown.take(MAX_UNKNOWN).chain(wrong).collect()
}

/// The most errors about unknown keys that [`setting_errors`] returns.
const MAX_UNKNOWN: usize = 64;

/// Iterates over the keys in `given` that are no setting of the manifest.
fn unknown_keys<'a>(manifest: &'a Manifest, given: &'a toml::Table) -> impl Iterator<Item = &'a String> {
    given.keys().filter(|name| !manifest.settings.iter().any(|setting| setting.name == **name))
}

/// Returns the name of a setting, and its value as [`resolve_settings`] finds it: the one in `given`, else the default.
fn resolve_named(manifest: &Manifest, setting: &Setting, given: &toml::Table) -> Result<(String, Value), SettingError> {
    let value = resolve(&manifest.name, setting, given.get(&setting.name));
    let failed = |error| SettingError { name: setting.name.clone(), is_unknown: false, source: error };
    Ok((setting.name.clone(), value.map_err(failed)?))
}

/// Returns the value of one setting of a method: `given`, converted and checked, if there is one, else the default.
/// Errors: a value of another kind or outside its range, or neither value nor default.
fn resolve(method: &str, setting: &Setting, given: Option<&toml::Value>) -> Result<Value, Box<Explanation>> {
    let Setting { name, doc, kind, default, .. } = setting;
    let Some(given) = given else {
        return default.clone().ok_or_else(|| {
            let error = Explanation::new("config", format!("`{name}` is missing"));
            let hint = format!("add `{name} = …` to the table whose `use` is `{method}`");
            Box::new(error.with_why(format!("`{method}` has no default for `{name}`: {doc}")).with_hint(hint))
        });
    };
    let value = given.clone().try_into();
    let value = value.map_err(|_| format!("of type {}, it must be {}", given.type_str(), kind_phrase(*kind)));
    value.and_then(|value| convert_and_check(setting, value)).map_err(|problem| {
        let error = Explanation::new("config", format!("`{name}` is {problem}"));
        Box::new(error.with_why(format!("`{name}` of `{method}`: {doc}")))
    })
}

/// Converts a value to the setting's kind (integers become numbers where the setting takes those, and an empty list one
/// of the setting's kind), and checks the range and choices, for a list those of each item, the number of items, and
/// that a number is finite as `f32`. The error completes "`name` is …".
pub(crate) fn convert_and_check(setting: &Setting, value: Value) -> Result<Value, String> {
    let value = convert(setting.kind, value)?;
    let items: Vec<Value> = match &value {
        Value::Integers(items) => items.iter().copied().map(Value::Integer).collect(),
        Value::Numbers(items) => items.iter().copied().map(Value::Number).collect(),
        Value::Texts(items) => items.iter().cloned().map(Value::Text).collect(),
        single => return check_item(setting, single).map(|()| value),
    };
    let (least, most) = item_bounds(setting);
    if items.len() < least as usize || items.len() > most as usize {
        return Err(format!("a list of {} items, it must be {}", items.len(), range(setting)));
    }
    for (number, item) in (1..).zip(&items) {
        check_item(setting, item).map_err(|problem| format!("wrong at item {number}, which is {problem}"))?;
    }
    Ok(value)
}

/// Returns the least and the largest number of items of a list setting: 0 and [`MAX_ITEMS`] where the manifest gives
/// none. The largest is never above [`MAX_ITEMS`].
fn item_bounds(setting: &Setting) -> (u32, u32) {
    (setting.min_items.unwrap_or(0), setting.max_items.unwrap_or(MAX_ITEMS).min(MAX_ITEMS))
}

/// Converts a value to a kind: an integer to a number, a list of integers to a list of numbers, and an empty list,
/// which is parsed as a list of integers, to a list of any kind. Returns a value that has the kind already unchanged.
/// The error, for all other values, completes "`name` is …". Does not check ranges and choices.
fn convert(kind: Kind, value: Value) -> Result<Value, String> {
    Ok(match (kind, value) {
        (Kind::Number, Value::Integer(value)) => Value::Number(value as f64),
        (Kind::Boolean, value @ Value::Boolean(_))
        | (Kind::Integer, value @ Value::Integer(_))
        | (Kind::Number, value @ Value::Number(_))
        | (Kind::Text, value @ Value::Text(_))
        | (Kind::Integers, value @ Value::Integers(_))
        | (Kind::Numbers, value @ Value::Numbers(_))
        | (Kind::Texts, value @ Value::Texts(_)) => value,
        (Kind::Numbers, Value::Integers(items)) => Value::Numbers(items.into_iter().map(|item| item as f64).collect()),
        (Kind::Texts, Value::Integers(items)) if items.is_empty() => Value::Texts(Vec::new()),
        (kind, other) => return Err(format!("{}, it must be {}", format_value(&other), kind_phrase(kind))),
    })
}

/// Checks the range, the choices and the finiteness of a value that is no list. The error completes "`name` is …".
fn check_item(setting: &Setting, value: &Value) -> Result<(), String> {
    let within = match value {
        Value::Integer(number) => is_in_range(setting, *number as f64),
        Value::Number(number) => number.is_finite() && is_in_range(setting, *number),
        Value::Text(text) => setting.choices.is_empty() || setting.choices.contains(text),
        _ => true,
    };
    match value {
        _ if !within => Err(format!("{}, it must be {}", format_value(value), item_range(setting))),
        // Methods compute in `f32`, where the number would be infinite. An error there could not name the setting.
        Value::Number(number) if !(*number as f32).is_finite() => {
            Err(format!("{number:e}, it must be a number that 32 bits hold, 3.4e38 at most"))
        }
        _ => Ok(()),
    }
}

/// Whether a number is within all bounds that a setting has: `low` and `high` inclusive, `above` and `below` exclusive.
/// True if it has none.
fn is_in_range(setting: &Setting, value: f64) -> bool {
    setting.low.is_none_or(|low| value >= low)
        && setting.high.is_none_or(|high| value <= high)
        && setting.above.is_none_or(|above| value > above)
        && setting.below.is_none_or(|below| value < below)
}

/// Describes what a setting takes, in words: its choices ("`nll` or `dft`"), else its bounds ("at least 0 and below
/// 1"), else the kind of its values ("a finite number"). For a list the number of items and what each may be ("a list
/// of 1 to 8 items, each at least 0").
pub fn range(setting: &Setting) -> String {
    let each = item_range(setting);
    if item_kind(setting.kind) == setting.kind {
        return each;
    }
    let (least, most) = item_bounds(setting);
    let count = match (least, most) {
        (0, MAX_ITEMS) => "items".to_owned(),
        (least, MAX_ITEMS) => format!("at least {least} items"),
        (0, most) => format!("at most {most} items"),
        (least, most) if least == most => format!("{least} items"),
        (least, most) => format!("{least} to {most} items"),
    };
    format!("a list of {count}, each {each}")
}

/// Returns the kind of the items of a list; a kind that is no list's is returned as it is.
fn item_kind(kind: Kind) -> Kind {
    match kind {
        Kind::Integers => Kind::Integer,
        Kind::Numbers => Kind::Number,
        Kind::Texts => Kind::Text,
        single => single,
    }
}

/// Describes the values that a setting takes, or that an item of a list setting takes: its choices, else its bounds,
/// else its kind.
fn item_range(setting: &Setting) -> String {
    if !setting.choices.is_empty() {
        let choices: Vec<String> = setting.choices.iter().map(|choice| format!("`{choice}`")).collect();
        return choices.join(" or ");
    }
    let bounds =
        [("at least", setting.low), ("above", setting.above), ("at most", setting.high), ("below", setting.below)];
    let words: Vec<String> =
        bounds.iter().filter_map(|(word, bound)| bound.map(|bound| format!("{word} {bound}"))).collect();
    if words.is_empty() { kind_phrase(item_kind(setting.kind)).to_owned() } else { words.join(" and ") }
}

/// Returns a phrase for the values of a kind, such as "a whole number".
fn kind_phrase(kind: Kind) -> &'static str {
    match kind {
        Kind::Boolean => "`true` or `false`",
        Kind::Integer => "a whole number",
        Kind::Number => "a finite number",
        Kind::Text => "a text",
        Kind::Integers => "a list of whole numbers",
        Kind::Numbers => "a list of finite numbers",
        Kind::Texts => "a list of texts",
    }
}

/// Formats a value for messages: a text between backticks with escapes, other values as in `run.toml`.
fn format_value(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("`{}`", text.escape_debug()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
