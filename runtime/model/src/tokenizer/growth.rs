//! Computes how much longer the steps of a tokenizer (normalizers, pre-tokenizers, post-processors, decoders) may make
//! a text.
//!
//! A `tokenizer.json` is an untrusted program: forty steps that double a text make a terabyte of it. So the greatest
//! growth of every step is computed before the first text goes through them, and a step that is not known is refused.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;
use tokenizers::{ModelWrapper, NormalizerWrapper};

/// The most times that the steps of a tokenizer may make a text longer: far more than any published one.
const MAX_FACTOR: u64 = 512;
/// The most bytes of a text after all steps.
pub(super) const MAX_BYTES: u64 = 64 << 20;
/// The most steps of a tokenizer. A sequence counts as one step, and each step in it as one more.
const MAX_STEPS: usize = 64;
/// The most ids that a post-processor may put around a text.
const MAX_SPECIAL_IDS: usize = 64;
/// The most bytes of the prefix and of the suffix that a BPE model adds to characters before it looks them up.
const MAX_AFFIX_BYTES: usize = 64;
/// The limit of the product of all repetition counts, such as `{2,5}`, in a regular expression.
const MAX_REPETITIONS: u64 = 10_000;
/// The most bytes of a regular expression.
const MAX_PATTERN_BYTES: usize = 8 << 10;

/// The greatest length of a text in bytes after some steps: `factor` times its length before, plus `extra`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Growth {
    factor: u64,
    extra: u64,
}

impl Growth {
    const NONE: Self = Self::times(1);

    /// The growth by a factor alone.
    const fn times(factor: u64) -> Self {
        Self { factor, extra: 0 }
    }

    /// The growth of these steps followed by `next`.
    fn then(self, next: Self) -> Self {
        let extra = self.extra.saturating_mul(next.factor).saturating_add(next.extra);
        Self { factor: self.factor.saturating_mul(next.factor), extra }
    }

    /// The largest number of bytes after the steps, if `bytes` go in.
    pub(super) fn max_bytes(self, bytes: usize) -> u64 {
        self.factor.saturating_mul(bytes as u64).saturating_add(self.extra)
    }

    /// Checks that `bytes` bytes stay within [`MAX_BYTES`] after the steps. Errors: they may become more.
    pub(super) fn check(self, bytes: usize) -> Result<(), String> {
        let most = self.max_bytes(bytes);
        if most <= MAX_BYTES {
            return Ok(());
        }
        Err(format!("of {bytes} bytes this tokenizer may make {most}, and at most {MAX_BYTES} are worked on"))
    }
}

/// The greatest growth by the steps of a tokenizer, computed before they run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    /// The growth of a text that is encoded.
    pub(super) encode: Growth,
    /// The growth of tokens that are decoded; their length is that of their spellings in bytes plus 1 for each token.
    pub(super) decode: Growth,
    /// The steps inspected so far, as [`MAX_STEPS`] counts them.
    count: usize,
}

impl Steps {
    /// Computes the growth by the steps of a tokenizer; runs none of them. Errors: a step that is not known or has no
    /// bound, more than [`MAX_STEPS`], a factor above [`MAX_FACTOR`], more than [`MAX_BYTES`] added to an empty text,
    /// or a BPE prefix or suffix longer than [`MAX_AFFIX_BYTES`].
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Result<Self, String> {
        // The library reads some steps by their keys and not by their name: what it made of them counts.
        let steps = Self::inspect(
            &json(tokenizer.get_normalizer())?,
            &json(tokenizer.get_pre_tokenizer())?,
            &json(tokenizer.get_post_processor())?,
            &json(tokenizer.get_decoder())?,
        )?;
        if let ModelWrapper::BPE(model) = tokenizer.get_model() {
            let affixes = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
            if affixes.into_iter().flatten().any(|affix| affix.len() > MAX_AFFIX_BYTES) {
                return Err(format!("it puts more than {MAX_AFFIX_BYTES} bytes beside every letter"));
            }
        }
        Ok(steps)
    }

    /// Checks the steps of a normalizer (`None` for no steps), and that added tokens of `bytes` bytes in total stay
    /// within [`MAX_BYTES`] after them. Errors: a step that is not known or has no bound, more than [`MAX_STEPS`], a
    /// factor above [`MAX_FACTOR`], or too many bytes.
    pub(super) fn check_normalizer(normalizer: Option<&NormalizerWrapper>, bytes: usize) -> Result<(), String> {
        Self::inspect(&json(normalizer)?, &Value::Null, &Value::Null, &Value::Null)?.encode.check(bytes)
    }

    /// Computes the growth by the parts of a tokenizer, each as the JSON that the library writes of it; null for none.
    /// `encode` is the growth of the normalizer followed by the pre-tokenizer; the post-processor is only checked.
    /// `decode` is that of the decoder, or a factor of 2 without one. Errors: a step that is not known or has no bound,
    /// more than [`MAX_STEPS`], a factor above [`MAX_FACTOR`], or more than [`MAX_BYTES`] added to an empty text.
    fn inspect(
        normalizer: &Value,
        pre_tokenizer: &Value,
        post_processor: &Value,
        decoder: &Value,
    ) -> Result<Self, String> {
        let mut steps = Self { encode: Growth::NONE, decode: Growth::times(2), count: 0 };
        let normalized = steps.sequence(normalizer, "normalizers", Self::normalizer_growth)?;
        steps.encode = normalized.then(steps.sequence(pre_tokenizer, "pretokenizers", Self::pre_tokenizer_growth)?);
        steps.sequence(post_processor, "processors", Self::post_processor_growth)?;
        if !decoder.is_null() {
            steps.decode = steps.sequence(decoder, "decoders", Self::decoder_growth)?;
        }
        for (growth, what) in [(steps.encode, "a text"), (steps.decode, "tokens")] {
            if growth.factor > MAX_FACTOR || growth.extra > MAX_BYTES {
                let (most, extra) = (growth.factor, growth.extra);
                return Err(format!(
                    "its steps may make {what} {most} times longer and {extra} bytes, at most {MAX_FACTOR} times"
                ));
            }
        }
        Ok(steps)
    }

    /// The growth of a step or, if it is a `Sequence`, of all steps in its list `key`, which may be sequences again.
    /// Null and a missing list do not grow. Adds to `count`. `growth` computes the growth of one step from its type and
    /// JSON; it returns `None` if the step is unknown or has no bound. Errors: such a step, or more than [`MAX_STEPS`].
    fn sequence(
        &mut self,
        step: &Value,
        key: &str,
        growth: fn(&str, &Value) -> Option<Growth>,
    ) -> Result<Growth, String> {
        if step.is_null() {
            return Ok(Growth::NONE);
        }
        self.count += 1;
        if self.count > MAX_STEPS {
            return Err(format!("it has more than {MAX_STEPS} steps"));
        }
        let name = step["type"].as_str().unwrap_or_default();
        if name != "Sequence" {
            return growth(name, step).ok_or_else(|| format!("its step `{name}` is not known, or has no bound"));
        }
        let mut all = Growth::NONE;
        for step in step[key].as_array().into_iter().flatten() {
            all = all.then(self.sequence(step, key, growth)?);
        }
        Ok(all)
    }

    /// The growth of a normalizer, from its type `name` and its JSON `step`; `None` if it is unknown or has no bound.
    /// It runs on every part of a text between added tokens, so what it adds to a part counts once for each byte.
    fn normalizer_growth(name: &str, step: &Value) -> Option<Growth> {
        Some(match name {
            "Strip" | "StripAccents" | "Nmt" => Growth::NONE,
            "Lowercase" | "ByteLevel" => Growth::times(2),
            "NFC" | "NFD" => Growth::times(3),
            "NFKC" | "NFKD" => Growth::times(11),
            // Spaces around ideographs, then decomposition, then small letters.
            "BertNormalizer" => Growth::times(2 * 3 * 2),
            "Prepend" => {
                let added = bytes(&step["prepend"])?;
                Growth { factor: added + 1, extra: added }
            }
            "Replace" => Self::replacement_growth(step)?,
            "Precompiled" => Growth::times(longest_replacement(step["precompiled_charsmap"].as_str()?)?.max(1)),
            _ => return None,
        })
    }

    /// The growth of a pre-tokenizer, from its type `name` and its JSON `step`; `None` if it is unknown, or its regular
    /// expression is too large. It may put a prefix before every part of a text, each of at least a byte.
    fn pre_tokenizer_growth(name: &str, step: &Value) -> Option<Growth> {
        Some(match name {
            "BertPreTokenizer" | "Whitespace" | "WhitespaceSplit" | "CharDelimiterSplit" | "Punctuation" | "Digits"
            | "UnicodeScripts" | "FixedLength" => Growth::NONE,
            "Split" => {
                if let Some(pattern) = step["pattern"]["Regex"].as_str() {
                    check_pattern(pattern)?;
                }
                Growth::NONE
            }
            "ByteLevel" if step["add_prefix_space"] == false => Growth::times(2),
            "ByteLevel" => Growth { factor: 4, extra: 2 },
            "Metaspace" => {
                let space = bytes(&step["replacement"])?;
                Growth { factor: if step["prepend_scheme"] == "never" { space } else { 2 * space }, extra: space }
            }
            _ => return None,
        })
    }

    /// No growth for a post-processor that keeps a text exactly once and adds at most [`MAX_SPECIAL_IDS`] ids; `None`
    /// for others.
    fn post_processor_growth(name: &str, step: &Value) -> Option<Growth> {
        let is_bounded = match name {
            "ByteLevel" | "BertProcessing" | "RobertaProcessing" => true,
            "TemplateProcessing" => {
                let pieces = step["single"].as_array()?;
                let texts = pieces.iter().filter(|piece| piece.get("Sequence").is_some()).count();
                let specials = pieces.iter().filter_map(|piece| piece.get("SpecialToken")?["id"].as_str());
                let ids = specials.filter_map(|id| step["special_tokens"][id]["ids"].as_array());
                texts == 1 && ids.map(Vec::len).sum::<usize>() <= MAX_SPECIAL_IDS
            }
            _ => false,
        };
        is_bounded.then_some(Growth::NONE)
    }

    /// The growth of a decoder, from its type `name` and its JSON `step`; `None` if it is unknown or has no bound. It
    /// may put a space before each token: lengths are the bytes of all tokens plus 1 for each.
    fn decoder_growth(name: &str, step: &Value) -> Option<Growth> {
        Some(match name {
            "Metaspace" | "ByteFallback" | "Fuse" | "Strip" => Growth::NONE,
            "BPEDecoder" | "WordPiece" | "CTC" => Growth::times(2),
            // Bytes that are no text become a replacement character each.
            "ByteLevel" => Growth::times(3),
            "Replace" => Self::replacement_growth(step)?,
            _ => return None,
        })
    }

    /// The growth of a `Replace`. With a literal pattern: the bytes of its `content` by those of the pattern, rounded
    /// up, at least 1. A regular expression or an empty pattern may match anywhere, so the content may stand on both
    /// sides of every byte. `None` without a pattern or content, or if [`check_pattern`] refuses the pattern.
    fn replacement_growth(step: &Value) -> Option<Growth> {
        let content = bytes(&step["content"])?;
        match (step["pattern"]["String"].as_str(), step["pattern"]["Regex"].as_str()) {
            (Some(text), _) if !text.is_empty() => Some(Growth::times(content.div_ceil(text.len() as u64).max(1))),
            (Some(_), _) => Some(Growth { factor: 1 + 2 * content, extra: content }),
            (None, Some(pattern)) => {
                check_pattern(pattern)?;
                Some(Growth { factor: 1 + 2 * content, extra: content })
            }
            (None, None) => None,
        }
    }
}

/// Returns `None` if a regular expression is longer than [`MAX_PATTERN_BYTES`] or its repetition counts multiply to
/// more than [`MAX_REPETITIONS`], since the engine expands repetitions in memory; else `Some(())`.
fn check_pattern(pattern: &str) -> Option<()> {
    (pattern.len() <= MAX_PATTERN_BYTES && repetitions(pattern) <= MAX_REPETITIONS).then_some(())
}

/// Converts a part of a tokenizer to the JSON that the library writes for it; `None` to null.
fn json(part: Option<&impl Serialize>) -> Result<Value, String> {
    serde_json::to_value(part).map_err(|error| error.to_string())
}

/// The number of bytes of a JSON text; `None` for another value, and for more than [`MAX_BYTES`].
fn bytes(value: &Value) -> Option<u64> {
    value.as_str().map(|text| text.len() as u64).filter(|bytes| *bytes <= MAX_BYTES)
}

/// The product of the highest counts of all repetitions such as `{2,5}` in a regular expression, saturating; 1 without
/// any. A count of 0 counts as 1; braces without a number, as in `\p{L}`, are skipped.
fn repetitions(pattern: &str) -> u64 {
    let counts = pattern.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(count, _)| count);
    let highest = |count: &str| count.split(',').filter_map(|part| part.trim().parse::<u64>().ok()).max();
    counts.filter_map(highest).fold(1, |all, count| all.saturating_mul(count.max(1)))
}

/// The bytes of the longest text in a SentencePiece map of characters. The map is base64 of the size in bytes of a trie
/// (little-endian `u32`), the trie, then texts that each end in a zero byte. `None` if the map is not base64 or ends
/// inside the trie.
fn longest_replacement(map: &str) -> Option<u64> {
    let map = STANDARD.decode(map).ok()?;
    let (size, rest) = map.split_first_chunk::<4>()?;
    let texts = rest.get(usize::try_from(u32::from_le_bytes(*size)).ok()?..)?;
    texts.split(|byte| *byte == 0).map(|text| text.len() as u64).max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn inspect(part: &str, step: Value) -> Result<Steps, String> {
        let of = |name| if name == part { step.clone() } else { Value::Null };
        Steps::inspect(&of("normalizer"), &of("pre_tokenizer"), &of("post_processor"), &of("decoder"))
    }

    fn repeated(key: &str, step: &Value, times: usize) -> Value {
        json!({ "type": "Sequence", key: vec![step.clone(); times] })
    }

    #[test]
    fn steps_that_double_a_text_are_refused_wherever_they_stand() {
        let doubling = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
        let anywhere = json!({ "type": "Replace", "pattern": { "Regex": "" }, "content": "a" });
        let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": false });
        let prefix = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always" });
        let bpe = json!({ "type": "BPEDecoder", "suffix": "" });
        for (part, key, step) in [
            ("normalizer", "normalizers", &doubling),
            ("normalizer", "normalizers", &anywhere),
            ("normalizer", "normalizers", &json!({ "type": "ByteLevel" })),
            ("normalizer", "normalizers", &json!({ "type": "Prepend", "prepend": "aaaa" })),
            ("pre_tokenizer", "pretokenizers", &byte_level),
            ("pre_tokenizer", "pretokenizers", &prefix),
            ("decoder", "decoders", &doubling),
            ("decoder", "decoders", &bpe),
        ] {
            assert!(inspect(part, repeated(key, step, 1)).is_ok(), "{step}");
            let error = inspect(part, repeated(key, &repeated(key, step, 10), 4)).unwrap_err();
            assert!(error.contains("times longer"), "{step}: {error}");
        }
        let long = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "a".repeat(1 << 20) });
        assert!(inspect("normalizer", long.clone()).is_err() && inspect("decoder", long).is_err());
        assert!(inspect("normalizer", repeated("normalizers", &json!({ "type": "Strip" }), 100)).is_err());
        assert!(inspect("normalizer", json!({ "type": "Invented" })).unwrap_err().contains("`Invented` is not known"));
    }

    #[test]
    fn a_post_processor_keeps_the_text_once() {
        let template = |single: Value, ids: usize| {
            let tokens = json!({ "s": { "id": "s", "ids": vec![1; ids], "tokens": vec!["s"; ids] } });
            json!({ "type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": tokens })
        };
        let (text, special) = (json!({ "Sequence": { "id": "A" } }), json!({ "SpecialToken": { "id": "s" } }));
        assert!(inspect("post_processor", template(json!([special, text]), 2)).is_ok());
        for refused in [template(json!([text, text]), 1), template(json!([special, text]), 100)] {
            assert!(inspect("post_processor", refused).is_err());
        }
    }

    #[test]
    fn regular_expressions_do_not_count_high() {
        let split = |regex: &str| json!({ "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated" });
        assert!(inspect("pre_tokenizer", split("(?:a{1000})b")).is_ok());
        assert!(inspect("pre_tokenizer", split("(?:(?=a){1000}){1000}")).is_err());
    }

    #[test]
    fn a_map_of_characters_counts_by_its_longest_text() {
        let map = |texts: &[u8]| STANDARD.encode([&4_u32.to_le_bytes()[..], &[0; 4], texts].concat());
        assert_eq!(longest_replacement(&map(b"a\0bcd\0")), Some(3));
        assert_eq!(longest_replacement("AAA"), None);
    }
}
