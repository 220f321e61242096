//! A tokenizer out of the metadata of a GGUF file.
//!
//! Reads the keys and adds the special tokens; the two kinds of model are built by `byte_level`
//! and `sentence_piece`.

use tokenizers::AddedToken;
use tunebox_foundation::panics::catch_panic;

use super::error::{self, missing};
use super::special::{Special, Specials};
use super::{Tokenizer, byte_level, sentence_piece};
use crate::error::Result;
use crate::watchdog::Work;
use crate::weights::gguf::{Metadata, Value};

/// What a token is, from `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text, a byte or an unused entry, which need not be registered.
    Ordinary,
    /// A control token, whose name is not text.
    Control,
    /// A piece of text that always stays whole.
    UserDefined,
}

/// The added tokens of Phi-3 that do not strip the white space after them; all its others do. GGUF has no key for
/// that, so the architecture decides (in llama.cpp, the model's name).
const PHI3_KEEPING: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];

/// The vocabulary as the file stores it, by id.
pub(super) struct Vocabulary {
    pub(super) tokens: Vec<String>,
    /// The scores of the tokens; may be shorter than `tokens`, or empty.
    pub(super) scores: Vec<f64>,
    /// The kinds of the tokens; as long as `tokens`.
    pub(super) kinds: Vec<Kind>,
    /// The merges in order, each as two pieces with a space between them; `None` if the file has none.
    pub(super) merges: Option<Vec<String>>,
    /// Whether a space is put before a text; true if the file does not say.
    pub(super) space_prefix: bool,
    /// The id of the token that stands for text that cannot be spelled.
    unknown: Option<u32>,
}

impl Vocabulary {
    /// Reads tokens, scores, kinds, merges and options from `tokenizer.ggml.*`. Tokens without a kind are ordinary.
    /// Kinds beyond the tokens are dropped. Errors: no token list, tokens or merges that are not texts, or kinds or
    /// scores that are not numbers.
    fn read(metadata: &Metadata) -> Result<Self> {
        let tokens = texts(metadata, "tokenizer.ggml.tokens")?
            .ok_or_else(|| missing("tokenizer.ggml.tokens", "a list of texts"))?;
        let kinds = numbers(metadata, "tokenizer.ggml.token_type")?.into_iter().map(kind).collect::<Vec<_>>();
        let kinds = kinds.into_iter().chain(std::iter::repeat(Kind::Ordinary)).take(tokens.len()).collect();
        Ok(Self {
            scores: numbers(metadata, "tokenizer.ggml.scores")?,
            merges: texts(metadata, "tokenizer.ggml.merges")?,
            space_prefix: metadata.bool("tokenizer.ggml.add_space_prefix").unwrap_or(true),
            unknown: metadata.u32("tokenizer.ggml.unknown_token_id"),
            tokens,
            kinds,
        })
    }

    /// The token that stands for text that cannot be spelled; `None` if the file names none, or an id without a token.
    pub(super) fn unknown(&self) -> Option<&str> {
        self.unknown.and_then(|id| self.tokens.get(id as usize)).map(String::as_str)
    }
}

impl Tokenizer {
    /// Builds the tokenizer that the metadata of a GGUF file describes.
    ///
    /// # Errors
    /// When the tokens or the kind of tokenizer are missing, the kind is not `gpt2` or `llama`, the pre-tokenizer of a
    /// `gpt2` tokenizer is not known, a list has elements of another type, or a merge has pieces that are not tokens.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self> {
        let work = Work::on_file("reading the tokenizer", metadata.path());
        let _mark = work.begin();
        catch_panic(|| Self::read_gguf(metadata)).unwrap_or_else(|panic| Err(error::broken(panic)))
    }

    /// Does the work of [`Tokenizer::from_gguf`], without catching panics of the library. If the file does not say, a
    /// text gets a beginning-of-text token for SentencePiece models and for byte-level styles that open with one, and
    /// no end-of-text token. A byte-level model without a named pre-tokenizer uses `default`.
    fn read_gguf(metadata: &Metadata) -> Result<Self> {
        let vocabulary = Vocabulary::read(metadata)?;
        let (mut inner, opens) = match metadata.string("tokenizer.ggml.model") {
            Some("gpt2") => {
                let style = byte_level::find_style(metadata.string("tokenizer.ggml.pre").unwrap_or("default"))?;
                (byte_level::build(&vocabulary, style)?, style.opens_with_bos)
            }
            Some("llama") => {
                let architecture = metadata.string("general.architecture").unwrap_or_default();
                (sentence_piece::build(&vocabulary, architecture)?, true)
            }
            Some(found) => return Err(error::unknown("tokenizer", found, ["gpt2", "llama"].into_iter())),
            None => return Err(missing("tokenizer.ggml.model", "the kind of tokenizer")),
        };

        let specials = register_specials(metadata, &vocabulary, &mut inner)?;
        let bos = metadata.bool("tokenizer.ggml.add_bos_token").unwrap_or(opens);
        let eos = metadata.bool("tokenizer.ggml.add_eos_token").unwrap_or(false);
        let around = |wanted: bool, role| specials.id(role).filter(|_| wanted).into_iter().collect();
        let (leading, trailing) = (around(bos, "bos_token"), around(eos, "eos_token"));
        Self::assemble(inner, leading, trailing, specials, metadata.path())
    }
}

/// Registers control and user-defined tokens and the tokens with a role in `inner`. Returns the tokens that the file
/// names for a role, such as `bos_token`, without those whose id is past the vocabulary, and the ids that end an
/// answer: those that the file names as end of text, of turn and of message, then the special tokens spelled as in
/// [`TURN_ENDS`](super::special::TURN_ENDS).
fn register_specials(
    metadata: &Metadata,
    vocabulary: &Vocabulary,
    inner: &mut tokenizers::Tokenizer,
) -> Result<Specials> {
    let mut found = Specials::default();
    for (role, key) in [
        ("bos_token", "bos_token_id"),
        ("eos_token", "eos_token_id"),
        ("unk_token", "unknown_token_id"),
        ("pad_token", "padding_token_id"),
    ] {
        let Some(id) = metadata.u32(&format!("tokenizer.ggml.{key}")) else { continue };
        let Some(text) = vocabulary.tokens.get(id as usize) else { continue };
        found.named.push(Special { role: role.to_owned(), text: text.clone(), id });
    }

    register(metadata, vocabulary, &found.named, inner)?;
    for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        if let Some(id) = metadata.u32(&format!("tokenizer.ggml.{key}")) {
            found.add_eos(id);
        }
    }
    found.add_turn_ends(inner);
    Ok(found)
}

/// Registers control tokens and the tokens with a role (`named`) as special, and user-defined ones as whole pieces of
/// text; all are matched before normalization. Skips tokens that the model of `inner` does not have. In Phi-3's files
/// with a SentencePiece model, all but [`PHI3_KEEPING`] also strip the white space after them.
fn register(
    metadata: &Metadata,
    vocabulary: &Vocabulary,
    named: &[Special],
    inner: &mut tokenizers::Tokenizer,
) -> Result<()> {
    let phi3 = metadata.string("general.architecture") == Some("phi3")
        && metadata.string("tokenizer.ggml.model") == Some("llama");
    let added = |token: &str, special: bool| {
        let strips = phi3 && !PHI3_KEEPING.contains(&token);
        AddedToken::from(token, special).normalized(false).rstrip(strips)
    };
    let of = |wanted: Kind| {
        let kinds = vocabulary.tokens.iter().zip(&vocabulary.kinds);
        kinds.filter(move |(_, kind)| **kind == wanted).map(|(token, _)| token.as_str())
    };
    let known = |token: &&str| inner.token_to_id(token).is_some();
    let roles = named.iter().map(|special| special.text.as_str());
    let control: Vec<AddedToken> =
        of(Kind::Control).chain(roles).filter(known).map(|token| added(token, true)).collect();
    let defined: Vec<AddedToken> = of(Kind::UserDefined).filter(known).map(|token| added(token, false)).collect();
    inner.add_special_tokens(control).map_err(error::broken)?;
    inner.add_tokens(defined).map_err(error::broken)?;
    Ok(())
}

/// The kind of a token from its code in `tokenizer.ggml.token_type`: 3 is control, 4 user-defined, all others ordinary.
fn kind(code: f64) -> Kind {
    match code as i64 {
        3 => Kind::Control,
        4 => Kind::UserDefined,
        _ => Kind::Ordinary,
    }
}

/// The list of texts of a key; `None` if it is missing. An empty list of numbers counts as one of texts. Errors:
/// another type.
fn texts(metadata: &Metadata, key: &str) -> Result<Option<Vec<String>>> {
    match metadata.value(key) {
        None => Ok(None),
        Some(Value::Texts(texts)) => Ok(Some(texts.clone())),
        // An empty list may have any element type.
        Some(Value::Numbers(numbers)) if numbers.is_empty() => Ok(Some(Vec::new())),
        Some(_) => Err(missing(key, "a list of texts")),
    }
}

/// The list of numbers of a key; empty if it is missing. Errors: another type.
fn numbers(metadata: &Metadata, key: &str) -> Result<Vec<f64>> {
    match metadata.value(key) {
        None => Ok(Vec::new()),
        Some(Value::Numbers(numbers)) => Ok(numbers.clone()),
        Some(_) => Err(missing(key, "a list of numbers")),
    }
}
