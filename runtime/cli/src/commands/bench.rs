//! `tunebox bench`: how fast this machine trains, scores and writes, beside what its plain products reach.

mod report;

use std::path::Path;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde_json::json;
use tunebox_package::Reference;
use tunebox_training::{BenchSettings, Phase, StoredAs, bench};

use super::trust::Trusting;
use super::{Ending, Outcome};
use crate::arguments::Global;
use crate::terminal::Terminal;

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// A model: folder, `.gguf` file, or hub name; without one, the tiny model that comes with tunebox
    #[arg(long)]
    model: Option<String>,
    /// Store the base's weights in this precision first, or for `nf4` quantise them while they are read; as in the model's
    /// files without it
    #[arg(long, value_parser = stored_as())]
    precision: Option<StoredAs>,
    /// Measure only this part; may be given several times
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// A method that learns from rows of tokens
    #[arg(long, default_value = "lora")]
    method: String,
    /// Records of a step
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// Tokens of a row, all of them learned from; of a prompt half, its completions get the rest
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(2..=131_072))]
    sequence: u32,
    /// The rank of the adapter
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    rank: u32,
    /// Steps that are timed, after one that is not
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    steps: u32,
    /// Completions written side by side, each after a prompt of its own; may be given several times
    #[arg(
        long,
        value_name = "COUNT",
        default_values_t = [1, 16],
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=32)
    )]
    prompts: Vec<u32>,
    /// Tokens of such a prompt
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=131_072))]
    prompt_tokens: u32,
    /// Tokens of such a completion, each the likeliest; its speed is that of all but the first
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=131_072))]
    new_tokens: u32,
    /// `cpu`, `cuda[:n]`, `metal` or `auto`
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Sets a key of the run, as in `verifier.0.use=text`, which methods that let the model write need
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Measure a method or verifier that is not built in as well, inside this process; for those you trust
    #[arg(long)]
    in_process: bool,
}

/// A part of what can be measured.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    /// Steps of a run: tokens a second, memory, the share of what plain products reach
    Training,
    /// Rows scored without learning
    Scoring,
    /// Completions written by the likeliest token
    Generation,
    /// Opening the model; checking, compiling and instantiating the method
    StartUp,
    /// What the sandbox takes of the steps
    Overhead,
}

impl From<Part> for Phase {
    fn from(part: Part) -> Self {
        match part {
            Part::Training => Self::Training,
            Part::Scoring => Self::Scoring,
            Part::Generation => Self::Generation,
            Part::StartUp => Self::StartUp,
            Part::Overhead => Self::Overhead,
        }
    }
}

/// Reads how weights are stored.
fn stored_as() -> impl TypedValueParser<Value = StoredAs> {
    PossibleValuesParser::new(StoredAs::WORDS.map(|(word, _)| word)).try_map(|given| {
        let known = StoredAs::WORDS.into_iter().find(|(word, _)| *word == given);
        known.map(|(_, stored)| stored).ok_or("not a way to store weights")
    })
}

impl Bench {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        // What cannot be found is told by the benchmark itself.
        if let Ok(found) = Reference::parse(&self.method, Path::new(".")) {
            Trusting::default().settle_one(terminal, &found)?;
        }
        let settings = BenchSettings {
            model: self.model,
            precision: self.precision,
            only: self.only.into_iter().map(Phase::from).collect(),
            method: self.method,
            batch: self.batch,
            sequence: self.sequence,
            rank: self.rank,
            steps: self.steps,
            prompts: self.prompts,
            prompt_tokens: self.prompt_tokens,
            new_tokens: self.new_tokens,
            device: self.device,
            set: self.set,
            offline: global.offline,
            in_process: self.in_process,
        };
        let measured = bench(&settings, &mut |what| terminal.say("Timing", what))?;
        if terminal.json {
            terminal.object(json!(measured));
        } else {
            report::show(terminal, &measured, settings.steps);
        }
        Ok(Ending::Done)
    }
}
