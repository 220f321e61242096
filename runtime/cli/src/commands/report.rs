//! `tunebox report`: writes the report of a run anew.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tunebox_training::{find_run, write_report};

use crate::browser::open_page;
use crate::terminal::{CommandResult, ExitStatus, Terminal};

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Run: its folder, or its name in `runs`
    run: PathBuf,
    /// Open the report in the browser
    #[arg(long)]
    open: bool,
}

impl Report {
    /// Writes `report.html` into the run's folder from the files that the run has written, in place of an existing
    /// report.
    pub(crate) fn run(self, terminal: Terminal) -> CommandResult {
        let page = write_report(&find_run(&self.run)?)?;
        terminal.event(json!({ "event": "report", "path": page }));
        terminal.status("Report", page.display());
        if self.open {
            open_page(terminal, &page);
        }
        Ok(ExitStatus::Success)
    }
}
