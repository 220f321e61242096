//! `tunebox merge`: an adapter worked into the weights of its model; without one, the weights in another precision.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use tunebox_compute::DType;

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
    #[arg(long, default_value = "bf16", value_parser = element_type())]
    precision: DType,
}

/// Reads the element type of weights.
fn element_type() -> impl TypedValueParser<Value = DType> {
    PossibleValuesParser::new(["bf16", "f32"]).map(|word| if word == "f32" { DType::F32 } else { DType::BF16 })
}

impl Merge {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        if self.out.exists() {
            return Err(Failure::usage(format!("`{}` exists already", self.out.display()), "choose another `--out`"));
        }
        let loaded = self.subject.load(terminal, global)?;
        tunebox_model::merge::merge(&loaded.policy, &self.out, self.precision)?;
        terminal.say("Merged", format!("{}", self.out.display()));
        terminal.next(format!("tunebox chat {}", self.out.display()));
        if terminal.json {
            terminal.object(serde_json::json!({ "event": "merged", "path": self.out }));
        }
        Ok(Ending::Done)
    }
}
