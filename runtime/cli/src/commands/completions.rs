//! `tunebox completions`: prints a completion script for a shell.

use clap::Args;

use crate::terminal::{CommandResult, ExitStatus, Terminal};

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell to print the script for
    shell: clap_complete::Shell,
}

impl Completions {
    /// Prints the completion script of `command`, the whole command line, for the chosen shell to stdout.
    pub(crate) fn run(self, terminal: Terminal, mut command: clap::Command) -> CommandResult {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "tunebox", &mut script);
        terminal.print(String::from_utf8_lossy(&script));
        Ok(ExitStatus::Success)
    }
}
