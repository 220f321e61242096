//! Reads the keys of a GGUF file's metadata that all families share.
//! Leaves the keys of single families to their own files, and the reading of the file to `weights`.

use super::family::Family;
use super::rope::{GLOBAL, LOCAL};
use crate::configuration::rope::yarn_attention_factor;
use crate::configuration::{Configuration, LayerKind, RopeScaling, RopeSetting};
use crate::error::{Error, Result};
use crate::weights::gguf::{Metadata, Value};

/// Facts about a model that a GGUF file shows by its tensors, not by its metadata.
#[derive(Debug, Clone, Default)]
pub struct TensorFacts {
    /// Rows of the embedding.
    pub vocabulary: usize,
    /// Whether the file has no output head, so that the embedding matrix is used instead.
    pub tied: bool,
    /// Whether queries, keys and values have biases.
    pub attention_bias: bool,
    /// Whether the attention's output has a bias.
    pub output_bias: bool,
    /// Whether gate, up and down have biases.
    pub feed_forward_bias: bool,
    /// The divisors of the rotation frequencies from `rope_freqs.weight`, which store Llama 3's scaling; `None` without
    /// this tensor.
    pub rope_divisors: Option<Vec<f64>>,
    /// LongRoPE's divisors of the rotation frequencies, for short and for long sequences, in this order; `None` if the
    /// file has none.
    pub rope_factors: Option<[Vec<f64>; 2]>,
}

/// Reads the configuration of a GGUF file of this family; `architecture` is the prefix of its keys. Leaves the check of
/// values to the caller.
pub(super) fn read(
    metadata: &Metadata,
    family: &Family,
    architecture: &str,
    facts: TensorFacts,
) -> Result<Configuration> {
    let keys = Keys { metadata, architecture };
    let mut configuration = shared_keys(&keys, family, &facts)?;
    configuration.ropes = vec![rope(&keys, &configuration, facts)?];
    read_special(metadata, &mut configuration);
    (family.from_gguf)(&keys, &mut configuration)?;
    Ok(configuration)
}

/// A decoder of this family with the sizes and biases that all families read from the same keys and tensor facts.
/// Defaults: heads as wide as hidden dimension / query heads, as many key heads as query heads, an epsilon of 1e-6, and
/// a context of 2,048 tokens. Errors: a size without a default is missing, or values are not as wide as keys.
fn shared_keys(keys: &Keys<'_>, family: &Family, facts: &TensorFacts) -> Result<Configuration> {
    let hidden = keys.size("embedding_length")?;
    let layers = keys.size("block_count")?;
    let heads = keys.size("attention.head_count")?;
    let whole = hidden.checked_div(heads).unwrap_or(0);
    let head_dim = keys.optional_size("attention.key_length")?.unwrap_or(whole);
    if keys.optional_size("attention.value_length")?.is_some_and(|width| width != head_dim) {
        return Err(keys.value_error("attention.value_length", "values as wide as keys"));
    }
    let mut configuration = Configuration {
        intermediate: keys.size("feed_forward_length")?,
        kv_heads: keys.optional_size("attention.head_count_kv")?.unwrap_or(heads),
        rotated: rotated_features(keys, family, head_dim)?,
        vocabulary: facts.vocabulary,
        norm_epsilon: keys.number("attention.layer_norm_rms_epsilon").unwrap_or(1e-6),
        tied: facts.tied,
        attention_bias: facts.attention_bias,
        output_bias: facts.output_bias,
        feed_forward_bias: facts.feed_forward_bias,
        max_positions: keys.optional_size("context_length")?.unwrap_or(2048),
        ..Configuration::plain(family.name, hidden, layers, heads, head_dim)
    };
    (family.set_architecture)(&mut configuration);
    Ok(configuration)
}

/// The number of features of a head that are rotated, from `rope.dimension_count`; `head_dim` if the key is missing.
/// Errors: another number than `head_dim` in a family that rotates all features, or one that is 0, odd or above
/// `head_dim`.
fn rotated_features(keys: &Keys<'_>, family: &Family, head_dim: usize) -> Result<usize> {
    const KEY: &str = "rope.dimension_count";
    let Some(rotated) = keys.optional_size(KEY)? else { return Ok(head_dim) };
    if rotated != head_dim && family.partial_rotation.is_none() {
        return Err(keys.value_error(KEY, "a rotation of the whole head"));
    }
    if rotated == 0 || rotated > head_dim || !rotated.is_multiple_of(2) {
        return Err(keys.value_error(KEY, "an even number of features up to the width of a head"));
    }
    Ok(rotated)
}

/// Sets the tokens that end an answer (end of text, then end of turn if it differs), the beginning-of-text and the
/// padding token from the tokenizer's metadata; missing ones become none.
fn read_special(metadata: &Metadata, configuration: &mut Configuration) {
    let id = |key: &str| metadata.u32(&format!("tokenizer.ggml.{key}_token_id"));
    configuration.eos = [id("eos"), id("eot")].into_iter().flatten().collect();
    configuration.eos.dedup();
    configuration.bos = id("bos");
    configuration.pad = id("padding");
}

/// The rotation of a GGUF file, with base 10,000 by default: LongRoPE factors from tensors first, else divisors from a
/// tensor, else the metadata's scaling: none, linear or YaRN. A factor without a type of scaling means linear; a factor
/// of 0 counts as missing. Errors: another scaling, YaRN without a factor, or LongRoPE without an original context.
fn rope(keys: &Keys<'_>, configuration: &Configuration, facts: TensorFacts) -> Result<RopeSetting> {
    let theta = keys.number("rope.freq_base").unwrap_or(10_000.0);
    if let Some([short_factor, long_factor]) = facts.rope_factors {
        let original = keys.size("rope.scaling.original_context_length")?;
        let attention_factor = keys.number("rope.scaling.attn_factor").unwrap_or(1.0);
        let scaling = RopeScaling::Long { short_factor, long_factor, original, attention_factor };
        return Ok(RopeSetting { theta, scaling });
    }
    if let Some(divisors) = facts.rope_divisors {
        return Ok(RopeSetting { theta, scaling: RopeScaling::Divided { divisors } });
    }
    // `scale_linear` is the key of older files.
    let factor =
        keys.number("rope.scaling.factor").or(keys.number("rope.scale_linear")).filter(|factor| *factor != 0.0);
    let kind = keys.text("rope.scaling.type").unwrap_or(if factor.is_some() { "linear" } else { "none" });
    let scaling = match (kind, factor) {
        ("none", _) | ("linear", None) => RopeScaling::None,
        ("linear", Some(factor)) => RopeScaling::Linear { factor },
        ("yarn", Some(factor)) => {
            let original = keys.optional_size("rope.scaling.original_context_length")?;
            let weight = keys.number("rope.scaling.attn_factor").unwrap_or(1.0);
            RopeScaling::Yarn {
                factor,
                original: original.unwrap_or(configuration.max_positions),
                beta_fast: keys.number("rope.scaling.yarn_beta_fast").unwrap_or(32.0),
                beta_slow: keys.number("rope.scaling.yarn_beta_slow").unwrap_or(1.0),
                attention_factor: weight * yarn_attention_factor(factor, 1.0),
                truncate: true,
            }
        }
        _ => return Err(keys.value_error("rope.scaling.type", "one of none, linear, yarn")),
    };
    Ok(RopeSetting { theta, scaling })
}

/// Sets `window`, in tokens, and the local rotation on local layers, and the global rotation on the others; appends the
/// local rotation to `ropes`, with the base `rope.freq_base_swa`, or `theta` if the key is missing. The key
/// `attention.sliding_window_pattern` holds a list with a number other than 0 for each local layer, or the period of
/// global layers; if it is missing or 0, the period is `usual`.
pub(super) fn set_local_layers(
    keys: &Keys<'_>,
    configuration: &mut Configuration,
    window: usize,
    usual: usize,
    theta: f64,
) -> Result<()> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    let pattern = keys.numbers(PATTERN);
    let period = match pattern {
        Some(_) => usual,
        None => keys.optional_size(PATTERN)?.filter(|period| *period > 0).unwrap_or(usual),
    };
    for (layer, kind) in configuration.layer_kinds.iter_mut().enumerate() {
        let named = pattern.and_then(|pattern| pattern.get(layer));
        let is_local = named.map_or_else(|| !(layer + 1).is_multiple_of(period), |mark| *mark != 0.0);
        let rope = if is_local { LOCAL } else { GLOBAL };
        *kind = LayerKind { window: is_local.then_some(window), rope: Some(rope) };
    }
    configuration.ropes.push(RopeSetting::plain(keys.number("rope.freq_base_swa").unwrap_or(theta)));
    Ok(())
}

/// The metadata keys of one architecture. Methods take a key such as `block_count`, without the prefix `llama.`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl<'a> Keys<'a> {
    /// The non-negative integer of a key. Errors: missing or of another type.
    pub(super) fn size(&self, key: &str) -> Result<usize> {
        let missing = || Error::missing(format!("`{}`", self.full(key)), self.metadata.path());
        self.optional_size(key)?.ok_or_else(missing)
    }

    /// The non-negative integer of a key; `None` if missing. A list of one size for each layer counts if all are equal.
    /// Errors: any other value.
    pub(super) fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.metadata.value(&self.full(key)) else { return Ok(None) };
        value.whole().map(Some).ok_or_else(|| self.value_error(key, "one whole number for all layers"))
    }

    /// The number of a key; `None` if it is missing or not a number.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        match self.metadata.value(&self.full(key))? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The text of a key; `None` if it is missing or not a text.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.metadata.string(&self.full(key))
    }

    /// The boolean of a key; `None` if it is missing or not one.
    pub(super) fn boolean(&self, key: &str) -> Option<bool> {
        self.metadata.bool(&self.full(key))
    }

    /// The list of numbers, or of booleans as 0 and 1, of a key; `None` if it is missing or not such a list.
    pub(super) fn numbers(&self, key: &str) -> Option<&'a [f64]> {
        match self.metadata.value(&self.full(key))? {
            Value::Numbers(numbers) => Some(numbers),
            _ => None,
        }
    }

    /// An error that names the key, its value, the file and, as `allowed`, what the value may be.
    pub(super) fn value_error(&self, key: &str, allowed: &str) -> Error {
        let key = self.full(key);
        let found = match self.metadata.value(&key) {
            None => "missing".into(),
            Some(Value::Text(text)) => text.chars().take(80).collect(),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Boolean(truth)) => truth.to_string(),
            Some(_) => "a list".to_owned(),
        };
        Error::key(&key, found, self.metadata.path(), format!("expected {allowed}"))
    }

    /// The key with the architecture as prefix: `llama.block_count`.
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }
}
