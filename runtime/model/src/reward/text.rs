//! Turns a prompt and a completion into the tokens that a reward model reads.

use std::path::Path;

use crate::chat::{ChatTemplate, Message};
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

/// The tokens of a text, with the part of a pair that each belongs to: 0 or 1.
pub(super) struct Tokens {
    pub(super) ids: Vec<u32>,
    pub(super) types: Vec<u32>,
}

/// A tokenizer, a chat template if the model has one, and the most tokens of a text.
pub(super) struct TextEncoder {
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    pub(super) max_tokens: usize,
}

impl TextEncoder {
    /// Reads the tokenizer of a folder, and its chat template if it has one. `max_tokens` is the most that a text is
    /// encoded to. Errors: there is no `tokenizer.json`, or a file is broken.
    pub(super) fn open(folder: &Path, max_tokens: usize) -> Result<Self> {
        let tokenizer = Tokenizer::from_folder(folder)?;
        let template = ChatTemplate::from_folder(folder, &tokenizer)?;
        Ok(Self { tokenizer, template, max_tokens })
    }

    /// Makes the template's `strftime_now` return a fixed time, in seconds since 1970 UTC.
    pub(super) fn with_clock(self, seconds: i64) -> Self {
        Self { template: self.template.map(|template| template.with_clock(seconds)), ..self }
    }

    /// Encodes the conversation of prompt and completion as the template writes it, without further special tokens;
    /// without a template the pair of both, with those of the tokenizer. Cuts the conversation at its end, and of a
    /// pair the longer text first, as transformers does with `truncation=True`. Errors: the texts cannot be encoded, or
    /// have no tokens.
    pub(super) fn encode(&self, prompt: &str, completion: &str) -> Result<Tokens> {
        let tokens = match &self.template {
            Some(template) => {
                let messages = [Message::new("user", prompt), Message::new("assistant", completion)];
                let mut ids = self.tokenizer.encode(&template.render(&messages, false, None)?, false)?;
                ids.truncate(self.max_tokens);
                Tokens { types: vec![0; ids.len()], ids }
            }
            None => {
                let (ids, types) = self.tokenizer.encode_pair(prompt, completion, self.max_tokens)?;
                Tokens { ids, types }
            }
        };
        if tokens.ids.is_empty() || tokens.ids.len() > self.max_tokens {
            let (found, most) = (tokens.ids.len(), self.max_tokens);
            return Err(Error::Argument(format!("the text has {found} tokens, the reward model reads 1 to {most}")));
        }
        Ok(tokens)
    }
}

impl Tokens {
    /// Fails if a token is not in a vocabulary of this size, or the part of a pair that it belongs to is not below
    /// `types`. 0 `types` stand for a model that does not tell parts apart: those are not checked.
    pub(super) fn check(&self, vocabulary: usize, types: usize) -> Result<()> {
        if let Some(id) = self.ids.iter().find(|id| **id as usize >= vocabulary) {
            return Err(Error::Argument(format!(
                "the tokenizer of the reward model gives token `{id}`, its vocabulary has {vocabulary}"
            )));
        }
        match self.types.iter().find(|kind| types > 0 && **kind as usize >= types) {
            Some(kind) => Err(Error::Argument(format!(
                "the tokenizer of the reward model gives token type `{kind}`, `type_vocab_size` is {types}"
            ))),
            None => Ok(()),
        }
    }
}
