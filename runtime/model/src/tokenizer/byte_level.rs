//! A byte-level BPE (GPT-2, Llama 3, Qwen) from GGUF metadata: `tokenizer.ggml.model = "gpt2"`.
//!
//! Special tokens and the ids around a text are added by the caller.

use std::collections::HashMap;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::gguf::{Kind, Vocabulary};
use super::pre_tokenizers::{self, Style};
use super::{TokenizerError, merges};

/// Builds the model, its pre-tokenizer and its decoder.
pub(super) fn build(vocabulary: &Vocabulary, style: Style) -> Result<tokenizers::Tokenizer, TokenizerError> {
    let alphabet = Alphabet::new();
    let tokens: Vec<String> =
        vocabulary.tokens.iter().zip(&vocabulary.kinds).map(|(token, kind)| alphabet.spell(token, *kind)).collect();
    let vocab: Vocab = tokens.iter().enumerate().map(|(id, token)| (token.clone(), id as u32)).collect();

    let pairs = match &vocabulary.merges {
        Some(lines) => lines.iter().map(|line| pair(line)).collect::<Result<_, _>>()?,
        None => merges::from_scores(&tokens, &vocabulary.scores),
    };
    let model = BPE::builder()
        .vocab_and_merges(vocab, pairs)
        .ignore_merges(style.whole_words)
        .build()
        .map_err(TokenizerError::broken)?;

    let mut tokenizer = tokenizers::Tokenizer::new(model);
    pre_tokenizers::apply_style(style, &mut tokenizer)?;
    tokenizer.with_decoder(Some(ByteLevel::default()));
    Ok(tokenizer)
}

/// The two halves of a line of `tokenizer.ggml.merges`.
fn pair(line: &str) -> Result<(String, String), TokenizerError> {
    line.split_once(' ').map(|(left, right)| (left.to_owned(), right.to_owned())).ok_or_else(|| {
        TokenizerError::Metadata { key: "tokenizer.ggml.merges".into(), wanted: "two pieces with a space between them" }
    })
}

/// The 256 printable characters that stand for bytes in such vocabularies.
struct Alphabet(HashMap<char, u8>, Vec<char>);

impl Alphabet {
    /// Printable Latin-1 bytes stand for themselves; the rest follow from U+0100 on.
    fn new() -> Self {
        let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let mut spare = ('\u{100}'..).take(256);
        let spelling: Vec<char> =
            (0..=255u8).map(|byte| if printable(byte) { byte.into() } else { spare.next().unwrap_or(' ') }).collect();
        Self(spelling.iter().copied().zip(0..=255).collect(), spelling)
    }

    /// A token in the alphabet. Control and user-defined tokens are text, matched before any merging, and stay as
    /// they are; any other token that some converter left as plain text is spelt byte by byte.
    fn spell(&self, token: &str, kind: Kind) -> String {
        let plain = matches!(kind, Kind::Control | Kind::UserDefined);
        if plain || token.chars().all(|character| self.0.contains_key(&character)) {
            return token.to_owned();
        }
        token.bytes().map(|byte| self.1[usize::from(byte)]).collect()
    }
}
