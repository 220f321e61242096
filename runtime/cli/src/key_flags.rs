//! Flags that are short forms of `--set`: one table from the flag to the key of the run file, whose description is the
//! help.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use serde_json::Value;
use tunebox_training::configuration::key_schema;

use crate::terminal::Failure;

/// A flag that sets a key of the run file.
#[derive(Debug)]
struct KeyFlag {
    /// The flag, without the hyphens.
    name: &'static str,
    /// Another name of the flag, without the hyphens.
    alias: Option<&'static str>,
    /// The dotted key, such as `train.adapter.rank`.
    key: &'static str,
    /// The placeholder of its value in the help.
    value: &'static str,
}

/// Every flag that sets a key.
const FLAGS: [KeyFlag; 10] = [
    KeyFlag { name: "epochs", alias: None, key: "train.epochs", value: "N" },
    KeyFlag { name: "steps", alias: None, key: "train.steps", value: "N" },
    KeyFlag { name: "rate", alias: Some("lr"), key: "train.rate", value: "RATE" },
    KeyFlag { name: "rank", alias: None, key: "train.adapter.rank", value: "N" },
    KeyFlag { name: "batch", alias: None, key: "train.batch", value: "N" },
    KeyFlag { name: "max-length", alias: None, key: "data.max-length", value: "TOKENS" },
    KeyFlag { name: "validation", alias: None, key: "data.validation", value: "FILE|N" },
    KeyFlag { name: "seed", alias: None, key: "train.seed", value: "N" },
    KeyFlag { name: "out", alias: None, key: "run.folder", value: "FOLDER" },
    KeyFlag { name: "hourly-price", alias: None, key: "run.hourly-price", value: "PRICE" },
];

/// The given flags that set keys of the run file, in the order of [`FLAGS`], each with its value as typed.
#[derive(Debug, Default)]
pub(crate) struct KeyFlags(Vec<(&'static KeyFlag, String)>);

impl KeyFlags {
    /// Returns the first given flag in the order of [`FLAGS`], such as `--rate`; `None` if none is given.
    pub(crate) fn first(&self) -> Option<String> {
        self.0.first().map(|(flag, _)| format!("--{}", flag.name))
    }

    /// Translates the flags to `KEY=VALUE` overrides of a run file, followed by `set`, the arguments of `--set`. Fails
    /// if one of these gives the key of a flag, or a table that contains it.
    pub(crate) fn overrides(&self, set: &[String]) -> Result<Vec<String>, Failure> {
        for (flag, value) in &self.0 {
            let is_same = |assignment: &&String| {
                assignment.split_once('=').is_some_and(|(key, _)| is_key_or_table_of(key, flag.key))
            };
            if let Some(twice) = set.iter().find(is_same) {
                let what = format!("`--{} {value}` and `--set {twice}` give the same key", flag.name);
                return Err(Failure::usage(what, "leave one of them out"));
            }
        }
        Ok(self.0.iter().map(|(flag, value)| flag.assignment(value)).chain(set.iter().cloned()).collect())
    }
}

/// Whether `given`, the dotted key of a `--set`, is the key `key` or a table that contains it.
fn is_key_or_table_of(given: &str, key: &str) -> bool {
    let given: Vec<&str> = given.split('.').map(str::trim).collect();
    key.split('.').collect::<Vec<_>>().starts_with(&given)
}

/// Returns what was typed for a key that takes a number or a text as a TOML value: a number, also if it is written as
/// `.1`, else a quoted text.
pub(crate) fn number_or_text(typed: &str) -> String {
    let number = typed.parse().map(toml::Value::Integer).or_else(|_| typed.parse().map(toml::Value::Float));
    number.unwrap_or_else(|_| toml::Value::from(typed)).to_string()
}

impl KeyFlag {
    /// Returns the `KEY=VALUE` override for a value as typed, which is not checked here. If the key takes text, the
    /// value becomes a quoted TOML string, but a number for a key that takes either.
    fn assignment(&self, value: &str) -> String {
        let schema = key_schema(self.key);
        let value = match &schema["type"] {
            _ if schema["anyOf"].is_array() => number_or_text(value),
            kind if kind == "string" => toml::Value::from(value).to_string(),
            _ => value.to_owned(),
        };
        format!("{}={value}", self.key)
    }

    /// Returns the argument for clap. Its help is the description of the key in the schema, with the default if there
    /// is one.
    fn argument(&'static self) -> Arg {
        let schema = key_schema(self.key);
        let text = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
        let default = match &schema["default"] {
            Value::Null => String::new(),
            Value::String(text) => format!(" [default: {text}]"),
            other => format!(" [default: {other}]"),
        };
        let help = format!("{}{default}", text.trim_end_matches('.'));
        let argument = Arg::new(self.name).long(self.name).value_name(self.value).help(help);
        // A negative number is a value, which the check of the settings rejects with the range.
        argument.visible_aliases(self.alias).allow_hyphen_values(true)
    }
}

impl Args for KeyFlags {
    /// Adds an argument for every flag of [`FLAGS`].
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, flag| command.arg(flag.argument()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for KeyFlags {
    /// Collects the given flags in the order of [`FLAGS`], with their values as typed.
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |flag: &'static KeyFlag| Some((flag, matches.get_one::<String>(flag.name)?.clone()));
        Ok(Self(FLAGS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the flag that sets a dotted key of the run file, such as `--rate`; `None` if no flag does.
pub(crate) fn flag_of_key(key: &str) -> Option<String> {
    FLAGS.iter().find(|flag| flag.key == key).map(|flag| format!("--{}", flag.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(words: &str) -> KeyFlags {
        let command = KeyFlags::augment_args(Command::new("test").no_binary_name(true));
        KeyFlags::from_arg_matches(&command.try_get_matches_from(words.split(' ')).unwrap()).unwrap()
    }

    #[test]
    fn every_flag_sets_a_key_that_exists_and_has_its_description_as_help() {
        for flag in &FLAGS {
            assert!(key_schema(flag.key)["description"].is_string(), "`{}` does not exist", flag.key);
            assert!(!flag.argument().get_help().unwrap().to_string().is_empty());
        }
    }

    #[test]
    fn flags_become_overrides_before_those_of_set() {
        let given = flags("--steps 5 --lr 1e-4 --out my runs".replace("my runs", "a.b").as_str());
        let overrides = given.overrides(&["train.clip=2".to_owned()]).unwrap();
        assert_eq!(overrides, ["train.steps=5", "train.rate=1e-4", "run.folder=\"a.b\"", "train.clip=2"]);
        for (value, wanted) in [("0.1", "0.1"), (".1", "0.1"), ("200", "200"), ("held.csv", "\"held.csv\"")] {
            let given = flags(&format!("--validation {value}")).overrides(&[]).unwrap();
            assert_eq!(given, [format!("data.validation={wanted}")]);
        }
    }

    #[test]
    fn a_flag_and_a_set_of_the_same_key_are_refused() {
        for (words, set) in
            [("--rank 4", "train.adapter={rank=8}"), ("--rate=1", "train . rate = 2"), ("--seed 1", "train.seed=1")]
        {
            let failure = flags(words).overrides(&[set.to_owned()]).unwrap_err();
            assert!(failure.explanation.what.ends_with("give the same key"), "{}", failure.explanation.what);
        }
        assert!(flags("--rank 4").overrides(&["train.rank=8".to_owned()]).is_ok());
    }
}
