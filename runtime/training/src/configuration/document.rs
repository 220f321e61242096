//! A run file as a tree of values that remembers where each one stood.
//!
//! `--set` writes into the same tree, so both go through the same checks. What the values
//! mean is left to the check and the tables.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use super::fault::{ConfigurationError, Problem, Spot};

/// Parts of the longest key that `--set` takes: far more than any setting has, far less than TOML reads back.
const DEEPEST: usize = 16;

/// A tree of settings with the place of each.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Document {
    /// The file as the person named it; empty when there is none.
    name: String,
    text: String,
    /// The values, tables within tables.
    pub(super) tree: Map<String, Value>,
    #[serde(with = "entries")]
    spans: BTreeMap<Vec<String>, (Range<usize>, Range<usize>)>,
    #[serde(with = "entries")]
    overrides: BTreeMap<Vec<String>, String>,
}

/// A map as a list of its entries, since keys of JSON are text.
mod entries {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'a, K: Deserialize<'a> + Ord, V: Deserialize<'a>, D: Deserializer<'a>>(
        deserializer: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}

/// Which half of `key = value` a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The key.
    Key,
    /// The value.
    Value,
}

impl Document {
    /// Reads TOML text; `name` is what messages call it.
    ///
    /// # Errors
    /// Text that is not TOML, and numbers that are not numbers, with the place.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigurationError> {
        let mut document = Self { name: name.to_owned(), text: text.to_owned(), ..Self::default() };
        let table = DeTable::parse(text).map_err(|error| {
            let spot = error.span().map(|span| Box::new(document.spot_of(&span)));
            ConfigurationError { problem: Problem::Syntax(error.message().trim().replace('\n', ", ")), spot }
        })?;
        document.tree = document.take_table(&[], table.get_ref())?;
        Ok(document)
    }

    /// Applies one `--set table.key=value`. The value is TOML, or plain text when it is not.
    ///
    /// # Errors
    /// When there is no `=` or no key.
    pub fn set(&mut self, assignment: &str) -> Result<(), ConfigurationError> {
        let wrong = || ConfigurationError { problem: Problem::Override(assignment.to_owned()), spot: None };
        let (key, value) = assignment.split_once('=').ok_or_else(wrong)?;
        let path: Vec<String> = key.trim().split('.').map(|part| part.trim().to_owned()).collect();
        if !(2..=DEEPEST).contains(&path.len()) || path.iter().any(String::is_empty) {
            return Err(wrong());
        }
        let value = loose_value(value.trim());
        insert(&mut self.tree, &path, value).ok_or_else(wrong)?;
        self.spans.remove(&path);
        self.overrides.insert(path, assignment.to_owned());
        Ok(())
    }

    /// Where a key or its value stands: in the file, or in a `--set`.
    #[must_use]
    pub fn spot(&self, path: &[String], half: Half) -> Option<Spot> {
        if let Some(assignment) = self.overridden(path) {
            return Some(Spot { place: format!("`--set {assignment}`"), line: None });
        }
        match self.spans.get(path) {
            Some((key, value)) => Some(self.spot_of(if half == Half::Key { key } else { value })),
            None if self.name.is_empty() => None,
            None => Some(Spot { place: self.name.clone(), line: None }),
        }
    }

    /// Whether a value came from a `--set`, so that a path in it starts at the present folder.
    #[must_use]
    pub fn is_override(&self, path: &[String]) -> bool {
        self.overridden(path).is_some()
    }

    /// Whether a `--set` gave a key or something below it.
    pub(super) fn overrides_within(&self, path: &[String]) -> bool {
        self.overrides.keys().any(|known| known.starts_with(path))
    }

    /// Forgets what the file says of a table's key.
    pub(super) fn forget(&mut self, table: &str, key: &str) {
        if let Some(table) = self.tree.get_mut(table).and_then(Value::as_object_mut) {
            table.shift_remove(key);
        }
    }

    fn overridden(&self, path: &[String]) -> Option<&String> {
        // A wrong key inside a table that a `--set` brought belongs to that `--set`.
        (1..=path.len()).rev().find_map(|length| self.overrides.get(&path[..length])).or_else(|| {
            let below = |known: &&Vec<String>| known.starts_with(path) && !self.spans.contains_key(path);
            self.overrides.keys().find(below).and_then(|key| self.overrides.get(key))
        })
    }

    fn spot_of(&self, span: &Range<usize>) -> Spot {
        let start = span.start.min(self.text.len());
        let before = self.text.get(..start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let text = self.text.get(begin..).unwrap_or_default().lines().next().unwrap_or_default().to_owned();
        let column = before.get(begin..).unwrap_or_default().chars().count() + 1;
        let covered = self.text.get(start..span.end.max(start)).unwrap_or_default();
        let width = covered.lines().next().unwrap_or_default().chars().count().max(1);
        Spot { place: format!("{}:{line}:{column}", self.name), line: Some((line, text, column, width)) }
    }

    fn take_table(&mut self, above: &[String], table: &DeTable<'_>) -> Result<Map<String, Value>, ConfigurationError> {
        let mut map = Map::new();
        for (key, value) in table {
            let mut path = above.to_vec();
            path.push(key.get_ref().to_string());
            self.spans.insert(path.clone(), (key.span(), value.span()));
            map.insert(key.get_ref().to_string(), self.take(&path, value.get_ref())?);
        }
        Ok(map)
    }

    fn take(&mut self, path: &[String], value: &DeValue<'_>) -> Result<Value, ConfigurationError> {
        Ok(match value {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(truth) => Value::Bool(*truth),
            DeValue::Datetime(time) => Value::String(time.to_string()),
            DeValue::Table(table) => Value::Object(self.take_table(path, table)?),
            DeValue::Array(items) => {
                let mut values = Vec::with_capacity(items.len());
                for (number, item) in items.iter().enumerate() {
                    // A list of tables knows the place of each; of other lists one place is enough.
                    let inside =
                        matches!(item.get_ref(), DeValue::Table(_)).then(|| [path, &[number.to_string()]].concat());
                    if let Some(inside) = &inside {
                        self.spans.insert(inside.clone(), (item.span(), item.span()));
                    }
                    values.push(self.take(inside.as_deref().unwrap_or(path), item.get_ref())?);
                }
                Value::Array(values)
            }
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => number.into(),
                Err(_) => return Err(self.out_of_range(path, number.as_str(), "a whole number of 64 bits")),
            },
            DeValue::Float(number) => match number.as_str().parse().ok().and_then(serde_json::Number::from_f64) {
                Some(number) => Value::Number(number),
                None => return Err(self.out_of_range(path, number.as_str(), "a finite number")),
            },
        })
    }

    fn out_of_range(&self, path: &[String], value: &str, range: &str) -> ConfigurationError {
        let problem = Problem::Range { key: path.join("."), value: value.to_owned(), range: range.to_owned() };
        ConfigurationError { problem, spot: self.spot(path, Half::Value).map(Box::new) }
    }
}

/// A value typed on the command line: TOML where it reads as TOML, else the text itself.
fn loose_value(text: &str) -> Value {
    let line = format!("value = {text}");
    Document::parse("", &line).ok().and_then(|mut document| document.tree.remove("value")).unwrap_or(Value::from(text))
}

/// Puts a value at a path; `None` when the way leads through something that is no table.
fn insert(tree: &mut Map<String, Value>, path: &[String], value: Value) -> Option<()> {
    let (first, rest) = path.split_first()?;
    if rest.is_empty() {
        tree.insert(first.clone(), value);
        return Some(());
    }
    let listed = rest.len() > 1 && rest[0].parse::<usize>().is_ok();
    let empty = || if listed { Value::Array(Vec::new()) } else { Value::Object(Map::new()) };
    match (tree.entry(first.clone()).or_insert_with(empty), rest) {
        (Value::Array(items), [place, rest @ ..]) if !rest.is_empty() => {
            let place = place.parse::<usize>().ok()?;
            if place == items.len() {
                items.push(Value::Object(Map::new()));
            }
            insert(items.get_mut(place)?.as_object_mut()?, rest, value)
        }
        (next, rest) => insert(next.as_object_mut()?, rest, value),
    }
}
