//! Generation of text, shared by `generate`, `chat`, `eval` and the report after a sample run.

use tunebox_model::chat::{Conversation, Message, encode_prompt};
use tunebox_model::generate::{Completion, Sampling, generate};
use tunebox_model::tokenizer::StreamDecoder;
use tunebox_model::{Policy, View};

use crate::arguments::SamplingOptions;
use crate::terminal::Failure;

/// Encodes a conversation to token ids with the model's chat template, ending where the assistant's answer begins.
/// Fails if the model has no chat template or no tokenizer.
pub(crate) fn encode_chat(policy: &Policy, messages: &[Message]) -> Result<Vec<u32>, Failure> {
    let model = policy.model();
    Ok(encode_prompt(model.tokenizer()?, model.template()?, &Conversation::new(messages))?)
}

/// Converts the command-line options to sampling parameters, with the defaults for parameters that no option sets.
pub(crate) fn sampling_parameters(options: &SamplingOptions) -> Sampling {
    Sampling {
        temperature: options.temperature,
        top_k: options.top_k as usize,
        top_p: options.top_p,
        min_p: options.min_p,
        max_tokens: options.max_tokens as usize,
        stop: options.stop.clone(),
        seed: options.seed,
        ..Sampling::default()
    }
}

/// Generates one completion of a prompt (token ids) and returns it with its decoded text, in which special tokens are
/// left out. Calls `on_text` during the generation with each piece of text as soon as its characters are complete, and
/// with the rest at the end; if it returns false, the completion ends. Fails if nothing was generated, or if the model
/// has no tokenizer.
pub(crate) fn complete(
    policy: &Policy,
    prompt: &[u32],
    sampling: &Sampling,
    on_text: &mut dyn FnMut(&str) -> bool,
) -> Result<(Completion, String), Failure> {
    let tokenizer = policy.model().tokenizer()?;
    let mut stream = StreamDecoder::new(true);
    let completions = generate(policy, &View::Policy, &[prompt.to_vec()], sampling, &mut |_, id| {
        // A decoding error of a piece is returned by the decoding of the whole below.
        stream.push(tokenizer, id).map_or(true, |text| on_text(&text))
    })?;
    on_text(&stream.finish(tokenizer)?);
    let Some(completion) = completions.into_iter().next() else {
        return Err(Failure::usage("the model generated nothing", "raise `--max-tokens`"));
    };
    let text = tokenizer.decode(&completion.ids, true)?;
    Ok((completion, text))
}
