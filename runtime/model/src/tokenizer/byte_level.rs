//! A byte-level BPE (GPT-2, Llama 3, Qwen) from GGUF metadata: `tokenizer.ggml.model = "gpt2"`.
//!
//! Special tokens and the ids around a text are added by the caller.

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{NormalizedString, Normalizer, normalizers};

use super::gguf::{Kind, Vocabulary};
use super::pre_tokenizers::{self, Style};
use super::{TokenizerError, merges};

/// Builds the model, its pre-tokenizer and its decoder.
pub(super) fn build(vocabulary: &Vocabulary, style: Style) -> Result<tokenizers::Tokenizer, TokenizerError> {
    let alphabet = ByteLevel::alphabet();
    let tokens = vocabulary.tokens.iter().zip(&vocabulary.kinds);
    let tokens = tokens
        .map(|(token, kind)| spell(token, *kind, |letter| alphabet.contains(&letter)))
        .collect::<Result<Vec<String>, TokenizerError>>()?;
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

/// A token in the alphabet of 256 printable characters that stand for bytes. Control and user-defined tokens are text,
/// matched before any merging, and stay as they are; any other token that some converter left as plain text is spelt
/// byte by byte.
fn spell(token: &str, kind: Kind, is_in_alphabet: impl Fn(char) -> bool) -> Result<String, TokenizerError> {
    let plain = matches!(kind, Kind::Control | Kind::UserDefined);
    if plain || token.chars().all(is_in_alphabet) {
        return Ok(token.to_owned());
    }
    let mut text = NormalizedString::from(token);
    normalizers::ByteLevel::new().normalize(&mut text).map_err(TokenizerError::broken)?;
    Ok(text.get().to_owned())
}
