//! The words of the command line that several commands share.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser};
use tunebox_training::configuration::key_called;

use crate::commands::{Command, help};
use crate::terminal::Terminal;

/// Train language models with methods that need not be trusted.
#[derive(Debug, Parser)]
#[command(name = "tunebox", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Line {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands that take keys of a run file by `--set`.
const SETTING: [&str; 4] = ["train", "run", "dev", "check"];

impl Line {
    /// Reads the command line as it was typed; ends the program where it cannot be understood, or asks for help.
    pub(crate) fn read() -> Self {
        let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        Self::try_parse().unwrap_or_else(|error| {
            if error.kind() == ErrorKind::DisplayHelp
                && let Some(settings) = help::settings(&words)
            {
                let _ = error.print();
                Terminal { json: false, quiet: false, verbose: false }.data(settings);
                std::process::exit(0);
            }
            advised(error, &words).exit()
        })
    }
}

/// The error of a flag that is a key of the run file, with how such a key is set.
fn advised(mut error: clap::Error, words: &[String]) -> clap::Error {
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if error.kind() == ErrorKind::UnknownArgument => flag.clone(),
        _ => return error,
    };
    let takes_keys = words.iter().any(|word| SETTING.contains(&word.as_str()));
    let Some(key) = flag.strip_prefix("--").filter(|_| takes_keys).and_then(key_called) else { return error };
    let after = words.iter().skip_while(|word| **word != flag).nth(1).filter(|word| !word.starts_with('-'));
    let joined = words.iter().find_map(|word| word.strip_prefix(&format!("{flag}=")));
    let value = joined.or(after.map(String::as_str)).unwrap_or("…");
    error.remove(ContextKind::SuggestedArg);
    let tip = format!("it is a key of the run file: '--set {key}={value}'");
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// One JSON object a line on stdout, each with `"schema": 1`
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing but errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
    /// Use no network
    #[arg(long, global = true)]
    pub(crate) offline: bool,
    /// Work as if started in this folder
    // An id of its own: the `folder` of a command would be taken for it.
    #[arg(short = 'C', id = "present-folder", global = true, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
}

/// How a model writes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Writing {
    /// New tokens at most
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_tokens: u32,
    /// 0 takes the likeliest token; higher is more varied
    #[arg(long, default_value_t = 0.0)]
    pub(crate) temperature: f32,
    /// Only the k likeliest tokens; 0 turns it off
    #[arg(long, default_value_t = 0)]
    pub(crate) top_k: u32,
    /// Only the likeliest tokens that hold this share of the probability
    #[arg(long, default_value_t = 1.0)]
    pub(crate) top_p: f32,
    /// Only tokens with at least this share of the likeliest one's probability
    #[arg(long, default_value_t = 0.0)]
    pub(crate) min_p: f32,
    /// End where this text appears; may be given several times
    #[arg(long)]
    pub(crate) stop: Vec<String>,
    /// Same seed, same answer
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        advised(Line::try_parse_from(&words).unwrap_err(), &words).to_string()
    }

    #[test]
    fn a_flag_that_is_a_key_of_the_run_file_is_told_how_to_set_it() {
        let wanted = "tip: it is a key of the run file: '--set train.steps=5'";
        assert!(told(&["tunebox", "train", "--sample", "--steps", "5"]).contains(wanted));
        assert!(told(&["tunebox", "train", "--sample", "--steps=5"]).contains(wanted));
        assert!(!told(&["tunebox", "list", "--steps", "5"]).contains("--set"));
        assert!(told(&["tunebox", "train", "--mehtod", "dpo"]).contains("'--method'"));
    }
}
