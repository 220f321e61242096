//! Arguments that several commands share.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::key_flags::KeyFlags;
use crate::package::trust::TrustOptions;
use crate::terminal::{Failure, Terminal};

/// The run file of a command that names none.
pub(crate) const RUN_FILE: &str = "run.toml";

/// Creates the parser of an option whose value is one of the words in `choices`, which are pairs of word and parsed
/// value. Any other word is an error, and help lists the words.
pub(crate) fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    choices: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(choices.clone().map(|(word, _)| word)).try_map(move |given| {
        let chosen = choices.iter().find(|(word, _)| *word == given);
        chosen.map(|(_, value)| value.clone()).ok_or("unknown word")
    })
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    #[command(flatten)]
    pub(crate) terminal: Terminal,
    /// Use no network
    #[arg(long, global = true)]
    pub(crate) offline: bool,
    /// Change to this folder first
    // With an explicit id, because the `folder` argument of a command would be taken for it.
    #[arg(short = 'C', id = "present-folder", global = true, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// Internal: this process is the child that carries the command out
    #[arg(long, hide = true, global = true)]
    pub(crate) supervised: bool,
}

/// The options of a run that set a key of the run file, each with the dotted key.
pub(crate) const OPTION_KEYS: [(&str, &str); 6] = [
    ("--model", "model.path"),
    ("--precision", "model.precision"),
    ("--data", "data.path"),
    ("--method", "method.use"),
    ("--name", "run.name"),
    ("--device", "train.device"),
];

/// Options that describe a run, shared by `train` and `dev`.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Train the bundled tiny model on bundled data: that of the method, or of the first built-in method for the same
    /// kind of records. `--data` replaces the data
    #[arg(long, conflicts_with = "run")]
    pub(crate) sample: bool,
    /// Model to train: a folder, a `.gguf` file or a hub name
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Training records: a JSON, JSONL, CSV, TSV or Parquet file, or a folder of them, also on the hub,
    /// `hf://datasets/owner/name`
    #[arg(long)]
    pub(crate) data: Option<String>,
    #[command(flatten)]
    pub(crate) keys: KeyFlags,
    /// Set a key of the run file, for example `train.clip=0.5`; `tunebox help run-file` lists the keys. Can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Name of the run's folder [default: the method's name and the next free number]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Device to compute on: `cpu`, `cuda[:n]`, `metal` or `auto`
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Resume a stopped run with the settings given: the one of `--name`, or the newest unfinished one. A run file in the
    /// folder of a run resumes that run. `dev` uses the method as it is now
    #[arg(long)]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) trust: TrustOptions,
}

impl RunOptions {
    /// Whether `--data` or a `--set` of `data.path` or `data.files` names the training data.
    pub(crate) fn has_data(&self) -> bool {
        let names_data = |set: &String| ["data.path", "data.files"].iter().any(|key| set.starts_with(key));
        self.data.is_some() || self.set.iter().any(names_data)
    }

    /// Translates the options, and the method and precision of the command, to `KEY=VALUE` overrides of a run file,
    /// with values as TOML strings. Options that were not given are left out. The overrides of `--set` come last,
    /// unchanged, and so take precedence. Fails if a flag that sets a key and a `--set` give the same key.
    pub(crate) fn overrides(&self, method: Option<String>, precision: Option<String>) -> Result<Vec<String>, Failure> {
        let keys = self.keys.overrides(&self.set)?;
        let (model, data) = (self.model.clone(), self.data.clone());
        // In the order of the keys.
        let values = [model, precision, data, method, self.name.clone(), self.device.clone()];
        let options = OPTION_KEYS.iter().zip(values);
        let given = options.filter_map(|((_, key), value)| Some((key, toml::Value::String(value?))));
        Ok(given.map(|(key, value)| format!("{key}={value}")).chain(keys).collect())
    }
}

/// How completions are sampled.
#[derive(Debug, Clone, Args)]
pub(crate) struct SamplingOptions {
    /// Maximum number of new tokens
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_tokens: u32,
    /// Sampling temperature; 0 always takes the most likely token
    #[arg(long, default_value_t = 0.0)]
    pub(crate) temperature: f32,
    /// Sample from the k most likely tokens; 0 means all
    #[arg(long, default_value_t = 0)]
    pub(crate) top_k: u32,
    /// Sample from the most likely tokens that together have this probability
    #[arg(long, default_value_t = 1.0)]
    pub(crate) top_p: f32,
    /// Sample from tokens with at least this fraction of the highest token probability
    #[arg(long, default_value_t = 0.0)]
    pub(crate) min_p: f32,
    /// Text that ends a completion. Can be repeated
    #[arg(long)]
    pub(crate) stop: Vec<String>,
    /// Random seed; the same seed gives the same completion
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
}
