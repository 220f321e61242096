//! Llama 2 and 3, SmolLM and all that share their `model_type`; and families of nearly the same blocks: Mistral, with a
//! window over all layers where one is set; SmolLM3, with layers without positions; Qwen2 and Qwen2.5, with biases on
//! queries, keys and values; Qwen3, with a norm on each head of queries and keys before they are rotated. Both of Qwen
//! optionally have a window from some layer upwards.

use serde_json::{Value, json};

use super::family::Family;
use super::gguf::Keys;
use super::gguf_keys::without_own;
use super::{hugging_face, moe};
use crate::configuration::Configuration;
use crate::error::Result;
use crate::fields::Fields;

/// Llama. GGUF files of Mistral and Mixtral have the architecture `llama` as well.
pub(super) const LLAMA: Family = Family {
    name: "llama",
    model_types: &["llama"],
    class: "LlamaForCausalLM",
    architecture: "llama",
    attention_bias: true,
    mlp_bias: true,
    from_gguf: llama_from_gguf,
    to_gguf: Some(without_own),
    gguf_pairs: true,
    ..Family::PLAIN
};

/// Sets the window of all layers from the GGUF key `attention.sliding_window`; a missing one or 0 is none. Makes a
/// model with experts Mixtral, and else one with a window Mistral, because `config.json` of a Llama cannot express
/// them. Errors: a window or experts in a model with biases.
fn llama_from_gguf(keys: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    const WINDOW: &str = "attention.sliding_window";
    const EXPERTS: &str = "expert_count";
    let size = |key| keys.optional_size(key).map(|size| size.filter(|size| *size > 0));
    let (window, experts) = (size(WINDOW)?, size(EXPERTS)?);
    let has_biases = configuration.attention_bias || configuration.output_bias || configuration.feed_forward_bias;
    if has_biases && (window.is_some() || experts.is_some()) {
        let key = if window.is_some() { WINDOW } else { EXPERTS };
        return Err(keys.value_error(key, "0 in a model with biases"));
    }
    configuration.set_window(window);
    if experts.is_some() {
        return moe::set_mixtral(keys, configuration);
    }
    if window.is_some() {
        MISTRAL.name.clone_into(&mut configuration.family);
    }
    Ok(())
}

pub(super) const MISTRAL: Family = Family {
    name: "mistral",
    model_types: &["mistral"],
    class: "MistralForCausalLM",
    architecture: "llama",
    kv_heads: Some(8),
    max_positions: 131_072,
    from_hugging_face: |fields, configuration| {
        configuration.set_window(hugging_face::sliding_window(fields)?);
        Ok(())
    },
    to_hugging_face: hugging_face::write_one_window,
    gguf_pairs: true,
    ..Family::PLAIN
};

pub(super) const SMOLLM3: Family = Family {
    name: "smollm3",
    model_types: &["smollm3"],
    class: "SmolLM3ForCausalLM",
    architecture: "smollm3",
    attention_bias: true,
    mlp_bias: true,
    heads: Some(16),
    kv_heads: Some(4),
    vocabulary: Some(128_256),
    max_positions: 32_768,
    tied: true,
    theta: 2_000_000.0,
    // GGUF files do not say which layers have no positions; llama.cpp knows it by the architecture.
    set_architecture: |configuration| set_positions(configuration, |layer| !(layer + 1).is_multiple_of(INTERVAL)),
    from_hugging_face: smollm3_from_hugging_face,
    to_hugging_face: smollm3_to_hugging_face,
    gguf_pairs: true,
    ..Family::PLAIN
};

/// Every fourth layer of SmolLM3 has no position encoding, unless `config.json` says otherwise.
const INTERVAL: usize = 4;

/// Sets the first rotation on the layers for which `has_positions` is true, and none on the others.
fn set_positions(configuration: &mut Configuration, has_positions: impl Fn(usize) -> bool) {
    for (layer, kind) in configuration.layer_kinds.iter_mut().enumerate() {
        kind.rope = has_positions(layer).then_some(0);
    }
}

/// Removes the rotation from the layers with a 0 in `no_rope_layers`, or, without that list, from every
/// `no_rope_layer_interval`-th layer. A window, if [`hugging_face::window_in_use`] gives one, applies to the layers
/// that `layer_types` calls sliding, or, without that key, to the layers without a rotation. Errors: a list shorter
/// than the number of layers or with numbers other than 0 and 1, or an interval of 0.
fn smollm3_from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    let interval = fields.get_or("no_rope_layer_interval", Some(INTERVAL))?;
    if interval == 0 {
        return Err(fields.value_error("no_rope_layer_interval", "1 or more"));
    }
    match fields.get::<Vec<f64>>("no_rope_layers")? {
        None => set_positions(configuration, |layer| !(layer + 1).is_multiple_of(interval)),
        Some(marks) if marks.len() >= configuration.layers && marks.iter().all(|mark| *mark == 0.0 || *mark == 1.0) => {
            set_positions(configuration, |layer| marks.get(layer) == Some(&1.0));
        }
        Some(_) => {
            return Err(fields.value_error("no_rope_layers", "one 0 (no positions) or 1 (positions) for each layer"));
        }
    }
    let window = hugging_face::window_in_use(fields, None)?;
    let bare: Vec<bool> = configuration.layer_kinds.iter().map(|kind| kind.rope.is_none()).collect();
    hugging_face::set_windows(fields, configuration, window, |layer| bare[layer])
}

/// Adds SmolLM3's own keys to a `config.json`: `no_rope_layers` with 1 for each layer with a rotation and 0 for each
/// without, and the windows by [`hugging_face::write_windows_in_use`].
fn smollm3_to_hugging_face(configuration: &Configuration, config: &mut Value) {
    let marks = configuration.layer_kinds.iter().map(|kind| u8::from(kind.rope.is_some()));
    config["no_rope_layers"] = json!(marks.collect::<Vec<_>>());
    hugging_face::write_windows_in_use(configuration, config);
}

pub(super) const QWEN2: Family = Family {
    name: "qwen2",
    model_types: &["qwen2"],
    class: "Qwen2ForCausalLM",
    architecture: "qwen2",
    kv_heads: Some(32),
    vocabulary: Some(151_936),
    max_positions: 32_768,
    // A GGUF file without them is broken, not another kind of Qwen2.
    set_architecture: |configuration| configuration.attention_bias = true,
    from_hugging_face: set_upper_windows,
    to_hugging_face: hugging_face::write_windows_in_use,
    to_gguf: Some(without_own),
    ..Family::PLAIN
};

pub(super) const QWEN3: Family = Family {
    name: "qwen3",
    model_types: &["qwen3"],
    class: "Qwen3ForCausalLM",
    architecture: "qwen3",
    attention_bias: true,
    head_dim: Some(128),
    set_architecture: |configuration| configuration.query_key_norm = true,
    ..QWEN2
};

/// Sets the window, `sliding_window` or 4,096 tokens by default, on the layers that `layer_types` names as sliding; if
/// that is missing, on those from index `max_window_layers` (28 by default) on. No layer has a window unless
/// `use_sliding_window` is true. Errors: `layer_types` of another length or with other names, or with sliding layers
/// where no window is in use.
fn set_upper_windows(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    let window = hugging_face::window_in_use(fields, Some(hugging_face::WINDOW))?;
    let first = fields.get_or("max_window_layers", Some(28))?;
    hugging_face::set_windows(fields, configuration, window, |layer| layer >= first)
}
