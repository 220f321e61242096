//! `tunebox merge`: an adapter worked into the weights of its model; without one, the weights in another precision.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::subject::Subject;
use super::{Ending, Outcome};
use crate::arguments::Global;
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

#[derive(Debug, Args)]
pub(crate) struct Merge {
    #[command(flatten)]
    subject: Subject,
    /// The folder to write; it must not exist
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// How the merged weights are stored
    #[arg(long, value_enum, default_value = "bf16")]
    precision: Precision,
}

/// Element types of stored weights.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Precision {
    Bf16,
    F32,
}

impl Merge {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        if self.out.exists() {
            return Err(Failure::usage(format!("`{}` exists already", self.out.display()), "choose another `--out`"));
        }
        let loaded = self.subject.load(terminal, global)?;
        let dtype = match self.precision {
            Precision::Bf16 => tunebox_compute::DType::BF16,
            Precision::F32 => tunebox_compute::DType::F32,
        };
        tunebox_model::merge::merge(&loaded.policy, &self.out, dtype)?;
        terminal.say("Merged", format!("{}", self.out.display()));
        terminal.next(format!("tunebox chat {}", self.out.display()));
        if terminal.json {
            terminal.object(serde_json::json!({ "event": "merged", "path": self.out }));
        }
        Ok(Ending::Done)
    }
}
