//! Gemma 2: four norms a block that multiply by 1 + weight, scaled embeddings, soft caps on scores and logits,
//! every other layer local.

use serde_json::{Map, Value, json};

use super::family::{Defaults, Family, GgufLayout};
use super::fields::Fields;
use super::hugging_face;
use super::keys::Keys;
use crate::configuration::{Activation, Configuration};
use crate::error::Result;

pub(super) const FAMILY: Family = Family {
    name: "gemma2",
    model_types: &["gemma2"],
    architecture: Some("gemma2"),
    partial_rotation: false,
    defaults: Defaults {
        heads: Some(8),
        kv_heads: Some(4),
        head_dim: Some(256),
        vocabulary: Some(256_000),
        max_positions: 8192,
        tied: true,
    },
    from_hugging_face,
    from_gguf,
    to_hugging_face,
    gguf_layout: GgufLayout::GEMMA,
};

/// What is assumed for keys that are missing, by transformers and llama.cpp alike.
const WINDOW: usize = 4096;
const SCORE_CAP: f64 = 50.0;
const LOGIT_CAP: f64 = 30.0;
/// Layers of the 27B model, which scales by hidden/heads instead of the head's width.
const LARGEST: usize = 46;

/// Sets Gemma 2's fields from `config.json`: norms, scales, soft caps, windows on every other layer, and the rotation.
fn from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    fields.only("hidden_activation", &json!("gelu_pytorch_tanh"))?;
    fields.only("use_bidirectional_attention", &json!(false))?;
    shape(configuration);
    let scalar = fields.optional_number("query_pre_attn_scalar")?.unwrap_or(256.0);
    configuration.attention_scale = scalar.sqrt().recip() as f32;
    configuration.attention_soft_cap = cap(fields, "attn_logit_softcapping", SCORE_CAP)?;
    configuration.logit_soft_cap = cap(fields, "final_logit_softcapping", LOGIT_CAP)?;
    hugging_face::attention_bias(fields, configuration)?;
    let window = hugging_face::sliding_window(fields, WINDOW)?;
    hugging_face::windows(fields, configuration, window, slides)?;
    configuration.ropes = vec![hugging_face::rope(fields, configuration)?];
    Ok(())
}

/// A soft cap: none for `null`, `default` if the key is missing.
fn cap(fields: &Fields<'_>, key: &str, default: f64) -> Result<Option<f32>> {
    let cap = if fields.contains_key(key) { fields.optional_number(key)? } else { Some(default) };
    Ok(cap.map(|cap| cap as f32))
}

/// Whether a layer has a sliding window: every even layer, counted from 0.
fn slides(layer: usize) -> bool {
    layer.is_multiple_of(2)
}

/// Sets Gemma 2's fields from GGUF metadata: norms, scales, soft caps, and windows on every other layer.
fn from_gguf(keys: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    shape(configuration);
    gguf_scale(keys, configuration, LARGEST);
    configuration.attention_soft_cap = Some(keys.number("attn_logit_softcapping").unwrap_or(SCORE_CAP) as f32);
    configuration.logit_soft_cap = Some(keys.number("final_logit_softcapping").unwrap_or(LOGIT_CAP) as f32);
    let window = keys.optional_size("attention.sliding_window")?.unwrap_or(WINDOW);
    for (layer, kind) in configuration.layers_kind.iter_mut().enumerate() {
        kind.window = slides(layer).then_some(window);
    }
    Ok(())
}

/// Sets the attention scale from GGUF metadata. If the key is missing, it is 1/√(hidden/heads) for the model with
/// `largest` layers and 1/√head_dim for every other.
pub(super) fn gguf_scale(keys: &Keys<'_>, configuration: &mut Configuration, largest: usize) {
    let scalar = if configuration.layers == largest {
        configuration.hidden as f64 / configuration.heads.max(1) as f64
    } else {
        configuration.head_dim as f64
    };
    configuration.attention_scale = keys.number("attention.scale").unwrap_or(scalar.sqrt().recip()) as f32;
}

/// Sets what Gemma 2 and Gemma 3 share: tanh GELU, norms by 1 + weight, sandwich norms, and embeddings scaled by
/// √hidden.
pub(super) fn shape(configuration: &mut Configuration) {
    configuration.activation = Activation::GeluTanh;
    configuration.unit_offset_norm = true;
    configuration.sandwich_norms = true;
    configuration.embedding_scale = (configuration.hidden as f64).sqrt() as f32;
}

/// Adds Gemma 2's own keys to a `config.json`.
fn to_hugging_face(configuration: &Configuration, map: &mut Map<String, Value>) {
    let kinds = &configuration.layers_kind;
    map.insert("architectures".into(), json!(["Gemma2ForCausalLM"]));
    map.insert("layer_types".into(), hugging_face::layer_types(configuration));
    map.insert("sliding_window".into(), json!(kinds.iter().find_map(|kind| kind.window)));
    map.insert("attn_logit_softcapping".into(), json!(configuration.attention_soft_cap));
    write_shape(configuration, map);
}

/// Adds the `config.json` keys that Gemma 2 and Gemma 3 share, and removes `hidden_act`.
pub(super) fn write_shape(configuration: &Configuration, map: &mut Map<String, Value>) {
    map.remove("hidden_act");
    map.insert("hidden_activation".into(), json!("gelu_pytorch_tanh"));
    map.insert("attention_bias".into(), json!(configuration.attention_bias));
    map.insert("final_logit_softcapping".into(), json!(configuration.logit_soft_cap));
    // A whole number in every checkpoint.
    let scalar = f64::from(configuration.attention_scale).powi(-2).round();
    map.insert("query_pre_attn_scalar".into(), json!(scalar as u64));
}
