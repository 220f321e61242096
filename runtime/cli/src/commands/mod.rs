//! The commands, one file each: arguments, then a few calls.

mod bench;
mod build;
mod building;
mod chat;
mod check;
mod completions;
mod dev;
mod doctor;
mod eval;
mod generate;
pub(crate) mod help;
mod host;
mod inspect;
mod key;
mod list;
mod merge;
mod new;
mod pack;
mod pull;
mod push;
mod score;
mod steering;
mod subject;
mod test;
mod train;
mod trust;
mod verify;
mod worker;
mod world;

use clap::Subcommand;
use tunebox_foundation::explain::Exit;

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
    /// A method folder that builds, tests and trains at once
    New(new::New),
    /// Trains with a method folder, and takes every change of its source into the run
    Dev(Box<dev::Dev>),
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
    /// A pair of keys to sign packages with
    Key(key::Key),
    /// One file of a method that can be given away, signed if there is a key
    Pack(pack::Pack),
    /// A package to a registry, or to a folder in the form of one
    Push(push::Push),
    /// A package from a registry, or from a folder in the form of one, into the store
    Pull(pull::Pull),
    /// The packages, models and runs that are here
    List(list::List),
    /// Whether a package is what was signed; whether a finished run is what its lock says, and `--replay` runs it again
    Verify(verify::Verify),
    /// How fast this machine trains, scores and writes, beside what its plain products reach
    Bench(bench::Bench),
    /// A component from a method folder
    Build(build::Build),
    /// The author's own tests, then component and native twin side by side
    Test(test::Test),
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
    /// For tunebox itself: serves a test of a method's author
    #[command(hide = true)]
    Host,
}

impl Command {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        match self {
            Self::Train(command) => command.run(terminal, global),
            Self::New(command) => command.run(terminal),
            Self::Dev(command) => command.run(terminal, global),
            Self::Eval(command) => command.run(terminal, global),
            Self::Score(command) => command.run(terminal, global),
            Self::Generate(command) => command.run(terminal, global),
            Self::Chat(command) => command.run(terminal, global),
            Self::Check(command) => command.run(terminal, global),
            Self::Inspect(command) => command.run(terminal),
            Self::Key(command) => command.run(terminal),
            Self::Pack(command) => command.run(terminal, global),
            Self::Push(command) => command.run(terminal, global),
            Self::Pull(command) => command.run(terminal, global),
            Self::List(command) => command.run(terminal),
            Self::Verify(command) => command.run(terminal, global),
            Self::Bench(command) => command.run(terminal, global),
            Self::Build(command) => command.run(terminal, global),
            Self::Test(command) => command.run(terminal, global),
            Self::Doctor(command) => command.run(terminal),
            Self::Merge(command) => command.run(terminal, global),
            Self::Completions(command) => command.run(terminal),
            Self::Worker => worker::run_for_parent(),
            Self::CompileComponent => worker::compile(),
            Self::Host => host::run(),
        }
    }
}
