//! A tokenizer out of the metadata of a GGUF file.
//!
//! Reads the keys and adds the special tokens; the two kinds of model are built by `byte_level`
//! and `sentence_piece`.

use tokenizers::AddedToken;

use super::special::{Special, Specials};
use super::{Tokenizer, TokenizerError, byte_level, sentence_piece, splits};
use crate::foreign::shielded;
use crate::weights::gguf::{Metadata, Value};

/// What a token is, from `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text, bytes, unused places: nothing to do.
    Ordinary,
    /// A control token, whose name is not text.
    Control,
    /// A piece of text that always stays whole.
    UserDefined,
}

/// The vocabulary as the file stores it, by id.
pub(super) struct Vocabulary {
    pub(super) tokens: Vec<String>,
    pub(super) scores: Vec<f64>,
    pub(super) kinds: Vec<Kind>,
    pub(super) merges: Option<Vec<String>>,
    pub(super) space_prefix: bool,
    unknown: Option<u32>,
}

impl Vocabulary {
    fn read(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let tokens = texts(metadata, "tokenizer.ggml.tokens")?
            .ok_or_else(|| missing("tokenizer.ggml.tokens", "a list of texts"))?;
        let kinds = numbers(metadata, "tokenizer.ggml.token_type")?.into_iter().map(kind).collect::<Vec<_>>();
        let kinds = kinds.into_iter().chain(std::iter::repeat(Kind::Ordinary)).take(tokens.len()).collect();
        Ok(Self {
            scores: numbers(metadata, "tokenizer.ggml.scores")?,
            merges: texts(metadata, "tokenizer.ggml.merges")?,
            space_prefix: flag(metadata, "tokenizer.ggml.add_space_prefix").unwrap_or(true),
            unknown: id(metadata, "tokenizer.ggml.unknown_token_id"),
            tokens,
            kinds,
        })
    }

    /// The token for what cannot be spelt.
    pub(super) fn unknown(&self) -> Option<&str> {
        self.unknown.and_then(|id| self.tokens.get(id as usize)).map(String::as_str)
    }
}

impl Tokenizer {
    /// The tokenizer that a GGUF file describes, from its metadata.
    ///
    /// # Errors
    /// [`TokenizerError::Metadata`] for a missing key, [`TokenizerError::Unknown`] for a kind of tokenizer or
    /// pre-tokenizer that is not known.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        shielded(|| Self::read_gguf(metadata)).unwrap_or_else(|detail| Err(TokenizerError::Broken { detail }))
    }

    fn read_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let vocabulary = Vocabulary::read(metadata)?;
        let (mut inner, opens) = match text(metadata, "tokenizer.ggml.model") {
            Some("gpt2") => {
                let style = splits::find(text(metadata, "tokenizer.ggml.pre").unwrap_or("default"))?;
                (byte_level::build(&vocabulary, style)?, style.opens_with_bos)
            }
            Some("llama") => {
                let architecture = text(metadata, "general.architecture").unwrap_or_default();
                (sentence_piece::build(&vocabulary, architecture)?, true)
            }
            Some(found) => {
                let known = vec!["gpt2", "llama"];
                return Err(TokenizerError::Unknown { what: "tokenizer", found: found.to_owned(), known });
            }
            None => return Err(missing("tokenizer.ggml.model", "the kind of tokenizer")),
        };

        let specials = specials(metadata, &vocabulary, &mut inner)?;
        let bos = flag(metadata, "tokenizer.ggml.add_bos_token").unwrap_or(opens);
        let eos = flag(metadata, "tokenizer.ggml.add_eos_token").unwrap_or(false);
        let around = |wanted: bool, role| specials.id(role).filter(|_| wanted).into_iter().collect();
        let (leading, trailing) = (around(bos, "bos_token"), around(eos, "eos_token"));
        Self::assemble(inner, leading, trailing, specials)
    }
}

/// Registers control and user-defined tokens, and finds those with a role.
fn specials(
    metadata: &Metadata,
    vocabulary: &Vocabulary,
    inner: &mut tokenizers::Tokenizer,
) -> Result<Specials, TokenizerError> {
    let mut found = Specials::default();
    for (role, key) in [
        ("bos_token", "bos_token_id"),
        ("eos_token", "eos_token_id"),
        ("unk_token", "unknown_token_id"),
        ("pad_token", "padding_token_id"),
    ] {
        let Some(id) = id(metadata, &format!("tokenizer.ggml.{key}")) else { continue };
        let Some(text) = vocabulary.tokens.get(id as usize) else { continue };
        found.named.push(Special { role: role.to_owned(), text: text.clone(), id });
    }

    let of = |wanted: Kind| vocabulary.tokens.iter().zip(&vocabulary.kinds).filter(move |(_, kind)| **kind == wanted);
    let known = |inner: &tokenizers::Tokenizer, token: &str| inner.token_to_id(token).is_some();
    let control: Vec<AddedToken> = of(Kind::Control)
        .map(|(token, _)| token)
        .chain(found.named.iter().map(|special| &special.text))
        .filter(|token| known(inner, token))
        .map(|token| AddedToken::from(token.as_str(), true).normalized(false))
        .collect();
    inner.add_special_tokens(control).map_err(TokenizerError::broken)?;
    let defined: Vec<AddedToken> = of(Kind::UserDefined)
        .filter(|(token, _)| known(inner, token))
        .map(|(token, _)| AddedToken::from(token.as_str(), false).normalized(false))
        .collect();
    inner.add_tokens(defined).map_err(TokenizerError::broken)?;

    for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        if let Some(id) = id(metadata, &format!("tokenizer.ggml.{key}")) {
            found.add_eos(id);
        }
    }
    found.add_turn_ends(inner);
    Ok(found)
}

fn missing(key: &str, wanted: &'static str) -> TokenizerError {
    TokenizerError::Metadata { key: key.to_owned(), wanted }
}

fn kind(code: f64) -> Kind {
    match code as i64 {
        3 => Kind::Control,
        4 => Kind::UserDefined,
        _ => Kind::Ordinary,
    }
}

fn text<'a>(metadata: &'a Metadata, key: &str) -> Option<&'a str> {
    metadata.string(key)
}

fn flag(metadata: &Metadata, key: &str) -> Option<bool> {
    metadata.bool(key)
}

fn id(metadata: &Metadata, key: &str) -> Option<u32> {
    metadata.u32(key)
}

fn texts(metadata: &Metadata, key: &str) -> Result<Option<Vec<String>>, TokenizerError> {
    if !metadata.contains(key) {
        return Ok(None);
    }
    let texts = metadata.strings(key).ok_or_else(|| missing(key, "a list of texts"))?;
    Ok(Some(texts.to_vec()))
}

fn numbers(metadata: &Metadata, key: &str) -> Result<Vec<f64>, TokenizerError> {
    match metadata.value(key) {
        None => Ok(Vec::new()),
        Some(Value::Numbers(numbers)) => Ok(numbers.iter().copied().map(f64::from).collect()),
        Some(Value::Integers(numbers)) => Ok(numbers.iter().map(|number| *number as f64).collect()),
        Some(_) => Err(missing(key, "a list of numbers")),
    }
}
