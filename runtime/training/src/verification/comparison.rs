//! What a lock says beside what it would say now, leaf by leaf.

use toml::{Table, Value};

/// What stands for a value that one side lacks.
pub(super) const ABSENT: &str = "absent";

/// One thing that was compared.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Comparison {
    /// What it is: a key of the lock, such as `model.sha256`, or a file.
    pub what: String,
    /// What the run wrote down.
    pub recorded: String,
    /// What was found now.
    pub found: String,
}

impl Comparison {
    /// Whether nothing changed.
    #[must_use]
    pub fn same(&self) -> bool {
        self.recorded == self.found
    }
}

/// The leaves of some keys, in the order of the lock; `absent` where one side lacks it.
pub(super) fn compare(recorded: &Table, found: &Table, keys: &[&str]) -> Vec<Comparison> {
    let (mut then, mut now) = (Vec::new(), Vec::new());
    for key in keys {
        recorded.get(*key).into_iter().for_each(|value| leaves(key, value, &mut then));
        found.get(*key).into_iter().for_each(|value| leaves(key, value, &mut now));
    }
    let other = |what: &String, side: &[(String, String)]| {
        side.iter().find(|(name, _)| name == what).map_or(ABSENT.to_owned(), |(_, value)| value.clone())
    };
    let added = now.iter().filter(|(what, _)| then.iter().all(|(known, _)| known != what));
    let both = then.iter().map(|(what, value)| (what, value.clone(), other(what, &now)));
    both.chain(added.map(|(what, value)| (what, ABSENT.to_owned(), value.clone())))
        .map(|(what, recorded, found)| Comparison { what: what.clone(), recorded, found })
        .collect()
}

fn leaves(name: &str, value: &Value, into: &mut Vec<(String, String)>) {
    match value {
        Value::Table(table) => {
            // Where things lie is no part of what they are, nor is what they were before; their digests are.
            let lasting = table.iter().filter(|(key, _)| !["name", "source", "revised"].contains(&key.as_str()));
            lasting.for_each(|(key, value)| leaves(&format!("{name}.{key}"), value, into));
        }
        Value::Array(items) if items.iter().any(Value::is_table) => {
            items.iter().enumerate().for_each(|(at, value)| leaves(&format!("{name}.{at}"), value, into));
        }
        Value::String(value) => into.push((name.to_owned(), value.clone())),
        other => into.push((name.to_owned(), other.to_string())),
    }
}
