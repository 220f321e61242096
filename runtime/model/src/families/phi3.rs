//! Phi-3, Phi-3.5 and Phi-4-mini: query, key and value in one matrix, gate and up in another, heads that may turn in
//! part, and factors for short and for long texts.

use serde_json::{Map, Value, json};

use super::family::{Defaults, Family, GgufLayout};
use super::fields::Fields;
use super::hugging_face;
use super::keys::Keys;
use crate::configuration::rope::longrope_attention_factor;
use crate::configuration::{Configuration, RopeScaling, RopeSetting};
use crate::error::Result;

pub(super) const FAMILY: Family = Family {
    name: "phi3",
    model_types: &["phi3"],
    architecture: Some("phi3"),
    partial_rotation: true,
    defaults: Defaults { heads: Some(32), vocabulary: Some(32_064), max_positions: 4096, ..Defaults::NONE },
    from_hugging_face,
    from_gguf,
    to_hugging_face,
    gguf_layout: GgufLayout::PLAIN,
};

/// The context that was first trained on, when the key is missing.
const ORIGINAL: usize = 4096;
const NORM_EPSILON: f64 = 1e-5;

/// Sets Phi-3's fields from `config.json`: fused projections, one window for all layers, and the rotation. Errors:
/// biases, or another activation than SiLU.
fn from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    fields.only("hidden_act", &json!("silu"))?;
    for key in ["attention_bias", "mlp_bias", "lm_head_bias"] {
        fields.only(key, &json!(false))?;
    }
    configuration.fused_projections = true;
    configuration.norm_epsilon = fields.optional_number("rms_norm_eps")?.unwrap_or(NORM_EPSILON);
    let window = fields.optional_size("sliding_window")?;
    configuration.set_window(window);
    configuration.ropes = vec![rope(fields, configuration)?];
    Ok(())
}

/// Reads the rotation: plain or LongRoPE, which early files call `su` or `yarn`. The context first trained on stands
/// beside the rotation's object, not in it.
fn rope(fields: &Fields<'_>, configuration: &Configuration) -> Result<RopeSetting> {
    let Some(object) = hugging_face::rotation(fields)? else { return hugging_face::rope(fields, configuration) };
    let key = if object.value("rope_type").is_some() { "rope_type" } else { "type" };
    match object.optional_text(key)?.unwrap_or("default") {
        "default" => hugging_face::rope(fields, configuration),
        "longrope" | "su" | "yarn" => {
            let original = fields.size_or("original_max_position_embeddings", Some(ORIGINAL))?;
            let theta = fields.optional_number("rope_theta")?.unwrap_or(hugging_face::THETA);
            let theta = object.optional_number("rope_theta")?.unwrap_or(theta);
            let scaling = hugging_face::longrope(&object, original as f64, configuration.max_positions)?;
            Ok(RopeSetting { theta, scaling })
        }
        _ => Err(object.value_error(key, "the rotations default and longrope")),
    }
}

/// Sets fused projections and one window for all layers; 0 means none.
fn from_gguf(keys: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    configuration.fused_projections = true;
    let window = keys.optional_size("attention.sliding_window")?.or(assumed_window(configuration));
    let window = window.filter(|window| *window > 0);
    configuration.set_window(window);
    Ok(())
}

/// The window, 2,047 tokens, of Phi-3-mini-4k and Phi-3-medium-4k, recognized by their sizes; `None` for others. Their
/// older GGUF files do not name it (llama.cpp pull request 8931).
fn assumed_window(configuration: &Configuration) -> Option<usize> {
    (matches!(configuration.layers, 32 | 40) && configuration.max_positions == 4096).then_some(2047)
}

/// Adds Phi-3's own keys to a `config.json`; LongRoPE's attention factor only if it differs from the inferred one.
fn to_hugging_face(configuration: &Configuration, map: &mut Map<String, Value>) {
    let window = configuration.layers_kind.first().and_then(|kind| kind.window);
    map.insert("architectures".into(), json!(["Phi3ForCausalLM"]));
    map.insert("sliding_window".into(), json!(window));
    map.insert("partial_rotary_factor".into(), json!(share(configuration.rotated, configuration.head_dim)));
    let scaling = configuration.ropes.first().map(|rope| &rope.scaling);
    if let Some(RopeScaling::Long { short, long, original, attention_factor }) = scaling {
        map.insert("original_max_position_embeddings".into(), json!(*original as u64));
        // transformers 4 and the code that comes with the models take these three keys and refuse any other.
        let mut rotation = json!({"type": "longrope", "short_factor": short, "long_factor": long});
        let inferred = longrope_attention_factor(configuration.max_positions as f64 / original, *original);
        // GGUF files have it in `f32`.
        if (attention_factor / inferred - 1.0).abs() > f64::from(f32::EPSILON) {
            rotation["attention_factor"] = json!(attention_factor);
        }
        map.insert("rope_scaling".into(), rotation);
    }
}

/// The `partial_rotary_factor` from which readers, who round down, get `rotated` features back.
fn share(rotated: usize, head_dim: usize) -> f64 {
    let share = rotated as f64 / head_dim as f64;
    if (head_dim as f64 * share) as usize == rotated { share } else { share.next_up() }
}
