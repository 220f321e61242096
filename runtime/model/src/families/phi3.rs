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

/// Files of the first weeks call the rotation `su` or `yarn`; it was longrope all along. The context that was first
/// trained on stands beside the rotation, not in it.
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

fn from_gguf(keys: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    configuration.fused_projections = true;
    let window = keys.optional_size("attention.sliding_window")?.or(assumed_window(configuration));
    let window = window.filter(|window| *window > 0);
    configuration.set_window(window);
    Ok(())
}

/// The window of Phi-3-mini-4k and Phi-3-medium-4k. Their older files do not name it; llama.cpp took it from the sizes
/// (pull request 8931) as long as it had windows for this family.
fn assumed_window(configuration: &Configuration) -> Option<usize> {
    (matches!(configuration.layers, 32 | 40) && configuration.max_positions == 4096).then_some(2047)
}

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

/// The share of a head that turns, from which readers get the features back: they round down.
fn share(rotated: usize, head_dim: usize) -> f64 {
    let share = rotated as f64 / head_dim as f64;
    if (head_dim as f64 * share) as usize == rotated { share } else { share.next_up() }
}
