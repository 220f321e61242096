//! Gemma 2 and Gemma 3, text only: four norms a block that multiply by 1 + weight, scaled embeddings, local and global
//! layers. Gemma 2 has soft caps on scores and logits and every other layer local; Gemma 3 has norms on the heads of
//! queries and keys, five local layers for each global one, and a rotation for each kind.

use serde_json::{Value, json};

use super::family::Family;
use super::gguf::{self, Keys};
use super::hugging_face;
use crate::configuration::{Activation, BlockNorms, Configuration};
use crate::error::Result;
use crate::fields::Fields;

pub(super) const GEMMA2: Family = Family {
    name: "gemma2",
    model_types: &["gemma2"],
    class: "Gemma2ForCausalLM",
    architecture: "gemma2",
    attention_bias: true,
    heads: Some(8),
    kv_heads: Some(4),
    head_dim: Some(256),
    vocabulary: Some(256_000),
    max_positions: 8192,
    tied: true,
    set_architecture,
    from_hugging_face: gemma2_from_hugging_face,
    from_gguf: gemma2_from_gguf,
    to_hugging_face: |configuration, config| {
        config["attn_logit_softcapping"] = json!(configuration.attention_soft_cap);
        hugging_face::write_one_window(configuration, config);
        config["layer_types"] = hugging_face::layer_types(configuration, |kind| kind.window.is_some());
        write_shared(configuration, config);
    },
    ..Family::PLAIN
};

pub(super) const GEMMA3: Family = Family {
    name: "gemma3_text",
    model_types: &["gemma3_text", "gemma3"],
    class: "Gemma3ForCausalLM",
    architecture: "gemma3",
    vocabulary: Some(262_208),
    max_positions: 131_072,
    theta: 1_000_000.0,
    local_theta: Some(LOCAL_THETA),
    set_architecture: |configuration| {
        set_architecture(configuration);
        configuration.query_key_norm = true;
    },
    from_hugging_face: gemma3_from_hugging_face,
    from_gguf: gemma3_from_gguf,
    to_hugging_face: |configuration, config| {
        hugging_face::write_local_layers(configuration, config);
        write_shared(configuration, config);
    },
    ..GEMMA2
};

/// Soft caps of Gemma 2 where a key is missing, in transformers and llama.cpp alike.
const SCORE_CAP: f64 = 50.0;
const LOGIT_CAP: f64 = 30.0;
const LOCAL_THETA: f64 = 10_000.0;
/// Every sixth layer of Gemma 3 is global.
const PERIOD: usize = 6;

/// Sets what Gemma 2 and Gemma 3 share: tanh GELU, four norms a block by 1 + weight, and embeddings scaled by √hidden.
fn set_architecture(configuration: &mut Configuration) {
    configuration.activation = Activation::GeluTanh;
    configuration.unit_offset_norm = true;
    configuration.norms = BlockNorms::GEMMA;
    configuration.embedding_scale = (configuration.hidden as f64).sqrt() as f32;
}

/// Sets what Gemma 2 and Gemma 3 share in `config.json`: the attention scale, 1/√`query_pre_attn_scalar` (256 by
/// default), and the window `sliding_window` (4,096 by default, `null` for none) on the layers that `layer_types` names
/// as sliding; if that is missing, on those for which `slides` is true. Errors: bidirectional attention, or
/// `layer_types` of another length or with other names.
fn read_shared(fields: &Fields<'_>, configuration: &mut Configuration, slides: impl Fn(usize) -> bool) -> Result<()> {
    fields.only("use_bidirectional_attention", &json!(false))?;
    let scalar: f64 = fields.get_or("query_pre_attn_scalar", Some(256.0))?;
    configuration.attention_scale = scalar.sqrt().recip() as f32;
    let window = hugging_face::sliding_window(fields)?;
    hugging_face::set_windows(fields, configuration, window, slides)
}

/// Sets Gemma 2's attention scale, soft caps (`null` for none, 50 on scores and 30 on logits if the keys are missing),
/// and windows, by default on the layers with an even index.
fn gemma2_from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    let cap = |key: &str, default| match fields.contains_key(key) {
        true => fields.get(key),
        false => Ok(Some(default)),
    };
    configuration.attention_soft_cap = cap("attn_logit_softcapping", SCORE_CAP as f32)?;
    configuration.logit_soft_cap = cap("final_logit_softcapping", LOGIT_CAP as f32)?;
    read_shared(fields, configuration, |layer| layer.is_multiple_of(2))
}

/// Sets Gemma 3's attention scale, soft cap of logits (none by default), and the windows and rotations of local and
/// global layers. `layer_types` names the local layers; if it is missing, all are local but each
/// `sliding_window_pattern`-th (or `_sliding_window_pattern`-th, if that key is missing), by default each sixth.
/// Errors: also a soft cap of scores.
fn gemma3_from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    // transformers reads the key and does nothing with it.
    fields.only("attn_logit_softcapping", &Value::Null)?;
    configuration.logit_soft_cap = fields.get("final_logit_softcapping")?;
    let key = "sliding_window_pattern";
    let key = if fields.contains_key(key) { key } else { "_sliding_window_pattern" };
    let period = fields.get_or(key, Some(PERIOD))?;
    let slides = |layer: usize| !(layer + 1).is_multiple_of(period);
    read_shared(fields, configuration, slides)?;
    hugging_face::set_local_rotations(fields, configuration, slides)
}

/// Sets Gemma 2's attention scale, soft caps (50 on scores and 30 on logits by default), and windows (4,096 tokens by
/// default) on the layers with an even index, from GGUF metadata.
fn gemma2_from_gguf(keys: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    set_gguf_scale(keys, configuration, 46);
    configuration.attention_soft_cap = Some(keys.number("attn_logit_softcapping").unwrap_or(SCORE_CAP) as f32);
    configuration.logit_soft_cap = Some(keys.number("final_logit_softcapping").unwrap_or(LOGIT_CAP) as f32);
    let window = keys.optional_size("attention.sliding_window")?.unwrap_or(hugging_face::WINDOW);
    for (layer, kind) in configuration.layer_kinds.iter_mut().enumerate() {
        kind.window = layer.is_multiple_of(2).then_some(window);
    }
    Ok(())
}

/// Sets Gemma 3's attention scale, soft cap of logits (none by default), and the windows and rotations of local and
/// global layers from GGUF metadata; by default each sixth layer is global. Errors: no window.
fn gemma3_from_gguf(keys: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    set_gguf_scale(keys, configuration, 62);
    configuration.logit_soft_cap = keys.number("final_logit_softcapping").map(|cap| cap as f32);
    let window = keys.size("attention.sliding_window")?;
    gguf::set_local_layers(keys, configuration, window, PERIOD, LOCAL_THETA)
}

/// Sets the attention scale from the GGUF key `attention.scale`. If it is missing, the scale is 1/√(hidden/heads) for
/// the model with `largest` layers, the 27B one, and 1/√head_dim for every other.
fn set_gguf_scale(keys: &Keys<'_>, configuration: &mut Configuration, largest: usize) {
    let scalar = if configuration.layers == largest {
        configuration.hidden as f64 / configuration.heads.max(1) as f64
    } else {
        configuration.head_dim as f64
    };
    configuration.attention_scale = keys.number("attention.scale").unwrap_or(scalar.sqrt().recip()) as f32;
}

/// Adds the `config.json` keys that Gemma 2 and Gemma 3 share: soft cap of logits, and `query_pre_attn_scalar`, rounded
/// to an integer.
fn write_shared(configuration: &Configuration, config: &mut Value) {
    config["final_logit_softcapping"] = json!(configuration.logit_soft_cap);
    // A whole number in every checkpoint.
    let scalar = f64::from(configuration.attention_scale).powi(-2).round();
    config["query_pre_attn_scalar"] = json!(scalar as u64);
}
