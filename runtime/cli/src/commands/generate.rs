//! `tunebox generate`: one answer to a prompt, on stdout.

use clap::Args;
use serde_json::json;
use tunebox_model::chat::Message;
use tunebox_model::generate::{Sampling, generate};
use tunebox_model::tokenizer::StreamDecoder;
use tunebox_model::{Policy, View};

use super::steering::Steering;
use super::subject::Subject;
use super::{Ending, Outcome};
use crate::arguments::{Global, Writing};
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

#[derive(Debug, Args)]
pub(crate) struct Generate {
    #[command(flatten)]
    subject: Subject,
    /// What to answer
    prompt: String,
    /// Continue the prompt as it stands, without the chat template
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    steering: Steering,
    #[command(flatten)]
    writing: Writing,
}

impl Generate {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        let mut loaded = self.subject.load(terminal, global)?;
        self.steering.apply(terminal, &mut loaded.policy)?;
        let prompt = if self.raw || loaded.policy.model().template.is_none() {
            loaded.policy.model().tokenizer()?.encode(&self.prompt, true)?
        } else {
            chat_prompt(&loaded.policy, &[Message::new("user", &self.prompt)])?
        };
        let answer = write(&loaded.policy, &prompt, &self.writing, &mut |piece| {
            if !terminal.json {
                terminal.words(piece);
            }
        })?;
        if terminal.json {
            let logprobs = answer.logprobs;
            terminal.object(json!({ "prompt": prompt, "ids": answer.ids, "logprobs": logprobs, "text": answer.text, "finished": answer.finished }));
        } else {
            terminal.raw("\n");
        }
        Ok(Ending::Done)
    }
}

/// What a model wrote.
pub(super) struct Answer {
    pub(super) ids: Vec<u32>,
    pub(super) logprobs: Vec<f32>,
    pub(super) text: String,
    pub(super) finished: bool,
}

/// The ids of a conversation that ends where the model is to speak.
pub(super) fn chat_prompt(policy: &Policy, messages: &[Message]) -> Result<Vec<u32>, Failure> {
    let model = policy.model();
    let text = model.template()?.render(messages, true, None)?;
    Ok(model.tokenizer()?.encode(&text, false)?)
}

/// The flags as the engine takes them.
pub(super) fn sampling(writing: &Writing) -> Sampling {
    Sampling {
        temperature: writing.temperature,
        top_k: writing.top_k as usize,
        top_p: writing.top_p,
        min_p: writing.min_p,
        max_tokens: writing.max_tokens as usize,
        stop: writing.stop.clone(),
        seed: writing.seed,
        ..Sampling::default()
    }
}

/// Lets the model write, handing over pieces of text as they are whole.
pub(super) fn write(
    policy: &Policy,
    prompt: &[u32],
    writing: &Writing,
    piece: &mut dyn FnMut(&str),
) -> Result<Answer, Failure> {
    let tokenizer = policy.model().tokenizer()?;
    let sampling = sampling(writing);
    let mut stream = StreamDecoder::new(true);
    let completions = generate(policy, &View::Policy, &[prompt.to_vec()], &sampling, &mut |_, id| {
        // What cannot be decoded here comes as an error from the decoding of the whole below.
        if let Ok(text) = stream.push(tokenizer, id) {
            piece(&text);
        }
        true
    })?;
    piece(&stream.finish(tokenizer)?);
    let Some(completion) = completions.into_iter().next() else {
        return Err(Failure::usage("the model wrote nothing", "raise `--max-tokens`"));
    };
    let text = tokenizer.decode(&completion.ids, true)?;
    Ok(Answer { ids: completion.ids, logprobs: completion.logprobs, text, finished: completion.finished })
}
