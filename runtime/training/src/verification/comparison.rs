//! Compares a run's `run.lock` with the lock that the run would have now, value by value; and the metrics of two runs.

use std::path::Path;

use serde_json::{Map, Value as Json};
use toml::{Table, Value};

use crate::error::Error;
use crate::metrics;

/// Stands for a value that one of two compared locks lacks.
pub(super) const ABSENT: &str = "absent";

/// A value that a run recorded, and the value found now.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Comparison {
    /// A key of the lock, such as `model.sha256`, or the name of a file.
    pub what: String,
    /// The recorded value.
    pub recorded: String,
    /// The present value.
    pub found: String,
}

impl Comparison {
    /// Whether the recorded and the present value are the same text.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.recorded == self.found
    }
}

/// Compares the values below the top-level `keys` of two locks: first those of `recorded` in its order, then those that
/// only `found` has. A value that one lock lacks is `absent` there. Ignores the keys `name`, `source` and `revised` of
/// tables.
pub(super) fn compare(recorded: &Table, found: &Table, keys: &[&str]) -> Vec<Comparison> {
    let (mut then, mut now) = (Vec::new(), Vec::new());
    for key in keys {
        recorded.get(*key).into_iter().for_each(|value| append_leaves(key, value, &mut then));
        found.get(*key).into_iter().for_each(|value| append_leaves(key, value, &mut now));
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

/// Appends the values below `value` to `into` as (dotted key, text), where `name` is the key of `value`. Skips the keys
/// `name`, `source` and `revised`. Items of a list of tables are numbered from 0; other lists are one value.
pub(crate) fn append_leaves(name: &str, value: &Value, into: &mut Vec<(String, String)>) {
    match value {
        Value::Table(table) => {
            // Names, sources and former versions may differ; the digests tell whether the content does.
            let compared = table.iter().filter(|(key, _)| !["name", "source", "revised"].contains(&key.as_str()));
            compared.for_each(|(key, value)| append_leaves(&format!("{name}.{key}"), value, into));
        }
        Value::Array(items) if items.iter().any(Value::is_table) => {
            items.iter().enumerate().for_each(|(at, value)| append_leaves(&format!("{name}.{at}"), value, into));
        }
        Value::String(value) => into.push((name.to_owned(), value.clone())),
        other => into.push((name.to_owned(), other.to_string())),
    }
}

/// Finds the first metric that differs between two runs, given by their folders, row by row. A metric that one row
/// lacks differs. If all rows that both have are equal and one run has more, returns the numbers of rows; `None` if
/// there is no difference. Ignores metrics with `second` in their name (times), and the rows about used limits, which
/// each process of a run writes anew. Fails if the metrics of a run cannot be read.
pub(super) fn first_difference(recorded: &Path, found: &Path) -> Result<Option<Comparison>, Error> {
    let is_compared = |(name, _): &(&String, &Json)| !name.contains("second");
    let read_rows = |run: &Path| -> Result<Vec<_>, Error> {
        Ok(metrics::read_rows(&run.join(metrics::FILE))?.into_iter().filter(|row| !row.contains_key("used")).collect())
    };
    let (then, now) = (read_rows(recorded)?, read_rows(found)?);
    for (row, again) in then.iter().zip(&now) {
        let step = row.get("step").map_or_else(String::new, |step| format!(" of step {step}"));
        let missing = again.iter().filter(is_compared).find(|(name, _)| !row.contains_key(*name));
        let changed = row.iter().filter(is_compared).find(|(name, value)| again.get(*name) != Some(value));
        if let Some((name, _)) = changed.or(missing) {
            let number = |row: &Map<String, Json>| row.get(name).map_or("absent".to_owned(), Json::to_string);
            return Ok(Some(Comparison { what: format!("{name}{step}"), recorded: number(row), found: number(again) }));
        }
    }
    let lines = |count: usize| format!("{count} line{}", if count == 1 { "" } else { "s" });
    let longer = Comparison { what: metrics::FILE.into(), recorded: lines(then.len()), found: lines(now.len()) };
    Ok(Some(longer).filter(|longer| !longer.is_same()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_that_differs_is_found_and_times_are_not() {
        let run = |lines: &str| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(metrics::FILE), lines).unwrap();
            folder
        };
        let one = run("{\"step\":1,\"loss\":2.5,\"seconds\":1.0}\n{\"step\":2,\"loss\":2.25}\n");
        let slower = run("{\"step\":1,\"loss\":2.5,\"seconds\":9.0}\n{\"step\":2,\"loss\":2.25}\n");
        let other = run("{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":2.2500000000000004}\n");
        let shorter = run("{\"step\":1,\"loss\":2.5}\n");
        let found = |folder: &tempfile::TempDir| first_difference(one.path(), folder.path()).unwrap();

        assert_eq!(found(&slower), None);
        assert_eq!(found(&other).unwrap().what, "loss of step 2");
        assert_eq!(found(&shorter).unwrap().found, "1 line");
    }
}
