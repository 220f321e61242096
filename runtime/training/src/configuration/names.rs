//! Names that other trainers give to settings and to their values, and the hints about them.
//!
//! A name is compared in lower case, with `-` for `_`.

mod advice;
mod choices;
mod keys;

use serde_json::{Map, Value};
use tunebox_foundation::nearest::nearest;

use super::check::{find_key, suggest};
use advice::ADVICE;
use choices::CHOICES;
use keys::{SWITCHES, SYNONYMS};

/// Writes a name as the tables of this module have it: in lower case, with `-` for `_`.
fn normalize(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}

/// Whether one of `names` is `name`, or ends in `*` and `name` begins with what stands before that.
fn is_named(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.strip_suffix('*').map_or(*known == name, |beginning| name.starts_with(beginning)))
}

/// Finds the dotted key of the setting that a user means by `name`, such as `train.rate` for `learning_rate`. `name`
/// may be another trainer's name, or the last part of a key in any table but `[[verifier]]`. Ignores case, and reads
/// `_` as `-`. Returns `None` if no setting is known by this name. A returned key that begins with `method.` exists in
/// some methods only.
#[must_use]
pub fn find_meant_key(name: &str) -> Option<String> {
    let name = normalize(name);
    let switch = SWITCHES.iter().find(|(switch, ..)| *switch == name).map(|(_, key, _)| *key);
    let synonym = SYNONYMS.iter().find(|(_, names)| names.contains(&name.as_str())).map(|(key, _)| *key);
    switch.or(synonym).map(str::to_owned).or_else(|| find_key(&name))
}

/// The value of the key of [`find_meant_key`] that `name` stands for, if another trainer's switch is called so, such as
/// `nf4` for `load_in_4bit`. `None` for any other name.
#[must_use]
pub fn find_meant_value(name: &str) -> Option<&'static str> {
    let name = normalize(name);
    SWITCHES.iter().find(|(switch, ..)| *switch == name).map(|(.., value)| *value)
}

/// Says what to do instead of setting `name`, a key of another trainer that no key of a run file stands for. `None` for
/// a name that is not known.
#[must_use]
pub fn find_advice(name: &str) -> Option<&'static str> {
    let name = normalize(name);
    ADVICE.iter().find(|(_, names)| is_named(names, &name)).map(|(advice, _)| *advice)
}

/// The hint about `value`, which the setting with the dotted key `key` cannot have: one of `known` that differs in case
/// and `_` alone, or what means the same as another trainer's `value`. `None` for any other value.
pub(crate) fn meant_choice_hint<'a>(
    key: &str,
    value: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let value = normalize(value);
    if let Some(same) = known.into_iter().find(|choice| normalize(choice) == value) {
        return Some(format!("did you mean `{same}`?"));
    }
    let (_, hints) = CHOICES.iter().find(|(setting, _)| *setting == key)?;
    hints.iter().find(|(_, names)| is_named(names, &value)).map(|(hint, _)| (*hint).to_owned())
}

/// Returns the hint about the unknown key `name` of the table with the dotted key `table` (empty for the whole file),
/// whose known keys are `properties`: the meant setting ([`find_meant_key`]), else what to do instead
/// ([`find_advice`]), else the most similar key of the table, else all its keys.
pub(super) fn unknown_key_hint(table: &str, name: &str, properties: &Map<String, Value>) -> String {
    if let Some(hint) = meant_key_hint(table, name).or_else(|| find_advice(name).map(str::to_owned)) {
        return hint;
    }
    let known: Vec<&str> = properties.keys().map(String::as_str).collect();
    match nearest(name, known.iter().copied()) {
        Some(similar) => format!("did you mean `{similar}`?"),
        None if table.is_empty() => suggest(name, &known, "tables"),
        None => suggest(name, &known, &format!("keys of `[{table}]`")),
    }
}

/// Returns the hint about `name`, a key that the table with the dotted key `table` does not have, if [`find_meant_key`]
/// knows which setting is meant. The hint names the table of that setting if it is another one, and the value that a
/// switch of another trainer stands for.
pub(crate) fn meant_key_hint(table: &str, name: &str) -> Option<String> {
    let key = find_meant_key(name)?;
    let (own, last) = key.rsplit_once('.')?;
    let setting = find_meant_value(name).map_or(last.to_owned(), |value| format!("{last} = \"{value}\""));
    Some(if own == table {
        format!("did you mean `{setting}`?")
    } else {
        format!("did you mean `{setting}` of `[{own}]`?")
    })
}

/// The hint about a `--set` argument that is not of the form `table.key=value`: the full key if the name alone was
/// given, else an example.
pub(super) fn override_hint(assignment: &str) -> String {
    let example = "for example `--set train.batch=2`";
    let Some((name, value)) = assignment.split_once('=').filter(|(name, _)| !name.is_empty() && !name.contains('.'))
    else {
        return example.into();
    };
    let name = name.trim();
    if let Some(key) = find_meant_key(name) {
        return format!("did you mean `--set {key}={}`?", find_meant_value(name).unwrap_or(value));
    }
    find_advice(name)
        .map_or_else(|| format!("{example}; a setting of the method is `--set method.{name}={value}`"), str::to_owned)
}

#[cfg(test)]
mod tests;
