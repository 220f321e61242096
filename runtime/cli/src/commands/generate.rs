//! `tunebox generate`: prints one completion of a prompt.

use clap::Args;
use serde_json::json;
use tunebox_model::chat::Message;

use crate::access::Access;
use crate::arguments::{Global, SamplingOptions};
use crate::generation::{complete, encode_chat, sampling_parameters};
use crate::model::ModelOptions;
use crate::steering::SteeringOptions;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

#[derive(Debug, Args)]
pub(crate) struct Generate {
    #[command(flatten)]
    model: ModelOptions,
    /// Prompt to complete
    prompt: String,
    /// Continue the prompt as it is, without the chat template
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    steering: SteeringOptions,
    #[command(flatten)]
    sampling: SamplingOptions,
}

impl Generate {
    /// Fetches the model and returns the files that the command reads; `None` if it computes on an accelerator.
    pub(super) fn prepare(&self, global: &Global) -> Result<Option<Access>, Failure> {
        Ok(self.steering.add_files(self.model.prepare(global)?))
    }

    /// Prints the completion while it is generated, or with `--json` one object with ids and log-probabilities. The
    /// prompt is encoded as a user message with the chat template, and as it is if `--raw` is given or the model has no
    /// template.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        let mut loaded = self.model.load(terminal, global)?;
        self.steering.add_vectors(terminal, &mut loaded)?;
        let policy = loaded.policy;
        let prompt = if self.raw || policy.model().template.is_none() {
            policy.model().tokenizer()?.encode(&self.prompt, true)?
        } else {
            encode_chat(&policy, &[Message::new("user", &self.prompt)])?
        };
        let (completion, text) = complete(&policy, &prompt, &sampling_parameters(&self.sampling), &mut |piece| {
            if !terminal.json {
                terminal.print_model_text(piece);
            }
            true
        })?;
        if !terminal.json {
            terminal.print("\n");
        }
        terminal.event(json!({
            "prompt": prompt, "ids": completion.ids, "logprobs": completion.logprobs, "text": text,
            "finished": completion.finished,
        }));
        Ok(ExitStatus::Success)
    }
}
