//! Tokens with a role: beginning and end of text, padding, end of a turn.
//!
//! The readers of folders and of GGUF files find them.

/// Roles that chat templates may ask for by name.
pub(super) const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Spellings of tokens that end a text or a turn in published models. They count only if the vocabulary marks them as
/// special, and for a folder only if its `generation_config.json` lists no end tokens.
pub(crate) const TURN_ENDS: [&str; 12] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|eot|>",
    "<|END_OF_TURN_TOKEN|>",
    "<turn|>",
    "<EOT>",
    "</s>",
];

/// One special token: the role it has, its spelling and its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Special {
    pub(super) role: String,
    pub(super) text: String,
    pub(super) id: u32,
}

/// All special tokens of one tokenizer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Specials {
    /// The tokens with a role; each role occurs at most once.
    pub(super) named: Vec<Special>,
    /// The ids that end an answer, each once.
    pub(super) eos: Vec<u32>,
}

impl Specials {
    /// The id of the token with this role, such as `eos_token`; `None` if no token has it.
    pub(super) fn id(&self, role: &str) -> Option<u32> {
        self.named.iter().find(|special| special.role == role).map(|special| special.id)
    }

    /// The text of the token with this role; `None` if no token has it.
    pub(super) fn name(&self, role: &str) -> Option<&str> {
        self.named.iter().find(|special| special.role == role).map(|special| special.text.as_str())
    }

    /// Appends an id to `eos`. Does nothing if `eos` contains the id already.
    pub(super) fn add_eos(&mut self, id: u32) {
        if !self.eos.contains(&id) {
            self.eos.push(id);
        }
    }

    /// Appends to `eos` the ids of the spellings in [`TURN_ENDS`] that `inner` holds as special tokens, in the order of
    /// that list. Skips ids that `eos` contains already.
    pub(super) fn add_turn_ends(&mut self, inner: &tokenizers::Tokenizer) {
        let added = inner.get_added_vocabulary().get_added_tokens_decoder();
        for name in TURN_ENDS {
            let control = |id: &u32| added.get(id).is_some_and(|token| token.special);
            if let Some(id) = inner.token_to_id(name).filter(control) {
                self.add_eos(id);
            }
        }
    }
}
