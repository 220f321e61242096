//! A byte-level BPE (GPT-2, Llama 3, Qwen) from GGUF metadata: `tokenizer.ggml.model = "gpt2"`.
//!
//! The file only names, in `tokenizer.ggml.pre`, how text is split into words before merging; the regular expressions
//! with which the models were trained are here. The caller adds special tokens and the ids around a text.

use serde_json::Value;
use tokenizers::models::ModelWrapper;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{NormalizedString, Normalizer, SplitDelimiterBehavior, normalizers};

use super::gguf::{Kind, Vocabulary};
use super::{error, merges};
use crate::error::Result;

/// Builds the library's tokenizer with model, decoder, and the pre-tokenizer and normalizer of `style`. Merges come
/// from the vocabulary, or are derived from its scores if it has none. Errors: a merge that is not two pieces, or whose
/// pieces or their union are not in the vocabulary.
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
    apply_style(style, &mut tokenizer)?;
    tokenizer.with_decoder(Some(ByteLevel::default()));
    Ok(tokenizer)
}

/// Splits a line of `tokenizer.ggml.merges` at its first space into the left and the right piece. Errors: no space.
fn pair(line: &str) -> Result<(String, String)> {
    let missing = || error::missing("tokenizer.ggml.merges", "two pieces with a space between them");
    line.split_once(' ').map(|(left, right)| (left.to_owned(), right.to_owned())).ok_or_else(missing)
}

/// Returns a token as it is if it is a control or user-defined token, which is matched as text before any merging, or
/// already in the alphabet of 256 printable characters that stand for bytes (`is_in_alphabet`). Spells other tokens,
/// which some converters leave as plain text, byte by byte in that alphabet. Errors: those of the library's normalizer.
fn spell(token: &str, kind: Kind, is_in_alphabet: impl Fn(char) -> bool) -> Result<String> {
    let plain = matches!(kind, Kind::Control | Kind::UserDefined);
    if plain || token.chars().all(is_in_alphabet) {
        return Ok(token.to_owned());
    }
    let mut text = NormalizedString::from(token);
    normalizers::ByteLevel::new().normalize(&mut text).map_err(error::broken)?;
    Ok(text.get().to_owned())
}

// The patterns by which models split text into words, as in their own `tokenizer.json`.
const LLAMA_3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN_2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN_35: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const GPT_4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// How text is split into words before merging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Splitting {
    /// By GPT-2's pattern, which is built into the library's `ByteLevel`.
    Words,
    /// Every digit alone, then GPT-2's pattern.
    DigitsThenWords,
    /// By this regular expression.
    Pattern(&'static str),
}

/// What a name in `tokenizer.ggml.pre` stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    splitting: Splitting,
    /// Whether text is normalized to NFC first.
    composed: bool,
    /// Whether a word that is in the vocabulary becomes one token without any merging.
    pub(super) whole_words: bool,
    /// Whether a beginning-of-text token is added if the file does not say.
    pub(super) opens_with_bos: bool,
}

impl Style {
    /// A style with this splitting and all options off.
    const fn new(splitting: Splitting) -> Self {
        Self { splitting, composed: false, whole_words: false, opens_with_bos: false }
    }
}

/// All known names, grouped by style.
const STYLES: [(&[&str], Style); 9] = [
    (&["gpt-2", "gpt2", "default", "olmo", "phi-2", "mpt", "jais"], Style::new(Splitting::Words)),
    (&["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"], Style::new(Splitting::DigitsThenWords)),
    (
        &["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        Style { whole_words: true, opens_with_bos: true, ..Style::new(Splitting::Pattern(LLAMA_3)) },
    ),
    (&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4"], Style::new(Splitting::Pattern(LLAMA_3))),
    (&["tekken"], Style { whole_words: true, opens_with_bos: true, ..Style::new(Splitting::Pattern(TEKKEN)) }),
    (
        &["qwen2", "deepseek-r1-qwen", "kormo", "megrez"],
        Style { composed: true, ..Style::new(Splitting::Pattern(QWEN_2)) },
    ),
    (&["stablelm2"], Style::new(Splitting::Pattern(QWEN_2))),
    (&["qwen35"], Style { composed: true, ..Style::new(Splitting::Pattern(QWEN_35)) }),
    (&["gpt-4o", "llama4", "kanana2", "minimax-m2"], Style::new(Splitting::Pattern(GPT_4O))),
];

/// The style with this name.
///
/// # Errors
/// When no style has this name: a guess would give ids that the model was never trained on.
pub(super) fn find_style(name: &str) -> Result<Style> {
    let style = STYLES.iter().find(|(names, _)| names.contains(&name)).map(|(_, style)| *style);
    let known = || STYLES.iter().flat_map(|(names, _)| *names).copied();
    style.ok_or_else(|| error::unknown("pre-tokenizer", name, known()))
}

/// The first name of the style that splits and normalizes text as `tokenizer` does, and like it takes or does not take
/// a word in the vocabulary as one token without merging. `None` if no style does. Errors: a part has no JSON.
pub(super) fn name_style(tokenizer: &tokenizers::Tokenizer) -> Result<Option<&'static str>> {
    let wanted = steps(tokenizer)?;
    let whole_words = matches!(tokenizer.get_model(), ModelWrapper::BPE(model) if model.ignore_merges);
    for (names, style) in STYLES {
        let mut plain = tokenizers::Tokenizer::new(BPE::default());
        apply_style(style, &mut plain)?;
        if style.whole_words == whole_words && steps(&plain)? == wanted {
            return Ok(names.first().copied());
        }
    }
    Ok(None)
}

/// Lists the normalizer (null for none), then each pre-tokenizer, as JSON for comparison, without `trim_offsets`, which
/// changes no token.
fn steps(tokenizer: &tokenizers::Tokenizer) -> Result<Vec<Value>> {
    let normalizer = serde_json::to_value(tokenizer.get_normalizer()).map_err(error::broken)?;
    let splitting = serde_json::to_value(tokenizer.get_pre_tokenizer()).map_err(error::broken)?;
    let mut steps = vec![normalizer];
    match splitting.get("pretokenizers").and_then(Value::as_array) {
        Some(list) => steps.extend(list.iter().cloned()),
        None => steps.push(splitting),
    }
    for step in steps.iter_mut().filter_map(Value::as_object_mut) {
        step.remove("trim_offsets");
    }
    Ok(steps)
}

/// Sets the tokenizer's pre-tokenizer: the style's splitting into words, then the spelling of bytes in the alphabet of
/// byte-level models, without a space before the text. Sets an NFC normalizer if the style is `composed`, else leaves
/// the normalizer as it is.
pub(super) fn apply_style(style: Style, tokenizer: &mut tokenizers::Tokenizer) -> Result<()> {
    if style.composed {
        tokenizer.with_normalizer(Some(NFC)).map_err(error::broken)?;
    }
    let steps: Vec<PreTokenizerWrapper> = match style.splitting {
        Splitting::Words => vec![ByteLevel::new(false, true, true).into()],
        Splitting::DigitsThenWords => vec![Digits::new(true).into(), ByteLevel::new(false, true, true).into()],
        Splitting::Pattern(pattern) => {
            let pattern = SplitPattern::Regex(pattern.to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(error::broken)?;
            vec![split.into(), ByteLevel::new(false, true, false).into()]
        }
    };
    tokenizer.with_pre_tokenizer(Some(Sequence::new(steps)));
    Ok(())
}
