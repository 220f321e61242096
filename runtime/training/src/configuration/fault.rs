//! What can be wrong with the settings of a run, and where it stands.

use tunebox_foundation::explain::{Explain, Snippet};
use tunebox_package::nearest::nearest;

use super::check::key_called;

/// A place in the run file, or the `--set` that brought a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spot {
    /// `run.toml:14:1`, or the `--set` as it was typed.
    pub place: String,
    /// The line with its number (from 1), the column (from 1) and the width to underline.
    pub line: Option<(usize, String, usize, usize)>,
}

impl Spot {
    /// Its line, with words after the mark.
    pub(crate) fn snippet(&self, note: Option<String>) -> Option<Snippet> {
        let (line, text, column, width) = self.line.clone()?;
        Some(Snippet { line, text, column, width, note })
    }
}

/// A wrong setting: what is wrong with it, and where.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct ConfigurationError {
    /// What is wrong.
    pub problem: Problem,
    /// Where, if it stands anywhere.
    pub spot: Option<Box<Spot>>,
}

/// What can be wrong with a setting.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file is not TOML.
    #[error("the run file is not valid TOML: {0}")]
    Syntax(String),
    /// A key that nothing reads.
    #[error("unknown key `{key}`")]
    UnknownKey {
        /// As written.
        key: String,
        /// `train`, or empty at the top.
        table: String,
        /// The keys that are read there.
        known: Vec<String>,
    },
    /// A value of another type.
    #[error("`{key}` is {found}, {expected} is wanted")]
    Type {
        /// Dotted.
        key: String,
        /// With its article: `a string`.
        found: String,
        /// Likewise.
        expected: String,
    },
    /// A number outside its range.
    #[error("`{key}` is {value}, it must be {range}")]
    Range {
        /// Dotted.
        key: String,
        /// As read.
        value: String,
        /// In words: `at least 1 and at most 4096`.
        range: String,
    },
    /// A text that is none of those offered.
    #[error("`{key}` cannot be `{value}`")]
    Choice {
        /// Dotted.
        key: String,
        /// As read.
        value: String,
        /// What it can be.
        choices: Vec<String>,
    },
    /// A required key that is not there.
    #[error("`{key}` is missing")]
    Missing {
        /// Dotted.
        key: String,
    },
    /// A `--set` that is not `key=value`.
    #[error("`--set {0}` is not of the form `table.key=value`")]
    Override(String),
    /// Settings that are right one by one and do not go together.
    #[error("{what}")]
    Conflict {
        /// The clash.
        what: String,
        /// What to do.
        hint: String,
    },
    /// A setting that the method refuses; the method's own words.
    #[error("{what}")]
    Method {
        /// The refusal.
        what: String,
        /// Why, if known.
        why: Option<String>,
        /// What to do, if known.
        hint: Option<String>,
    },
}

impl Explain for ConfigurationError {
    fn category(&self) -> &'static str {
        "config"
    }

    fn location(&self) -> Option<String> {
        self.spot.as_ref().map(|spot| spot.place.clone())
    }

    fn snippet(&self) -> Option<Snippet> {
        self.spot.as_ref()?.snippet(self.problem.note())
    }

    fn why(&self) -> Option<String> {
        match &self.problem {
            Problem::Method { why, .. } => why.clone(),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match &self.problem {
            Problem::UnknownKey { key, table, known } => Some(unknown_hint(key, table, known)),
            Problem::Choice { value, choices, .. } => Some(choice_hint(value, choices)),
            Problem::Missing { key } => Some(missing_hint(key)),
            Problem::Override(written) => Some(override_hint(written)),
            Problem::Conflict { hint, .. } => Some(hint.clone()),
            Problem::Method { hint, .. } => hint.clone(),
            Problem::Type { key, found, .. } if found == "text" => table_hint(key),
            Problem::Syntax(_) | Problem::Type { .. } | Problem::Range { .. } => None,
        }
    }
}

impl Problem {
    /// The words after the caret.
    fn note(&self) -> Option<String> {
        match self {
            Self::UnknownKey { table, .. } if table.is_empty() => Some("not a table of a run file".into()),
            Self::UnknownKey { table, .. } => Some(format!("not a key of `[{table}]`")),
            Self::Type { expected, .. } => Some(format!("{expected} is wanted")),
            _ => None,
        }
    }
}

fn unknown_hint(key: &str, table: &str, known: &[String]) -> String {
    let place = if table.is_empty() { "tables".to_owned() } else { format!("keys of `[{table}]`") };
    let list = known.join(", ");
    match nearest(key, known.iter().map(String::as_str)) {
        Some(name) => format!("did you mean `{name}`? ({place}: {list})"),
        None => format!("{place}: {list}"),
    }
}

fn choice_hint(value: &str, choices: &[String]) -> String {
    let list = choices.join(", ");
    match nearest(value, choices.iter().map(String::as_str)) {
        Some(name) => format!("did you mean `{name}`? (it can be: {list})"),
        None => format!("it can be: {list}"),
    }
}

fn override_hint(written: &str) -> String {
    let example = "for example `--set train.batch=2`";
    let Some((name, value)) = written.split_once('=').filter(|(name, _)| !name.is_empty() && !name.contains('.'))
    else {
        return example.into();
    };
    match key_called(name.trim()) {
        Some(key) => format!("did you mean `--set {key}={value}`?"),
        None => format!("{example}; a setting of the method is `--set method.{}={value}`", name.trim()),
    }
}

/// How a table is written of which the first thing alone was, as in `method = "lora"`.
fn table_hint(table: &str) -> Option<String> {
    let first = match table {
        "method" => "use",
        "model" | "data" => "path",
        _ => return None,
    };
    Some(format!("write `[{table}]`, and `{first} = …` on a line below it"))
}

fn missing_hint(key: &str) -> String {
    match key {
        "model.path" => "name a model folder, a `.gguf` file or a hub name: `--model PATH`".into(),
        "data.path" => "name a JSONL file: `--data FILE`".into(),
        "method.use" => "name a method: `--method lora`, a method folder or a `.wasm` file".into(),
        _ => format!("add it to the run file, or give `--set {key}=…`"),
    }
}
