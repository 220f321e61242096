//! `tunebox run-file`: explains every key of a run file, or prints the JSON schema.

use clap::Args;
use tunebox_training::configuration::schema;

use crate::run_file::page::page;
use crate::terminal::{ExitStatus, Terminal};

#[derive(Debug, Args)]
#[command(override_help = page())]
pub(crate) struct RunFile {
    /// Print the JSON schema of run files, which editors use
    #[arg(long)]
    schema: bool,
}

impl RunFile {
    /// Prints the reference of run files, or their JSON schema.
    pub(crate) fn run(&self, terminal: Terminal) -> ExitStatus {
        terminal.print(if self.schema { format!("{:#}\n", schema()) } else { page() });
        ExitStatus::Success
    }
}
