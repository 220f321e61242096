//! How text is cut into words before byte-level merging, by the name in `tokenizer.ggml.pre`.
//!
//! The patterns are facts of the models' training; the file only names them.

use tokenizers::SplitDelimiterBehavior;
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

use super::error;
use crate::error::Result;

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

/// How words are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Splitting {
    /// GPT-2's pattern, which the byte-level part brings itself.
    Words,
    /// Every digit alone, then GPT-2's pattern.
    DigitsThenWords,
    /// The model's own pattern.
    Pattern(&'static str),
}

/// What a name in `tokenizer.ggml.pre` stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    splitting: Splitting,
    /// Characters are composed (NFC) first.
    composed: bool,
    /// A word that is in the vocabulary is one token; its letters are not merged.
    pub(super) whole_words: bool,
    /// A beginning-of-text token is expected where the file does not say.
    pub(super) opens_with_bos: bool,
}

impl Style {
    /// A style with this splitting and all options off.
    const fn new(splitting: Splitting) -> Self {
        Self { splitting, composed: false, whole_words: false, opens_with_bos: false }
    }
}

/// Every name that is known, by its style.
const STYLES: [(&[&str], Style); 9] = [
    (&["default", "gpt-2", "gpt2", "olmo", "phi-2", "mpt", "jais"], Style::new(Splitting::Words)),
    (&["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"], Style::new(Splitting::DigitsThenWords)),
    (
        &["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        Style { whole_words: true, opens_with_bos: true, ..Style::new(Splitting::Pattern(LLAMA_3)) },
    ),
    (&["dbrx", "smaug-bpe"], Style::new(Splitting::Pattern(LLAMA_3))),
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

/// Sets the tokenizer's pre-tokenizer, and its NFC normalizer if the style has one.
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
