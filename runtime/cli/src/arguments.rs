//! The words of the command line that several commands share.

use std::path::PathBuf;

use clap::{Args, Parser};

use crate::commands::Command;

/// Train language models with methods that need not be trusted.
#[derive(Debug, Parser)]
#[command(name = "tunebox", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Line {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
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
