//! The commands, one file each: arguments, then a few calls.

mod bench;
mod build;
mod chat;
mod check;
mod completions;
mod doctor;
mod eval;
mod generate;
mod inspect;
mod merge;
mod score;
mod steering;
mod subject;
mod train;
mod verify;
mod worker;

use clap::Subcommand;
use tunebox_compute::explain::Exit;

use crate::arguments::Global;
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

/// How a command ended, when it did not fail.
pub(crate) type Outcome = Result<Ending, Failure>;

/// What the exit code says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Done.
    Done,
    /// The work itself said no, or was interrupted.
    Exit(Exit),
}

/// What there is to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a model: one run, which ends with an artifact
    #[command(visible_alias = "run")]
    Train(Box<train::Train>),
    /// How good a model is on a data file, base beside adapted
    Eval(eval::Eval),
    /// Log-probabilities of texts, token by token
    Score(score::Score),
    /// One answer to a prompt
    Generate(generate::Generate),
    /// Talk to a model; `/compare` shows base and adapted side by side
    Chat(chat::Chat),
    /// Everything that can be known about a run without a step
    Check(check::Check),
    /// What a method is and what it may do, without running it
    Inspect(inspect::Inspect),
    /// Whether a finished run is what its lock says; `--replay` runs it again
    Verify(verify::Verify),
    /// How fast this machine trains, scores and writes, beside what its plain products reach
    Bench(bench::Bench),
    /// A component from a method folder
    Build(build::Build),
    /// Is this machine ready
    Doctor(doctor::Doctor),
    /// An adapter worked into the weights of its model; without one, the weights in another precision
    Merge(merge::Merge),
    /// A completion script for a shell
    Completions(completions::Completions),
    /// For tunebox itself: does a run in a process of its own
    #[command(hide = true)]
    Worker,
    /// For tunebox itself: compiles one component under limits
    #[command(hide = true)]
    CompileComponent,
}

impl Command {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        match self {
            Self::Train(command) => command.run(terminal, global),
            Self::Eval(command) => command.run(terminal, global),
            Self::Score(command) => command.run(terminal, global),
            Self::Generate(command) => command.run(terminal, global),
            Self::Chat(command) => command.run(terminal, global),
            Self::Check(command) => command.run(terminal, global),
            Self::Inspect(command) => command.run(terminal),
            Self::Verify(command) => command.run(terminal, global),
            Self::Bench(command) => command.run(terminal, global),
            Self::Build(command) => command.run(terminal),
            Self::Doctor(command) => command.run(terminal),
            Self::Merge(command) => command.run(terminal, global),
            Self::Completions(command) => command.run(terminal),
            Self::Worker => worker::run_for_parent(),
            Self::CompileComponent => worker::compile(),
        }
    }
}
