//! Reads and writes the keys of `config.json` that all families share.
//! Leaves the keys of single families to their own files, and rotations to `rope`.

use serde_json::{Value, json};

use super::family::Family;
use super::rope;
use crate::configuration::{Activation, Configuration, Experts, LayerKind};
use crate::error::Result;
use crate::fields::Fields;

/// The attention window, in tokens, that transformers assumes if a family uses one and `config.json` does not name it.
pub(super) const WINDOW: usize = 4096;

/// Reads the configuration of a `config.json` of this family, from its `text_config` if it is a multimodal checkpoint;
/// special tokens and `tie_word_embeddings` at the top level then win over those in it. Leaves the check of values to
/// the caller. Errors: a key is missing or of another type, or the activation is not that of the family.
pub(super) fn read(whole: &Fields<'_>, family: &Family) -> Result<Configuration> {
    let text = whole.object("text_config")?;
    let fields = text.as_ref().unwrap_or(whole);
    let mut configuration = shared_keys(fields, family)?;
    if text.is_some() {
        read_special(whole, &mut configuration)?;
        configuration.tied = whole.get_or("tie_word_embeddings", Some(configuration.tied))?;
    }
    let (key, name) = activation(&configuration);
    fields.only(key, &json!(name))?;
    if family.attention_bias {
        configuration.attention_bias = fields.get("attention_bias")?.unwrap_or(false);
        configuration.output_bias = configuration.attention_bias;
    }
    if family.mlp_bias {
        configuration.feed_forward_bias = fields.get("mlp_bias")?.unwrap_or(false);
    }
    configuration.ropes = rope::read(fields, family, configuration.max_positions)?;
    (family.from_hugging_face)(fields, &mut configuration)?;
    Ok(configuration)
}

/// A decoder of this family with the sizes and special tokens that all families read from the same keys. Missing and
/// null keys get the defaults of the family, except that a null `num_key_value_heads` means as many as query heads.
/// Errors: a key without a default is missing, or one has another type.
fn shared_keys(fields: &Fields<'_>, family: &Family) -> Result<Configuration> {
    let hidden: usize = fields.require("hidden_size")?;
    let layers = fields.require("num_hidden_layers")?;
    let heads = fields.get_or("num_attention_heads", family.heads)?;
    let head_dim = fields.get_or("head_dim", family.head_dim.or(hidden.checked_div(heads)))?;
    // The default of the family counts only if the key is missing; `null` means as many as query heads.
    let kv_heads = family.kv_heads.filter(|_| !fields.contains_key("num_key_value_heads")).unwrap_or(heads);
    let mut configuration = Configuration {
        intermediate: fields.require("intermediate_size")?,
        kv_heads: fields.get_or("num_key_value_heads", Some(kv_heads))?,
        rotated: rope::rotated_features(fields, family, head_dim)?,
        vocabulary: fields.get_or("vocab_size", family.vocabulary)?,
        norm_epsilon: fields.get_or("rms_norm_eps", Some(family.norm_epsilon))?,
        tied: fields.get_or("tie_word_embeddings", Some(family.tied))?,
        max_positions: fields.get_or("max_position_embeddings", Some(family.max_positions))?,
        ..Configuration::plain(family.name, hidden, layers, heads, head_dim)
    };
    (family.set_architecture)(&mut configuration);
    read_special(fields, &mut configuration)?;
    Ok(configuration)
}

/// The key and the name of a configuration's activation in `config.json`: (`hidden_activation`, `gelu_pytorch_tanh`)
/// for tanh GELU, (`hidden_act`, `silu`) for every other.
fn activation(configuration: &Configuration) -> (&'static str, &'static str) {
    match configuration.activation {
        Activation::GeluTanh => ("hidden_activation", "gelu_pytorch_tanh"),
        _ => ("hidden_act", "silu"),
    }
}

/// Sets end, beginning and padding tokens from `eos_token_id`, `bos_token_id` and `pad_token_id`. A key that is
/// missing, null or an empty list leaves its tokens as they are. Of a list of beginning or padding tokens, takes the
/// first. Errors: values that are not token ids.
fn read_special(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    if let Some(eos) = fields.list("eos_token_id")?.filter(|eos| !eos.is_empty()) {
        configuration.eos = eos;
    }
    let first = |key| -> Result<Option<u32>> { Ok(fields.list(key)?.and_then(|ids| ids.first().copied())) };
    configuration.bos = first("bos_token_id")?.or(configuration.bos);
    configuration.pad = first("pad_token_id")?.or(configuration.pad);
    Ok(())
}

/// The `sliding_window` in tokens: `None` for `null`, [`WINDOW`] if the key is missing. Errors: another value than a
/// whole number.
pub(super) fn sliding_window(fields: &Fields<'_>) -> Result<Option<usize>> {
    match fields.contains_key("sliding_window") {
        true => fields.get("sliding_window"),
        false => Ok(Some(WINDOW)),
    }
}

/// Sets `window` on the layers that slide and none on the others. Layers slide that `layer_types` calls
/// `sliding_attention`; if that key is missing or null, those for which `slides(layer)` is true. With `window` `None`,
/// no layer has one. Errors: `layer_types` of another length or with other names.
pub(super) fn set_windows(
    fields: &Fields<'_>,
    configuration: &mut Configuration,
    window: Option<usize>,
    slides: impl Fn(usize) -> bool,
) -> Result<()> {
    let types: Option<Vec<&str>> = fields.get("layer_types")?;
    if types.as_ref().is_some_and(|types| types.len() != configuration.layers) {
        return Err(fields.value_error("layer_types", "one type for each layer"));
    }
    for (layer, kind) in configuration.layer_kinds.iter_mut().enumerate() {
        let sliding = match types.as_ref().and_then(|types| types.get(layer)) {
            Some(&"sliding_attention") => true,
            Some(&"full_attention") => false,
            Some(_) => return Err(fields.value_error("layer_types", "sliding_attention and full_attention")),
            None => slides(layer),
        };
        kind.window = window.filter(|_| sliding);
    }
    Ok(())
}

/// Sets the local rotation on the layers that `layer_types` calls `sliding_attention`, and the global one on the
/// others; if that key is missing or null, the local one on those for which `slides(layer)` is true. A local layer
/// without a window has the local rotation too.
pub(super) fn set_local_rotations(
    fields: &Fields<'_>,
    configuration: &mut Configuration,
    slides: impl Fn(usize) -> bool,
) -> Result<()> {
    let types: Option<Vec<&str>> = fields.get("layer_types")?;
    for (layer, kind) in configuration.layer_kinds.iter_mut().enumerate() {
        let named = types.as_ref().and_then(|types| types.get(layer));
        let is_local = named.map_or_else(|| slides(layer), |name| *name == "sliding_attention");
        kind.rope = Some(if is_local { rope::LOCAL } else { rope::GLOBAL });
    }
    Ok(())
}

/// The window in tokens, if `use_sliding_window` is set: `sliding_window`, or `usual` if that is missing or null; else
/// `None`. Errors: `layer_types` names sliding layers but there is no window; transformers stops there, or applies a
/// window in only some of its attention implementations.
pub(super) fn window_in_use(fields: &Fields<'_>, usual: Option<usize>) -> Result<Option<usize>> {
    let used = fields.get_or("use_sliding_window", Some(false))?;
    let window = if used { fields.get("sliding_window")?.or(usual) } else { None };
    let types: Vec<&str> = fields.get_or("layer_types", Some(Vec::new()))?;
    if window.is_none() && types.contains(&"sliding_attention") {
        let (key, allowed) = if used { ("sliding_window", "a window") } else { ("use_sliding_window", "true") };
        return Err(fields.value_error(key, &format!("{allowed} where `layer_types` names layers that slide")));
    }
    Ok(window)
}

/// Converts a configuration of a family to the `config.json` keys that all families share. Writes bias keys only if the
/// family reads them, special tokens only if they are set, and `eos_token_id` as a list only if there are several.
pub(super) fn write(configuration: &Configuration, family: &Family) -> Value {
    let mut config = json!({
        "model_type": configuration.family,
        "architectures": [family.class],
        "hidden_size": configuration.hidden,
        "intermediate_size": configuration.intermediate,
        "num_hidden_layers": configuration.layers,
        "num_attention_heads": configuration.heads,
        "num_key_value_heads": configuration.kv_heads,
        "head_dim": configuration.head_dim,
        "vocab_size": configuration.vocabulary,
        "rms_norm_eps": configuration.norm_epsilon,
        "max_position_embeddings": configuration.max_positions,
        "tie_word_embeddings": configuration.tied,
    });
    let (key, name) = activation(configuration);
    let eos = match configuration.eos.as_slice() {
        [] => None,
        [one] => Some(json!(one)),
        several => Some(json!(several)),
    };
    let optional = [
        (key, Some(json!(name))),
        ("attention_bias", family.attention_bias.then(|| json!(configuration.attention_bias))),
        ("mlp_bias", family.mlp_bias.then(|| json!(configuration.feed_forward_bias))),
        ("eos_token_id", eos),
        ("bos_token_id", configuration.bos.map(|id| json!(id))),
        ("pad_token_id", configuration.pad.map(|id| json!(id))),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            config[key] = value;
        }
    }
    rope::write(configuration, &mut config);
    config
}

/// Reads the experts of a model: `num_experts`, or `num_local_experts` as transformers 5 may write it, of which each
/// token runs through `num_experts_per_tok`. Missing keys get the numbers of `usual`, from which the rest is taken.
pub(super) fn experts(fields: &Fields<'_>, usual: Experts) -> Result<Experts> {
    Ok(Experts {
        count: fields.get("num_local_experts")?.map_or_else(|| fields.get_or("num_experts", Some(usual.count)), Ok)?,
        active: fields.get_or("num_experts_per_tok", Some(usual.active))?,
        ..usual
    })
}

/// Writes the keys of a model's experts, but for their width; nothing for a model without experts.
pub(super) fn write_experts(configuration: &Configuration, config: &mut Value) {
    if let Some(experts) = &configuration.experts {
        config["num_experts"] = json!(experts.count);
        config["num_experts_per_tok"] = json!(experts.active);
        config["norm_topk_prob"] = json!(experts.normalized);
    }
}

/// The value of `layer_types`: for each layer `sliding_attention` if `slides` is true for its kind, else
/// `full_attention`.
pub(super) fn layer_types(configuration: &Configuration, slides: impl Fn(&LayerKind) -> bool) -> Value {
    let kinds = configuration.layer_kinds.iter();
    kinds.map(|kind| if slides(kind) { "sliding_attention" } else { "full_attention" }).collect()
}

/// Writes the window of the first layer that has one as `sliding_window`; `null` if none has.
pub(super) fn write_one_window(configuration: &Configuration, config: &mut Value) {
    config["sliding_window"] = json!(configuration.layer_kinds.iter().find_map(|kind| kind.window));
}

/// Adds the keys of local and global layers: their window, which of them are local, and a rotation for each kind.
pub(super) fn write_local_layers(configuration: &Configuration, config: &mut Value) {
    write_one_window(configuration, config);
    config["layer_types"] = layer_types(configuration, |kind| kind.rope == Some(rope::LOCAL));
    rope::write_kinds(configuration, config);
}

/// Adds `use_sliding_window` and, if any layer has a window, `sliding_window` and `layer_types`.
pub(super) fn write_windows_in_use(configuration: &Configuration, config: &mut Value) {
    let used = configuration.layer_kinds.iter().any(|kind| kind.window.is_some());
    config["use_sliding_window"] = json!(used);
    if used {
        write_one_window(configuration, config);
        config["layer_types"] = layer_types(configuration, |kind| kind.window.is_some());
    }
}
