//! Phi-3, Phi-3.5 and Phi-4-mini: query, key and value in one matrix, gate and up in another, heads of which only some
//! features may be rotated, and LongRoPE.

use serde_json::{Value, json};

use super::family::Family;
use super::gguf::Keys;
use super::{hugging_face, rope};
use crate::configuration::rope::longrope_attention_factor;
use crate::configuration::{Configuration, RopeScaling};
use crate::error::Result;
use crate::fields::Fields;

pub(super) const PHI3: Family = Family {
    name: "phi3",
    model_types: &["phi3"],
    class: "Phi3ForCausalLM",
    architecture: "phi3",
    long_rope: true,
    heads: Some(32),
    vocabulary: Some(32_064),
    max_positions: 4096,
    norm_epsilon: 1e-5,
    original: Some(4096.0),
    partial_rotation: Some(1.0),
    set_architecture: |configuration| {
        (configuration.fused_query_key_value, configuration.fused_gate_up) = (true, true);
    },
    from_hugging_face,
    from_gguf,
    to_hugging_face,
    ..Family::PLAIN
};

/// Sets the window `sliding_window` for all layers; missing or null means none. Errors: `attention_bias`,
/// `mlp_bias` or `lm_head_bias` is set and not false.
fn from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    for key in ["attention_bias", "mlp_bias", "lm_head_bias"] {
        fields.only(key, &json!(false))?;
    }
    configuration.set_window(fields.get("sliding_window")?);
    Ok(())
}

/// Sets the window `attention.sliding_window` for all layers; 0 means none. If the key is missing, a model with 32 or
/// 40 layers and a context of 4,096 tokens gets 2,047 tokens, any other none: older GGUF files of Phi-3-mini-4k and
/// Phi-3-medium-4k do not name their window (llama.cpp pull request 8931).
fn from_gguf(keys: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    let is_4k = matches!(configuration.layers, 32 | 40) && configuration.max_positions == 4096;
    let window = keys.optional_size("attention.sliding_window")?.or(is_4k.then_some(2047));
    configuration.set_window(window.filter(|window| *window > 0));
    Ok(())
}

/// Adds Phi-3's own keys to a `config.json`: the window, the share of rotated features and, for LongRoPE, its original
/// context and factors in place of a `rope_scaling` written before. Adds LongRoPE's attention factor only if it differs
/// from the inferred one by more than the precision of `f32`.
fn to_hugging_face(configuration: &Configuration, config: &mut Value) {
    hugging_face::write_one_window(configuration, config);
    rope::write_partial(configuration, config);
    let scaling = configuration.ropes.first().map(|rope| &rope.scaling);
    if let Some(RopeScaling::Long { short_factor, long_factor, original, attention_factor }) = scaling {
        config["original_max_position_embeddings"] = json!(original);
        // transformers 4 and the code that comes with the models take these three keys and refuse any other.
        config["rope_scaling"] = json!({"type": "longrope", "short_factor": short_factor, "long_factor": long_factor});
        let original = *original as f64;
        let inferred = longrope_attention_factor(configuration.max_positions as f64 / original, original);
        // GGUF files have it in `f32`.
        if (attention_factor / inferred - 1.0).abs() > f64::from(f32::EPSILON) {
            config["rope_scaling"]["attention_factor"] = json!(attention_factor);
        }
    }
}
