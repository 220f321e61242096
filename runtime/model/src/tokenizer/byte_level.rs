//! A byte-level BPE (GPT-2, Llama 3, Qwen) from GGUF metadata: `tokenizer.ggml.model = "gpt2"`.
//!
//! Special tokens and the ids around a text are added by the caller.

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{NormalizedString, Normalizer, normalizers};

use super::gguf::{Kind, Vocabulary};
use super::pre_tokenizers::{self, Style};
use super::{error, merges};
use crate::error::Result;

/// Builds the library's tokenizer with model, pre-tokenizer and decoder. Merges come from the file, or from the scores
/// if it has none.
pub(super) fn build(vocabulary: &Vocabulary, style: Style) -> Result<tokenizers::Tokenizer> {
    let alphabet = ByteLevel::alphabet();
    let tokens = vocabulary.tokens.iter().zip(&vocabulary.kinds);
    let tokens = tokens
        .map(|(token, kind)| spell(token, *kind, |letter| alphabet.contains(&letter)))
        .collect::<Result<Vec<String>>>()?;
    let vocab: Vocab = tokens.iter().enumerate().map(|(id, token)| (token.clone(), id as u32)).collect();

    let pairs = match &vocabulary.merges {
        Some(lines) => lines.iter().map(|line| pair(line)).collect::<Result<_>>()?,
        None => merges::from_scores(&tokens, &vocabulary.scores),
    };
    let model = BPE::builder()
        .vocab_and_merges(vocab, pairs)
        .ignore_merges(style.whole_words)
        .build()
        .map_err(error::broken)?;

    let mut tokenizer = tokenizers::Tokenizer::new(model);
    pre_tokenizers::apply_style(style, &mut tokenizer)?;
    tokenizer.with_decoder(Some(ByteLevel::default()));
    Ok(tokenizer)
}

/// Splits a line of `tokenizer.ggml.merges` at its first space into the left and the right piece.
fn pair(line: &str) -> Result<(String, String)> {
    let missing = || error::missing("tokenizer.ggml.merges", "two pieces with a space between them");
    line.split_once(' ').map(|(left, right)| (left.to_owned(), right.to_owned())).ok_or_else(missing)
}

/// Spells a token in the alphabet of 256 printable characters that stand for bytes. Returns control and user-defined
/// tokens, which are matched as text before any merging, and tokens already in the alphabet unchanged; spells others,
/// which some converters leave as plain text, byte by byte.
fn spell(token: &str, kind: Kind, is_in_alphabet: impl Fn(char) -> bool) -> Result<String> {
    let plain = matches!(kind, Kind::Control | Kind::UserDefined);
    if plain || token.chars().all(is_in_alphabet) {
        return Ok(token.to_owned());
    }
    let mut text = NormalizedString::from(token);
    normalizers::ByteLevel::new().normalize(&mut text).map_err(error::broken)?;
    Ok(text.get().to_owned())
}
