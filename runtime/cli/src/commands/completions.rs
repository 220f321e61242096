//! `tunebox completions`: a script for a shell, on stdout.

use clap::{Args, CommandFactory};

use super::{Ending, Outcome};
use crate::arguments::Line;
use crate::terminal::Terminal;

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// bash, elvish, fish, powershell or zsh
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(self, terminal: Terminal) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Line::command(), "tunebox", &mut script);
        terminal.raw(String::from_utf8_lossy(&script));
        Ok(Ending::Done)
    }
}
