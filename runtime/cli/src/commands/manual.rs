//! `tunebox completions` and `tunebox man`: what a shell and `man` read, made from the arguments of this program.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use tunebox_foundation::files::FileError;

use super::CommandLine;
use crate::terminal::{CommandResult, ExitStatus, Terminal};

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell to print the script for
    shell: clap_complete::Shell,
}

impl Completions {
    /// Prints a script that completes the commands and options of this program in a shell.
    pub(crate) fn run(self, terminal: Terminal) -> ExitStatus {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut CommandLine::command(), "tunebox", &mut script);
        terminal.print(String::from_utf8_lossy(&script));
        ExitStatus::Success
    }
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder for the pages, created if missing; `man` searches `~/.local/share/man/man1`
    folder: PathBuf,
}

impl Man {
    /// Writes `tunebox.1` and a page for each command, in place of existing ones.
    pub(crate) fn run(self, terminal: Terminal) -> CommandResult {
        std::fs::create_dir_all(&self.folder).map_err(FileError::at("created", &self.folder))?;
        clap_mangen::generate_to(CommandLine::command(), &self.folder)
            .map_err(FileError::at("written", &self.folder))?;
        let first = self.folder.join("tunebox.1");
        terminal.status("Manual", first.display());
        terminal.suggest(format!("man -l {}", first.display()));
        Ok(ExitStatus::Success)
    }
}
