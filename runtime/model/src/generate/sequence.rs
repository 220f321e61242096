//! A completion that is being generated: its tokens, its random stream, its slot in the cache, and what ends it.

use tunebox_compute::random::Stream;

use super::{BATCH, Completion, Sampling};
use crate::Model;
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

/// A completion that is being generated.
pub(super) struct Sequence {
    /// The index of the completion in the result of [`super::generate`].
    number: usize,
    /// The index of the prompt that it continues.
    pub(super) prompt: usize,
    /// The slot of its keys and values in the batch's cache.
    pub(super) slot: usize,
    /// The random stream; [`Self::next_uniform`] takes one number of it.
    pub(super) stream: Stream,
    /// The most new tokens.
    pub(super) max_tokens: usize,
    /// The completion so far.
    pub(super) completion: Completion,
    pub(super) ended: bool,
}

/// The end tokens and stop texts that finish a completion.
pub(super) struct StopCriteria<'a> {
    ends: Vec<u32>,
    stop: &'a [String],
    tokenizer: Option<&'a Tokenizer>,
    /// How many tokens at the end of a completion are decoded to look for a stop text.
    reach: usize,
}

impl<'a> StopCriteria<'a> {
    /// Collects the end tokens of the model's configuration and tokenizer, and the stop texts. Errors: there are stop texts
    /// but the model has no tokenizer.
    pub(super) fn new(model: &'a Model, sampling: &'a Sampling) -> Result<Self> {
        let tokenizer = if sampling.stop.is_empty() { None } else { Some(model.tokenizer()?) };
        let mut ends = model.configuration.eos.clone();
        if let Some(tokenizer) = &model.tokenizer {
            ends.extend_from_slice(tokenizer.eos());
        }
        let longest = sampling.stop.iter().map(String::len).max().unwrap_or(0);
        Ok(Self {
            ends,
            stop: &sampling.stop,
            tokenizer,
            // A token is at least a byte long, and a character may lie across four.
            reach: longest + 4,
        })
    }

    /// Whether the last token of a completion is an end token, or the text of its last `reach` tokens, special tokens
    /// included, contains a stop text, case included. Empty stop texts never match. Errors: the tokens cannot be
    /// decoded.
    fn is_met(&self, ids: &[u32]) -> Result<bool> {
        if ids.last().is_some_and(|id| self.ends.contains(id)) {
            return Ok(true);
        }
        let Some(tokenizer) = self.tokenizer else { return Ok(false) };
        let tail = tokenizer.decode(&ids[ids.len().saturating_sub(self.reach)..], false)?;
        Ok(self.stop.iter().any(|stop| !stop.is_empty() && tail.contains(stop.as_str())))
    }
}

impl Sequence {
    /// A completion before its first token. `number` is its index in the result, from which its prompt, its cache slot
    /// (`number` modulo [`BATCH`]) and the name of its random stream follow. It gets at most `sampling.max_tokens` tokens,
    /// and at most `room`, the number that fits in the model's context after the prompt.
    pub(super) fn new(number: usize, sampling: &Sampling, room: usize) -> Self {
        let prompt = number / sampling.completions;
        let sample = number % sampling.completions;
        let name = format!("generate/{}/{sample}", sampling.first_prompt + prompt as u64);
        Self {
            number,
            prompt,
            slot: number % BATCH,
            stream: Stream::new(sampling.seed, &name),
            max_tokens: sampling.max_tokens.min(room),
            completion: Completion::default(),
            ended: false,
        }
    }

    /// The last token that was generated. Errors: none was yet.
    pub(super) fn last(&self) -> Result<u32> {
        let last = self.completion.ids.last().copied();
        last.ok_or_else(|| Error::Argument("a completion went on before its first token".into()))
    }

    /// Draws a number in [0, 1), a multiple of 2⁻⁵³, from the random stream. Takes two words of the stream.
    pub(super) fn next_uniform(&mut self) -> f64 {
        (self.stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Appends a token and its log-probability, then calls `on_token` with the completion's index and the token. Marks the
    /// completion as finished if the stop criteria are met. Marks the sequence as ended if the completion is finished,
    /// `on_token` returned false, or the maximum number of tokens is reached. Errors: the tokens cannot be decoded.
    pub(super) fn push(
        &mut self,
        id: u32,
        logprob: f32,
        stop_criteria: &StopCriteria<'_>,
        on_token: &mut dyn FnMut(usize, u32) -> bool,
    ) -> Result<()> {
        let Completion { ids, logprobs, finished } = &mut self.completion;
        ids.push(id);
        logprobs.push(logprob);
        *finished = stop_criteria.is_met(ids)?;
        let wanted = on_token(self.number, id);
        self.ended = *finished || !wanted || ids.len() >= self.max_tokens;
        Ok(())
    }
}
