//! A run file as a tree of values, with the position of each in the text.
//!
//! `--set` writes into the same tree, so both pass the same checks. What the values mean is left to `check` and
//! `tables`.

use std::collections::BTreeMap;
use std::iter::successors;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};
use tunebox_foundation::explain::{Explanation, Snippet};

use super::names::override_hint;
use super::problems::{Problem, add_problem};
use crate::error::Error;

/// The most parts of a key in `--set`: far more than any setting has, far fewer than the TOML parser accepts.
const MAX_DEPTH: usize = 16;

/// A tree of settings with the position of each.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Document {
    /// The file as the user named it; empty without a file.
    name: String,
    text: String,
    /// The values, tables within tables; null if there are none.
    pub(super) tree: Value,
    /// Byte ranges of key and value in `text`, by dotted key.
    spans: BTreeMap<String, (Range<usize>, Range<usize>)>,
    /// The `--set` arguments as typed, by dotted key.
    overrides: BTreeMap<String, String>,
    /// The numbers that cannot be read; the tree has null in their place.
    #[serde(skip)]
    pub(super) unreadable: Vec<Problem>,
}

/// The part of `key = value` that an error message underlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Underline {
    /// The key.
    Key,
    /// The value.
    Value,
}

/// The position of a setting in the run file, or the `--set` that gave it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingLocation {
    /// `run.toml:14:1`, the name of the file for a key that is not in it, or the `--set` as typed.
    pub text: String,
    /// The line in the file, if the setting is there.
    pub snippet: Option<Snippet>,
}

impl Document {
    /// Parses the text of a run file and records the position of every key; messages call the file `name`. Empty text
    /// is an empty document. Numbers outside `i64` or not finite become null, and problems that the check of the
    /// document reports.
    ///
    /// # Errors
    /// Text that is not TOML, with its location.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let mut document = Self { name: name.to_owned(), text: text.to_owned(), ..Self::default() };
        let table = DeTable::parse(text).map_err(|error| {
            let message = error.message().trim().replace('\n', ", ");
            let problem = Explanation::new("config", format!("the run file is not valid TOML: {message}"));
            let is_other = [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending));
            let hint = || "a run file is TOML; `tunebox init` writes one".to_owned();
            let problem = Explanation { hint: is_other.then(hint), ..problem };
            locate_error(problem, error.span().map(|span| document.location_of(&span)), None)
        })?;
        document.tree = Value::Object(document.read_table("", table.get_ref()));
        Ok(document)
    }

    /// Applies one `--set table.key=value`, replacing an earlier value of the key, and records that a `--set` gave the
    /// key, which forgets the key's position in the file. Checks nothing else of key and value. The value is TOML, or
    /// plain text if it does not parse as TOML. Removes spaces around the key's parts and the value.
    ///
    /// # Errors
    /// An assignment without `=`, or whose key (all before the first `=`) has fewer than 2 or more than 16 parts, an
    /// empty part, or leads through a value that is neither table nor list, or past the end of a list.
    pub fn set(&mut self, assignment: &str) -> Result<(), Error> {
        let malformed = || {
            let what = format!("`--set {assignment}` is not of the form `table.key=value`");
            Explanation::new("config", what).with_hint(override_hint(assignment))
        };
        let (key, value) = assignment.split_once('=').ok_or_else(malformed)?;
        let path: Vec<String> = key.trim().split('.').map(|part| part.trim().to_owned()).collect();
        if !(2..=MAX_DEPTH).contains(&path.len()) || path.iter().any(String::is_empty) {
            return Err(malformed().into());
        }
        insert_at_path(&mut self.tree, &path, parse_value(value.trim())).ok_or_else(malformed)?;
        self.spans.remove(&path.join("."));
        self.overrides.insert(path.join("."), assignment.to_owned());
        Ok(())
    }

    /// Returns the location of a dotted key, or of its value with [`Underline::Value`]: the `--set` that gave the key
    /// if one did, else the position in the file. A key that is not in the file gets the file's name alone; `None`
    /// without a file.
    #[must_use]
    pub fn location(&self, key: &str, underline: Underline) -> Option<SettingLocation> {
        if let Some(assignment) = self.find_override(key) {
            return Some(SettingLocation { text: format!("`--set {assignment}`"), snippet: None });
        }
        match self.spans.get(key) {
            Some((key, value)) => Some(self.location_of(if underline == Underline::Key { key } else { value })),
            None if self.name.is_empty() => None,
            None => Some(SettingLocation { text: self.name.clone(), snippet: None }),
        }
    }

    /// Turns a problem with a dotted key into an error with the key's location; `note` stands beside the underlined
    /// text.
    pub(super) fn error(&self, key: &str, underline: Underline, problem: Explanation, note: Option<String>) -> Error {
        locate_error(problem, self.location(key, underline), note)
    }

    /// Whether a `--set` gave a dotted key, a table above it, or, for a table that is not in the file, a key below it.
    /// A path that a `--set` gave is relative to the current folder.
    #[must_use]
    pub fn is_override(&self, key: &str) -> bool {
        self.find_override(key).is_some()
    }

    /// Whether a `--set` gave the dotted key `key` or a key below it.
    pub(super) fn has_override_within(&self, key: &str) -> bool {
        self.overrides.keys().any(|known| is_key_within(known, key))
    }

    /// Removes the value at the dotted key `key`, which may lead through the items of lists; its position in the file
    /// stays. Does nothing if it does not exist.
    pub(super) fn remove(&mut self, key: &str) {
        let (table, last) = key.rsplit_once('.').unwrap_or(("", key));
        if let Some(Value::Object(table)) = self.value_mut(table) {
            table.shift_remove(last);
        }
    }

    /// Gives the text "" to the dotted key `key`, and creates the tables above it that are missing. Does nothing if the
    /// key leads through another value than a table or list.
    pub(super) fn insert_text(&mut self, key: &str) {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        let _ = insert_at_path(&mut self.tree, &path, "".into());
    }

    /// The value at the dotted key `key`, which may lead through the items of lists; the whole tree for an empty key.
    fn value_mut(&mut self, key: &str) -> Option<&mut Value> {
        let pointer = if key.is_empty() { String::new() } else { format!("/{}", key.replace('.', "/")) };
        self.tree.pointer_mut(&pointer)
    }

    /// The `--set` argument that gave a key, a table above it, or, for a table that is not in the file, a key below it.
    /// `None` if no `--set` did.
    fn find_override(&self, key: &str) -> Option<&String> {
        let above = successors(Some(key), |key| key.rsplit_once('.').map(|(table, _)| table));
        above.into_iter().find_map(|key| self.overrides.get(key)).or_else(|| {
            let mut below = self.overrides.iter().filter(|(known, _)| is_key_within(known, key));
            below.next().filter(|_| !self.spans.contains_key(key)).map(|(_, assignment)| assignment)
        })
    }

    /// Converts a byte range of the text to a location: line and column (from 1, in characters), with the line for the
    /// message.
    fn location_of(&self, span: &Range<usize>) -> SettingLocation {
        let snippet = Snippet::of(&self.text, span);
        let text = format!("{}:{}:{}", self.name, snippet.line, snippet.column);
        SettingLocation { text, snippet: Some(snippet) }
    }

    /// Converts a TOML table to JSON and records the position of every key in it. `above` is the table's dotted key.
    fn read_table(&mut self, above: &str, table: &DeTable<'_>) -> Map<String, Value> {
        let mut map = Map::new();
        for (key, value) in table {
            let path = join_key(above, key.get_ref());
            self.spans.insert(path.clone(), (key.span(), value.span()));
            map.insert(key.get_ref().to_string(), self.read_value(&path, value.get_ref()));
        }
        map
    }

    /// Converts the TOML value at the dotted key `path` to JSON. Dates and times become text. Records the position of
    /// every key in a table, and of every table in a list under its number in the list (from 0). A number outside `i64`
    /// or not finite becomes null and a problem.
    fn read_value(&mut self, path: &str, value: &DeValue<'_>) -> Value {
        match value {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(truth) => Value::Bool(*truth),
            DeValue::Datetime(time) => Value::String(time.to_string()),
            DeValue::Table(table) => Value::Object(self.read_table(path, table)),
            DeValue::Array(items) => {
                let mut values = Vec::with_capacity(items.len());
                for (number, item) in items.iter().enumerate() {
                    // The tables of a list have a span each; the other items share that of the list.
                    let is_table = matches!(item.get_ref(), DeValue::Table(_));
                    let inside = if is_table { join_key(path, &number.to_string()) } else { path.to_owned() };
                    if is_table {
                        self.spans.insert(inside.clone(), (item.span(), item.span()));
                    }
                    values.push(self.read_value(&inside, item.get_ref()));
                }
                Value::Array(values)
            }
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => number.into(),
                Err(_) => self.add_unreadable(path, number.as_str(), "a whole number of 64 bits"),
            },
            DeValue::Float(number) => match number.as_str().parse().ok().and_then(serde_json::Number::from_f64) {
                Some(number) => Value::Number(number),
                None => self.add_unreadable(path, number.as_str(), "a finite number"),
            },
        }
    }

    /// Adds the problem of the number `value` at the dotted key `path`, which must be `range`. Returns null.
    fn add_unreadable(&mut self, path: &str, value: &str, range: &str) -> Value {
        let explanation = Explanation::new("config", format!("`{path}` is {value}, it must be {range}"));
        let problem = Problem { key: path.to_owned(), underline: Underline::Value, explanation, note: None };
        add_problem(&mut self.unreadable, problem);
        Value::Null
    }
}

/// Joins two parts of a dotted key: `table.key`, or the key alone if `table` is empty.
pub(super) fn join_key(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

/// Whether the dotted key `key` is `table` itself or below it: `train.adapter` is below `train`, `training` is not.
fn is_key_within(key: &str, table: &str) -> bool {
    key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Adds a location, if there is one, to a problem and returns it as an error. `note`, the text beside the underlined
/// part, is added only if the location has a line of the file.
fn locate_error(problem: Explanation, location: Option<SettingLocation>, note: Option<String>) -> Error {
    let Some(SettingLocation { text, snippet }) = location else { return problem.into() };
    let snippet = snippet.map(|snippet| Snippet { note, ..snippet });
    Explanation { snippet, ..problem.with_location(text) }.into()
}

/// Parses a value typed on the command line as TOML; if that fails, or a number in it cannot be read, the text itself
/// is the value.
fn parse_value(text: &str) -> Value {
    let parsed = Document::parse("", &format!("value = {text}")).ok();
    let readable = parsed.filter(|document| document.unreadable.is_empty());
    readable.map_or_else(|| text.into(), |mut document| document.tree["value"].take())
}

/// Inserts a value at a path into the tree in place of any present value, and creates missing tables and list items. A
/// part of the path that is a number, neither the first nor the last, is an index into a list; the list's length as
/// index appends an item. Returns `None` without inserting the value if the path leads through a value that is neither
/// table nor list, or further past the end of a list; tables created on the way stay.
fn insert_at_path(tree: &mut Value, path: &[String], value: Value) -> Option<()> {
    let mut at = tree;
    for (depth, part) in path.iter().enumerate() {
        let index = part.parse::<usize>().ok().filter(|_| depth > 0 && depth + 1 < path.len());
        if at.is_null() {
            *at = if index.is_some() { Value::Array(Vec::new()) } else { Value::Object(Map::new()) };
        }
        at = match (at, index) {
            (Value::Array(items), Some(index)) => {
                if index == items.len() {
                    items.push(Value::Null);
                }
                items.get_mut(index)?
            }
            (Value::Object(table), _) => table.entry(part.clone()).or_insert(Value::Null),
            _ => return None,
        };
    }
    *at = value;
    Some(())
}
