//! `tunebox merge`: merges an adapter into its base model, or stores a model in another precision.

use std::path::PathBuf;

use clap::Args;
use tunebox_compute::DType;

use crate::access::Access;
use crate::arguments::{Global, one_of};
use crate::model::ModelOptions;
use crate::run::summary::chat_command;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

#[derive(Debug, Args)]
pub(crate) struct Merge {
    #[command(flatten)]
    model: ModelOptions,
    /// Folder to write; it must not exist
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Precision of the written weights
    #[arg(long, default_value = "bf16", value_parser = one_of([("bf16", DType::BF16), ("f32", DType::F32)]))]
    precision: DType,
}

impl Merge {
    /// Fetches the model and returns the files that the command reads and the folder that it writes; `None` if it computes
    /// on an accelerator. In the parent, fails if that folder exists.
    pub(super) fn prepare(&self, global: &Global) -> Result<Option<Access>, Failure> {
        // The parent creates it for the child.
        if !global.supervised && self.out.exists() {
            return Err(Failure::usage(format!("`{}` exists already", self.out.display()), "choose another `--out`"));
        }
        let access = self.model.prepare(global)?;
        Ok(access.map(|access| Access { write: vec![self.out.clone()], ..access }))
    }

    /// Merges the adapter into the base model's weights and writes the model to the folder `--out` in the chosen
    /// precision.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        let loaded = self.model.load(terminal, global)?;
        tunebox_model::merge::merge(&loaded.policy, &self.out, self.precision)?;
        terminal.status("Merged", self.out.display());
        terminal.suggest(chat_command(&self.out));
        terminal.event(serde_json::json!({ "event": "merged", "path": self.out }));
        Ok(ExitStatus::Success)
    }
}
