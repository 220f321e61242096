//! Mistral: Llama's blocks with a window over all layers, where one is set.

use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::gguf::Keys;
use super::names::StoredForm;
use super::{Defaults, Family, hugging_face};
use crate::configuration::Configuration;
use crate::error::Result;

pub(super) const FAMILY: Family = Family {
    name: "mistral",
    model_types: &["mistral"],
    // Its GGUF files say `llama`.
    architecture: None,
    partial_rotation: false,
    defaults: Defaults {
        heads: None,
        kv_heads: Some(8),
        head_dim: None,
        vocabulary: None,
        max_positions: 131_072,
        tied: false,
    },
    from_hugging_face,
    from_gguf,
    to_hugging_face,
    stored: StoredForm { pairs_adjacent: true, norms_plus_one: false, sandwich_norms: false },
};

/// What transformers assumes when the key is missing; `null` means no window.
const WINDOW: usize = 4096;

fn from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    fields.only("hidden_act", &json!("silu"))?;
    let window =
        if fields.contains_key("sliding_window") { fields.optional_size("sliding_window")? } else { Some(WINDOW) };
    for kind in &mut configuration.layers_kind {
        kind.window = window;
    }
    configuration.ropes = vec![hugging_face::rope(fields, configuration)?];
    Ok(())
}

fn from_gguf(_: &Keys<'_>, _: &mut Configuration) -> Result<()> {
    Ok(())
}

fn to_hugging_face(configuration: &Configuration, map: &mut Map<String, Value>) {
    let window = configuration.layers_kind.first().and_then(|kind| kind.window);
    map.insert("architectures".into(), json!(["MistralForCausalLM"]));
    map.insert("sliding_window".into(), json!(window));
}
