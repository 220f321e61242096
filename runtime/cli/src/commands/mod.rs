//! The commands: one file each, with its arguments and a few calls of the libraries.

mod bench;
mod build;
mod chat;
mod check;
mod compare;
mod data;
mod dev;
mod doctor;
mod eval;
mod export;
mod generate;
mod init;
mod inspect;
mod internal;
mod key;
mod list;
mod manual;
mod new;
mod pack;
mod pull;
mod push;
mod report;
mod run_file;
mod score;
mod test;
mod train;
mod verify;

use clap::{Parser, Subcommand};

use crate::access::Access;
use crate::arguments::Global;
use crate::terminal::{CommandResult, Failure, Terminal};

/// Fine-tune and edit language models with sandboxed training methods
#[derive(Debug, Parser)]
#[command(name = "tunebox", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a model with a method such as `lora` or `grpo`; writes an adapter, an edited model or steering vectors
    #[command(visible_alias = "run")]
    Train(Box<train::Train>),
    /// Write a run file, the settings of a training run, for a model and data
    Init(init::Init),
    /// Create a folder with a working method (training algorithm), verifier (reward function) or environment
    New(new::New),
    /// Train with a method folder, and reload the method whenever its source changes
    Dev(Box<dev::Dev>),
    /// Measure a model on a data file, with and without its adapter
    Eval(eval::Eval),
    /// Print the log-probability of each token of a text
    Score(score::Score),
    /// Print one completion of a prompt
    Generate(generate::Generate),
    /// Chat with a model; `/compare` shows the answers with and without the adapter
    Chat(chat::Chat),
    /// Show what a data file holds, and which of its tokens are learned
    Data(data::Data),
    /// Check a run file, method, verifier or environment without running it, and estimate memory
    Check(check::Check),
    /// Explain every key of a run file, or print their JSON schema
    RunFile(run_file::RunFile),
    /// Show what a method is and what it can access, without running it
    Inspect(inspect::Inspect),
    /// Create a key pair to sign packages with
    Key(key::Key),
    /// Write a method as one package file, signed if a key is given
    Pack(pack::Pack),
    /// Upload a package to a registry, or copy it to a folder in OCI layout
    Push(push::Push),
    /// Download a package from a registry or a folder in OCI layout into the local package store
    Pull(pull::Pull),
    /// List packages, models and runs
    List(list::List),
    /// Compare runs in one page: their metrics laid over each other, and the settings in which they differ
    Compare(compare::Compare),
    /// Write the report of a run again, also of a run that has none
    Report(report::Report),
    /// Verify a package's signature, or compare a finished run with its `run.lock` and replay it
    Verify(verify::Verify),
    /// Measure training, scoring and generation speed on this machine
    Bench(bench::Bench),
    /// Build a method folder into a WebAssembly component, a `.wasm` file
    Build(build::Build),
    /// Run a method's own tests, then compare its component with its native build
    Test(test::Test),
    /// Check the devices and build tools of this machine
    Doctor(doctor::Doctor),
    /// Write a run or a model in the format of another program: GGUF, Ollama, mlx-lm, PEFT or transformers
    Export(Box<export::Export>),
    /// Print a completion script for a shell
    Completions(manual::Completions),
    /// Write the manual pages of all commands into a folder
    Man(manual::Man),
    /// Internal: carries out a run that comes in on stdin
    #[command(hide = true)]
    Worker,
    /// Internal: compiles the component that comes in on stdin, under limits
    #[command(hide = true)]
    CompileComponent,
    /// Internal: serves the host functions to a unit test of a method
    #[command(hide = true)]
    Host,
}

impl Command {
    /// Whether the command reads untrusted files, such as models, and so runs in a child process, which they may crash.
    /// `train` reads them in its worker instead, except with `--in-process`, `--guest-profile`, `--dry-run` or
    /// `--sample`.
    pub(crate) fn is_supervised(&self) -> bool {
        match self {
            Self::Train(command) => command.is_in_process(),
            Self::Eval(_) | Self::Score(_) | Self::Generate(_) | Self::Chat(_) => true,
            Self::Check(_) | Self::Data(_) | Self::Inspect(_) => true,
            Self::Dev(_) | Self::Verify(_) | Self::Bench(_) | Self::Export(_) => true,
            _ => false,
        }
    }

    /// Does what a supervised command does before it reads untrusted files: asks the user, downloads models and
    /// compiles components, all in the parent only. Returns what the command may reach from then on; `None` if that is
    /// not known before, or if the command starts programs.
    pub(crate) fn prepare(&self, terminal: Terminal, global: &Global) -> Result<Option<Access>, Failure> {
        match self {
            Self::Train(command) => command.prepare(terminal, global),
            Self::Eval(command) => command.prepare(terminal, global),
            Self::Score(command) => command.prepare(global),
            Self::Generate(command) => command.prepare(global),
            Self::Chat(command) => command.prepare(global),
            Self::Check(command) => command.prepare(terminal, global),
            Self::Data(command) => command.prepare(global),
            Self::Inspect(command) => command.prepare(),
            Self::Verify(command) => command.prepare(terminal, global),
            Self::Bench(command) => command.prepare(terminal, global),
            Self::Export(command) => command.prepare(global),
            _ => Ok(None),
        }
    }

    /// In the parent of a supervised command, after its child succeeded: gives what the child wrote its final name.
    /// Does nothing for commands whose child does that itself.
    pub(crate) fn publish(self, terminal: Terminal) -> Result<(), Failure> {
        match self {
            Self::Export(command) => command.publish(terminal),
            _ => Ok(()),
        }
    }

    /// Runs the chosen command with its arguments.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        match self {
            Self::Train(command) => command.run(terminal, global),
            Self::Init(command) => command.run(terminal, global),
            Self::RunFile(command) => Ok(command.run(terminal)),
            Self::New(command) => command.run(terminal),
            Self::Dev(command) => command.run(terminal, global),
            Self::Eval(command) => command.run(terminal, global),
            Self::Score(command) => command.run(terminal, global),
            Self::Generate(command) => command.run(terminal, global),
            Self::Chat(command) => command.run(terminal, global),
            Self::Check(command) => command.run(terminal, global),
            Self::Data(command) => command.run(terminal, global),
            Self::Inspect(command) => command.run(terminal),
            Self::Key(command) => command.run(terminal),
            Self::Pack(command) => command.run(terminal, global),
            Self::Push(command) => command.run(terminal, global),
            Self::Pull(command) => command.run(terminal, global),
            Self::List(command) => command.run(terminal),
            Self::Compare(command) => command.run(terminal),
            Self::Report(command) => command.run(terminal),
            Self::Verify(command) => command.run(terminal, global),
            Self::Bench(command) => command.run(terminal, global),
            Self::Build(command) => command.run(terminal, global),
            Self::Test(command) => command.run(terminal, global),
            Self::Doctor(command) => command.run(terminal),
            Self::Export(command) => command.run(terminal, global),
            Self::Completions(command) => Ok(command.run(terminal)),
            Self::Man(command) => command.run(terminal),
            Self::Worker => internal::run_worker(),
            Self::CompileComponent => internal::compile_component(),
            Self::Host => internal::serve_test(),
        }
    }
}
