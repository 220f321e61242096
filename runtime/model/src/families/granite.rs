//! Granite: blocks of Llama, with multipliers on embeddings, on attention scores, on what is added to the residual
//! stream, and on logits.

use candle_core::quantized::gguf_file;
use serde_json::{Value, json};

use super::family::Family;
use super::gguf::Keys;
use super::gguf_keys::{OwnKeys, without_own};
use crate::configuration::Configuration;
use crate::error::Result;
use crate::fields::Fields;

pub(super) const GRANITE: Family = Family {
    name: "granite",
    model_types: &["granite"],
    class: "GraniteForCausalLM",
    architecture: "granite",
    attention_bias: true,
    mlp_bias: true,
    heads: Some(32),
    vocabulary: Some(32_000),
    from_hugging_face,
    from_gguf,
    to_hugging_face,
    to_gguf: Some(to_gguf),
    gguf_pairs: true,
    ..Family::PLAIN
};

/// Sets the multipliers, 1 where a key is missing. Errors: one is not a positive number.
fn from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    let multiplier = |key| match fields.get_or(key, Some(1.0_f32))? {
        number if is_positive(number) => Ok(number),
        _ => Err(fields.value_error(key, POSITIVE)),
    };
    configuration.embedding_scale = multiplier("embedding_multiplier")?;
    configuration.attention_scale = multiplier("attention_multiplier")?;
    configuration.residual_scale = multiplier("residual_multiplier")?;
    configuration.logit_divisor = multiplier("logits_scaling")?;
    Ok(())
}

/// Sets the multipliers. Where a key is missing or 0, attention has the usual scale, and the others are 1; only
/// `logit_scale` has to be there. Errors: one is not a positive number, or layers have no positions.
fn from_gguf(keys: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    const FINETUNED: &str = "rope.scaling.finetuned";
    if keys.boolean(FINETUNED) == Some(false) {
        return Err(keys.value_error(FINETUNED, "true, for layers with positions"));
    }
    let multiplier = |key, usual| {
        match keys.number(key).map_or(0.0, |number| number as f32) {
            0.0 => usual,
            number => Some(number),
        }
        .filter(|number| is_positive(*number))
        .ok_or_else(|| keys.value_error(key, POSITIVE))
    };
    configuration.embedding_scale = multiplier("embedding_scale", Some(1.0))?;
    configuration.attention_scale = multiplier("attention.scale", Some(configuration.attention_scale))?;
    configuration.residual_scale = multiplier("residual_scale", Some(1.0))?;
    configuration.logit_divisor = multiplier("logit_scale", None)?;
    Ok(())
}

/// What a multiplier may be.
const POSITIVE: &str = "a positive number";

/// Whether a number is finite and above 0.
fn is_positive(number: f32) -> bool {
    number.is_finite() && number > 0.0
}

/// Adds the multipliers to a `config.json`.
fn to_hugging_face(configuration: &Configuration, config: &mut Value) {
    for (key, multiplier) in [
        ("embedding_multiplier", configuration.embedding_scale),
        ("attention_multiplier", configuration.attention_scale),
        ("residual_multiplier", configuration.residual_scale),
        ("logits_scaling", configuration.logit_divisor),
    ] {
        config[key] = shortest(multiplier);
    }
}

/// The multipliers as keys of GGUF files. Errors: those of [`without_own`].
fn to_gguf(configuration: &Configuration) -> OwnKeys {
    without_own(configuration)?;
    let multipliers = [
        ("embedding_scale", configuration.embedding_scale),
        ("attention.scale", configuration.attention_scale),
        ("residual_scale", configuration.residual_scale),
        ("logit_scale", configuration.logit_divisor),
    ];
    Ok(multipliers.map(|(key, multiplier)| (key, gguf_file::Value::F32(multiplier))).to_vec())
}

/// The shortest decimal number that reads as this `f32`, such as 0.22.
fn shortest(number: f32) -> Value {
    json!(number.to_string().parse::<f64>().unwrap_or(number.into()))
}
