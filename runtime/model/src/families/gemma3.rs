//! Gemma 3, text only: four norms a block that multiply by 1 + weight, norms on the heads of queries and keys,
//! scaled embeddings, five local layers for each global one, and a rotation for each kind.

use serde_json::{Map, Value, json};

use super::family::{Defaults, Family, GgufLayout};
use super::fields::Fields;
use super::keys::Keys;
use super::{gemma2, hugging_face};
use crate::configuration::{Configuration, LayerKind, RopeSetting};
use crate::error::Result;

pub(super) const FAMILY: Family = Family {
    name: "gemma3_text",
    model_types: &["gemma3_text", "gemma3"],
    architecture: Some("gemma3"),
    partial_rotation: false,
    defaults: Defaults {
        heads: Some(8),
        kv_heads: Some(4),
        head_dim: Some(256),
        vocabulary: Some(262_208),
        max_positions: 131_072,
        tied: true,
    },
    from_hugging_face,
    from_gguf,
    to_hugging_face,
    gguf_layout: GgufLayout::GEMMA,
};

/// Rotations: the global one first, as in files that name only one.
const GLOBAL: usize = 0;
const LOCAL: usize = 1;
const GLOBAL_THETA: f64 = 1_000_000.0;
const LOCAL_THETA: f64 = 10_000.0;
/// Every sixth layer is global.
const PERIOD: usize = 6;

/// Sets Gemma 3's fields from `config.json`: norms, scales, soft cap, local and global layers, and a rotation for each
/// kind.
fn from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    fields.only("hidden_activation", &json!("gelu_pytorch_tanh"))?;
    fields.only("use_bidirectional_attention", &json!(false))?;
    // transformers reads the key and does nothing with it.
    fields.only("attn_logit_softcapping", &Value::Null)?;
    shape(configuration);
    let scalar = fields.optional_number("query_pre_attn_scalar")?.unwrap_or(256.0);
    configuration.attention_scale = scalar.sqrt().recip() as f32;
    configuration.logit_soft_cap = fields.optional_number("final_logit_softcapping")?.map(|cap| cap as f32);
    hugging_face::attention_bias(fields, configuration)?;
    let key = if fields.contains_key("sliding_window_pattern") {
        "sliding_window_pattern"
    } else {
        "_sliding_window_pattern"
    };
    let period = fields.size_or(key, Some(PERIOD))?;
    let window = hugging_face::sliding_window(fields, 4096)?;
    let slides = |layer: usize| !(layer + 1).is_multiple_of(period);
    hugging_face::windows(fields, configuration, window, slides)?;
    // A local layer without a window still has the local rotation.
    let types = fields.texts("layer_types")?;
    for (layer, kind) in configuration.layers_kind.iter_mut().enumerate() {
        let named = types.as_ref().and_then(|types| types.get(layer));
        let local = named.map_or_else(|| slides(layer), |name| *name == "sliding_attention");
        kind.rope = Some(if local { LOCAL } else { GLOBAL });
    }
    configuration.ropes = ropes(fields, configuration.max_positions)?;
    Ok(())
}

/// The global and the local rotation, in this order. Newer files have an object for each kind of layer in
/// `rope_parameters`; `rope_scaling` of older files stretches only the global one, and wins where both are present.
fn ropes(fields: &Fields<'_>, max_positions: usize) -> Result<Vec<RopeSetting>> {
    let global_theta = fields.optional_number("rope_theta")?.unwrap_or(GLOBAL_THETA);
    let local_theta = fields.optional_number("rope_local_base_freq")?.unwrap_or(LOCAL_THETA);
    let mut ropes = vec![RopeSetting::plain(global_theta), RopeSetting::plain(local_theta)];
    if let Some(parameters) = fields.object("rope_parameters")? {
        if let Some(global) = parameters.object("full_attention")? {
            global.only("partial_rotary_factor", &json!(1.0))?;
            ropes[GLOBAL] = hugging_face::rope_of(&global, global_theta, None, max_positions)?;
        }
        if let Some(local) = parameters.object("sliding_attention")? {
            local.only("partial_rotary_factor", &json!(1.0))?;
            ropes[LOCAL] = hugging_face::rope_of(&local, local_theta, None, max_positions)?;
        }
    }
    // Where a file has both, the older key counts, as in transformers.
    if let Some(scaling) = fields.object("rope_scaling")?.filter(|scaling| !scaling.is_empty()) {
        ropes[GLOBAL] = hugging_face::rope_of(&scaling, ropes[GLOBAL].theta, None, max_positions)?;
    }
    Ok(ropes)
}

/// Sets Gemma 3's fields from GGUF metadata, and appends the local rotation.
fn from_gguf(keys: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    shape(configuration);
    // The 27B model.
    gemma2::gguf_scale(keys, configuration, 62);
    configuration.logit_soft_cap = keys.number("final_logit_softcapping").map(|cap| cap as f32);
    let window = keys.size("attention.sliding_window")?;
    let pattern = keys.numbers("attention.sliding_window_pattern");
    let period = match pattern {
        Some(_) => PERIOD,
        None => keys.optional_size("attention.sliding_window_pattern")?.filter(|period| *period > 0).unwrap_or(PERIOD),
    };
    for (layer, kind) in configuration.layers_kind.iter_mut().enumerate() {
        let named = pattern.and_then(|pattern| pattern.get(layer));
        let local = named.map_or_else(|| !(layer + 1).is_multiple_of(period), |mark| *mark != 0.0);
        *kind = if local {
            LayerKind { window: Some(window), rope: Some(LOCAL) }
        } else {
            LayerKind { window: None, rope: Some(GLOBAL) }
        };
    }
    configuration.ropes.push(RopeSetting::plain(keys.number("rope.freq_base_swa").unwrap_or(LOCAL_THETA)));
    Ok(())
}

/// Sets what Gemma 2 and Gemma 3 share, and the norms of query and key heads.
fn shape(configuration: &mut Configuration) {
    gemma2::shape(configuration);
    configuration.query_key_norm = true;
}

/// Adds Gemma 3's own keys to a `config.json`.
fn to_hugging_face(configuration: &Configuration, map: &mut Map<String, Value>) {
    let kinds = &configuration.layers_kind;
    let name = |kind: &LayerKind| if kind.rope == Some(LOCAL) { "sliding_attention" } else { "full_attention" };
    map.insert("architectures".into(), json!(["Gemma3ForCausalLM"]));
    map.insert("layer_types".into(), kinds.iter().map(name).collect());
    map.insert("sliding_window".into(), json!(kinds.iter().find_map(|kind| kind.window)));
    gemma2::write_shape(configuration, map);
    let rope = |rope: &RopeSetting| {
        let mut object = hugging_face::write_scaling(rope);
        object["rope_theta"] = json!(rope.theta);
        object
    };
    if let [global, local] = configuration.ropes.as_slice() {
        let both = json!({"full_attention": rope(global), "sliding_attention": rope(local)});
        map.insert("rope_parameters".into(), both);
    }
}
