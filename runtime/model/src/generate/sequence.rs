//! A completion that is being generated: its tokens, its random stream, its slot in the cache, and what ends it.

use tunebox_compute::random::Stream;

use super::{BATCH, Completion, Listener, Reply, Sampling, Turns};
use crate::Model;
use crate::error::Result;
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
    /// The number of tokens of its prompt.
    pub(super) prompt_tokens: usize,
    /// The most tokens of the completion, those of replies included.
    pub(super) room: usize,
    /// The most tokens that the model may write.
    max_tokens: usize,
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
    /// Collects the end tokens of the model's configuration and tokenizer, and the stop texts. Errors: there are stop
    /// texts but the model has no tokenizer.
    pub(super) fn new(model: &'a Model, sampling: &'a Sampling) -> Result<Self> {
        let tokenizer = if sampling.stop.is_empty() { None } else { Some(model.tokenizer()?) };
        let ends = model.end_tokens();
        Ok(Self { ends, stop: &sampling.stop, tokenizer, reach: sampling.decoded_tokens() })
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
    /// (`number` modulo [`BATCH`]) and the name of its random stream follow. `prompt_tokens` is the length of its
    /// prompt. It gets at most `room` tokens, of which the model writes at most `sampling.max_tokens`.
    pub(super) fn new(number: usize, sampling: &Sampling, prompt_tokens: usize, room: usize) -> Self {
        let prompt = number / sampling.completions;
        let sample = number % sampling.completions;
        let name = format!("generate/{}/{sample}", sampling.first_prompt + prompt as u64);
        Self {
            number,
            prompt,
            slot: number % BATCH,
            stream: Stream::new(sampling.seed, &name),
            prompt_tokens,
            room,
            max_tokens: sampling.max_tokens.min(room),
            completion: Completion::default(),
            ended: false,
        }
    }

    /// Returns the first token after the `cached` tokens of prompt and completion that the cache holds, and whether it
    /// belongs to a reply. `None` if the cache holds all tokens, or not the whole prompt.
    pub(super) fn next_input(&self, cached: usize) -> Option<(u32, bool)> {
        let place = cached.checked_sub(self.prompt_tokens)?;
        self.completion.ids.get(place).map(|id| (*id, self.completion.is_reply(place)))
    }

    /// Whether the model wrote the token at this index of prompt and completion together: false in the prompt and in
    /// replies.
    pub(super) fn is_own(&self, place: usize) -> bool {
        place.checked_sub(self.prompt_tokens).is_some_and(|place| !self.completion.is_reply(place))
    }

    /// Draws a number in [0, 1), a multiple of 2⁻⁵³, from the random stream. Takes two words of the stream.
    pub(super) fn next_uniform(&mut self) -> f64 {
        (self.stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Appends a token that the model wrote and its log-probability, then calls `on_token` of the listener with the
    /// completion's index and the token. If the stop criteria are met, marks the completion as finished, or lets the
    /// listener reply. Marks the sequence as ended if the completion is over, `on_token` returned false, or the maximum
    /// number of tokens is reached. Errors: the tokens cannot be decoded, and those of the reply.
    pub(super) fn push(
        &mut self,
        id: u32,
        logprob: f32,
        stop_criteria: &StopCriteria<'_>,
        listener: &mut Listener<'_>,
    ) -> Result<()> {
        self.completion.ids.push(id);
        self.completion.logprobs.push(logprob);
        self.completion.finished = stop_criteria.is_met(self.completion.last_turn())?;
        let wanted = (listener.on_token)(self.number, id);
        match &mut listener.turns {
            Some(turns) if self.completion.finished && wanted => self.take_reply(turns),
            _ => {
                let is_full = self.completion.own_tokens() >= self.max_tokens || self.completion.ids.len() >= self.room;
                self.ended = self.completion.finished || !wanted || is_full;
                Ok(())
            }
        }
    }

    /// Asks `turns` for a reply to the completion, which met the stop criteria. Appends the reply's tokens with
    /// log-probability 0. Marks the sequence as ended if the reply has no tokens, they and one more do not fit, or the
    /// model wrote `max_tokens`. Only [`Reply::End`] leaves the completion marked as finished, and sets its reward.
    fn take_reply(&mut self, turns: &mut Turns<'_>) -> Result<()> {
        let reply = (turns.reply)(self.number, &self.completion)?;
        let completion = &mut self.completion;
        let (start, can_write) = (completion.ids.len(), completion.own_tokens() < self.max_tokens);
        (completion.finished, self.ended) = (false, true);
        match reply {
            Reply::End(reward) => (completion.finished, completion.reward) = (true, reward),
            Reply::Tokens(ids) if can_write && !ids.is_empty() && start + ids.len() < self.room => {
                completion.ids.extend(ids);
                completion.logprobs.resize(completion.ids.len(), 0.0);
                completion.replies.push(start..completion.ids.len());
                self.ended = false;
            }
            Reply::Tokens(_) | Reply::Cut => {}
        }
        Ok(())
    }
}
