//! A SentencePiece-style BPE (Llama 2, Mistral, Gemma, Phi-3) from GGUF metadata: `tokenizer.ggml.model = "llama"`.
//!
//! Such files list pieces and scores but no merges, so those are derived. Special tokens and the
//! ids around a text are added by the caller.

use tokenizers::SplitDelimiterBehavior;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{NormalizerWrapper, Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

use super::gguf::Vocabulary;
use super::{error, merges};
use crate::error::Result;

/// What SentencePiece writes for a space.
const SPACE: &str = "\u{2581}";

/// Builds the library's tokenizer with model, normalizer, pre-tokenizer and decoder. `architecture` is the file's
/// `general.architecture`. All spaces become [`SPACE`]. One more [`SPACE`] is put before the text, and removed again on
/// decoding, unless the architecture begins with `gemma` or the vocabulary has no `space_prefix`. For `phi3` it is put
/// before every part of a text between special tokens; for others only at the start of the whole text, unless that is a
/// special token or a space.
pub(super) fn build(vocabulary: &Vocabulary, architecture: &str) -> Result<tokenizers::Tokenizer> {
    let gemma = architecture.starts_with("gemma");
    let model =
        if gemma { gemma_model(vocabulary)? } else { model(vocabulary, &vocabulary.tokens, &vocabulary.scores)? };

    let mut tokenizer = tokenizers::Tokenizer::new(model);
    if gemma || !vocabulary.space_prefix {
        replace_spaces(&mut tokenizer, false)?;
        tokenizer.with_pre_tokenizer(Some(cut_after_spaces()?));
    } else if architecture == "phi3" {
        replace_spaces(&mut tokenizer, true)?;
    } else {
        tokenizer.with_pre_tokenizer(Some(Metaspace::new('\u{2581}', PrependScheme::First, false)));
    }
    tokenizer.with_decoder(Some(decoder(vocabulary.space_prefix && !gemma)?));
    Ok(tokenizer)
}

/// Builds Gemma's model. Spells tokens of white space that contain a space with one [`SPACE`] for each character.
/// Merges by ascending id of the joined token: the scores of Gemma's files do not follow the order of merging.
fn gemma_model(vocabulary: &Vocabulary) -> Result<BPE> {
    let respell = |token: &String| {
        let run = token.contains(' ') && token.trim().is_empty();
        if run { SPACE.repeat(token.chars().count()) } else { token.clone() }
    };
    let tokens: Vec<String> = vocabulary.tokens.iter().map(respell).collect();
    let order: Vec<f64> = (0..tokens.len()).map(|id| -(id as f64)).collect();
    model(vocabulary, &tokens, &order)
}

/// Builds a BPE with byte fallback from tokens by id and their scores, from which the merges are derived. Takes from
/// `vocabulary` only the unknown token, if it names one; neighboring unknown characters become one such token.
fn model(vocabulary: &Vocabulary, tokens: &[String], scores: &[f64]) -> Result<BPE> {
    let vocab: Vocab = tokens.iter().enumerate().map(|(id, token)| (token.clone(), id as u32)).collect();
    let mut builder =
        BPE::builder().vocab_and_merges(vocab, merges::from_scores(tokens, scores)).fuse_unk(true).byte_fallback(true);
    if let Some(unknown) = vocabulary.unknown() {
        builder = builder.unk_token(unknown.to_owned());
    }
    builder.build().map_err(error::broken)
}

/// Sets a normalizer that replaces each space by [`SPACE`]; with `prefix`, it first puts a [`SPACE`] before the text.
fn replace_spaces(tokenizer: &mut tokenizers::Tokenizer, prefix: bool) -> Result<()> {
    let replace = Replace::new(ReplacePattern::String(" ".into()), SPACE.to_owned()).map_err(error::broken)?;
    let mut steps: Vec<NormalizerWrapper> = Vec::new();
    if prefix {
        steps.push(Prepend::new(SPACE.to_owned()).into());
    }
    steps.push(replace.into());
    tokenizer.with_normalizer(Some(Normalizers::new(steps))).map_err(error::broken)?;
    Ok(())
}

/// A pre-tokenizer that splits after each space. It changes nothing, since the normalizer has replaced all spaces
/// before; it is here because the models' own `tokenizer.json` has it.
fn cut_after_spaces() -> Result<Split> {
    Split::new(SplitPattern::String(" ".into()), SplitDelimiterBehavior::MergedWithPrevious, false)
        .map_err(error::broken)
}

/// A decoder that turns [`SPACE`] into spaces and byte tokens into bytes, and joins the pieces; with `strip`, it
/// removes one space at the beginning.
fn decoder(strip: bool) -> Result<Decoders> {
    let replace = Replace::new(ReplacePattern::String(SPACE.into()), " ").map_err(error::broken)?;
    let mut steps: Vec<DecoderWrapper> = vec![replace.into(), ByteFallback::default().into(), Fuse::default().into()];
    if strip {
        steps.push(Strip::new(' ', 1, 0).into());
    }
    Ok(Decoders::new(steps))
}
