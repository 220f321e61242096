//! What all families share in `config.json`, read and written.
//! Leaves what differs to the families' own files.

use serde_json::{Value, json};

use super::family::Family;
use crate::configuration::rope::{longrope_attention_factor, yarn_attention_factor};
use crate::configuration::{Activation, Configuration, LayerKind, RopeScaling, RopeSetting};
use crate::error::Result;
use crate::fields::Fields;

/// The window that transformers assumes where one is in use and not named, in every family that has one.
pub(super) const WINDOW: usize = 4096;

/// The key of the context that was first trained on.
const ORIGINAL: &str = "original_max_position_embeddings";

/// Reads the configuration of a `config.json` of this family, from its `text_config` if it is a multimodal checkpoint.
/// Leaves the check of values to the caller.
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
    configuration.ropes = ropes(fields, family, configuration.max_positions)?;
    (family.from_hugging_face)(fields, &mut configuration)?;
    Ok(configuration)
}

/// A decoder of this family with the sizes and special tokens that all families read from the same keys.
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
        rotated: rotated(fields, family, head_dim)?,
        vocabulary: fields.get_or("vocab_size", family.vocabulary)?,
        norm_epsilon: fields.get_or("rms_norm_eps", Some(family.norm_epsilon))?,
        tied: fields.get_or("tie_word_embeddings", Some(family.tied))?,
        max_positions: fields.get_or("max_position_embeddings", Some(family.max_positions))?,
        ..Configuration::plain(family.name, hidden, layers, heads, head_dim)
    };
    (family.shape)(&mut configuration);
    read_special(fields, &mut configuration)?;
    Ok(configuration)
}

/// The key and the name of a configuration's activation in `config.json`.
fn activation(configuration: &Configuration) -> (&'static str, &'static str) {
    match configuration.activation {
        Activation::GeluTanh => ("hidden_activation", "gelu_pytorch_tanh"),
        _ => ("hidden_act", "silu"),
    }
}

/// The number of rotated features of a head, from `partial_rotary_factor` in the rotation's object or beside it;
/// `head_dim` if missing. Errors: a share outside (0, 1], or other than 1 in a family that rotates whole heads.
fn rotated(fields: &Fields<'_>, family: &Family, head_dim: usize) -> Result<usize> {
    const KEY: &str = "partial_rotary_factor";
    let objects = [rotation(fields)?, Some(*fields)];
    let Some(holder) = objects.into_iter().flatten().find(|object| object.has_value(KEY)) else {
        return Ok(head_dim);
    };
    if !family.long_rope {
        holder.only(KEY, &json!(1.0))?;
    }
    let share: f64 = holder.require(KEY)?;
    if !(share > 0.0 && share <= 1.0) {
        return Err(holder.value_error(KEY, "a share above 0 and up to 1"));
    }
    Ok((head_dim as f64 * share) as usize)
}

/// Sets end, beginning and padding tokens from the keys that are present; others stay as they are.
fn read_special(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    if let Some(eos) = fields.list("eos_token_id")?.filter(|eos| !eos.is_empty()) {
        configuration.eos = eos;
    }
    let first = |key| -> Result<Option<u32>> { Ok(fields.list(key)?.and_then(|ids| ids.first().copied())) };
    configuration.bos = first("bos_token_id")?.or(configuration.bos);
    configuration.pad = first("pad_token_id")?.or(configuration.pad);
    Ok(())
}

/// The rotation's object: `rope_scaling` if it is present and has keys, as in transformers, else `rope_parameters`.
/// `None` if neither has keys.
fn rotation<'a>(fields: &Fields<'a>) -> Result<Option<Fields<'a>>> {
    let (older, newer) = (fields.object("rope_scaling")?, fields.object("rope_parameters")?);
    Ok(older.or(newer))
}

/// Reads the rotations of a model: one, in the older form (`rope_theta` and `rope_scaling`) or the newer
/// (`rope_parameters`); or, for a family with a local rotation, the global and the local one. Errors: an object for each
/// kind of layer where the family has one rotation, or a kind of scaling that is not known.
fn ropes(fields: &Fields<'_>, family: &Family, max_positions: usize) -> Result<Vec<RopeSetting>> {
    const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];
    let theta = fields.get_or("rope_theta", Some(family.theta))?;
    let mut ropes = vec![RopeSetting::plain(theta)];
    let Some(local_theta) = family.local_theta else {
        let Some(parameters) = rotation(fields)? else { return Ok(ropes) };
        if parameters.has_value(KINDS[0]) {
            return Err(parameters.value_error(KINDS[0], "one rotation for all layers of this family"));
        }
        // Beside the rotation it counts before one in it, as in transformers.
        let beside = fields.get(ORIGINAL)?.or(family.original);
        return Ok(vec![rope_of(&parameters, family, theta, beside, max_positions)?]);
    };
    ropes.push(RopeSetting::plain(fields.get_or("rope_local_base_freq", Some(local_theta))?));
    if let Some(parameters) = fields.object("rope_parameters")? {
        for (rope, kind) in ropes.iter_mut().zip(KINDS) {
            if let Some(object) = parameters.object(kind)? {
                object.only("partial_rotary_factor", &json!(1.0))?;
                *rope = rope_of(&object, family, rope.theta, None, max_positions)?;
            }
        }
    }
    // Where a file has both, the older key counts, as in transformers. It stretches the global rotation alone.
    if let Some(scaling) = fields.object("rope_scaling")? {
        ropes[0] = rope_of(&scaling, family, ropes[0].theta, None, max_positions)?;
    }
    Ok(ropes)
}

/// Reads a rotation from its own object. `theta` is the default base; `original`, the context first trained on in
/// tokens, wins over the key in the object, and `max_positions` is used without either. Errors: an unknown kind of
/// scaling, or one that the family does not have.
fn rope_of(
    parameters: &Fields<'_>,
    family: &Family,
    theta: f64,
    original: Option<f64>,
    max_positions: usize,
) -> Result<RopeSetting> {
    let theta = parameters.get_or("rope_theta", Some(theta))?;
    let key = if parameters.has_value("rope_type") { "rope_type" } else { "type" };
    let original = match original {
        Some(original) => original,
        None => parameters.get_or(ORIGINAL, Some(max_positions as f64))?,
    };
    let scaling = match parameters.get_or(key, Some("default"))? {
        "default" => RopeScaling::None,
        "longrope" => longrope(parameters, original, max_positions)?,
        "su" | "yarn" if family.long_rope => longrope(parameters, original, max_positions)?,
        _ if family.long_rope => return Err(parameters.value_error(key, "one of default, longrope")),
        "linear" => RopeScaling::Linear { factor: parameters.require("factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: parameters.require("factor")?,
            low_freq_factor: parameters.require("low_freq_factor")?,
            high_freq_factor: parameters.require("high_freq_factor")?,
            original: original as usize,
        },
        "yarn" => yarn(parameters, original, max_positions)?,
        _ => return Err(parameters.value_error(key, "one of default, linear, llama3, yarn, longrope")),
    };
    Ok(RopeSetting { theta, scaling })
}

/// Reads YaRN's parameters. Defaults as in transformers: factor `max_positions / original`, and an attention factor
/// inferred from the factor, with `mscale` and `mscale_all_dim` if both are set.
fn yarn(parameters: &Fields<'_>, original: f64, max_positions: usize) -> Result<RopeScaling> {
    let factor = parameters.get_or("factor", Some(max_positions as f64 / original))?;
    let weight = |key| -> Result<Option<f64>> { Ok(parameters.get(key)?.filter(|weight| *weight != 0.0)) };
    let inferred = match (weight("mscale")?, weight("mscale_all_dim")?) {
        (Some(one), Some(all)) => yarn_attention_factor(factor, one) / yarn_attention_factor(factor, all),
        _ => yarn_attention_factor(factor, 1.0),
    };
    Ok(RopeScaling::Yarn {
        factor,
        original: original as usize,
        beta_fast: weight("beta_fast")?.unwrap_or(32.0),
        beta_slow: weight("beta_slow")?.unwrap_or(1.0),
        attention_factor: parameters.get_or("attention_factor", Some(inferred))?,
        truncate: parameters.get_or("truncate", Some(true))?,
    })
}

/// Reads LongRoPE's parameters: a list of factors for short and one for long sequences. The attention factor is
/// inferred from `max_positions / original` if missing. Errors: a list is missing.
fn longrope(parameters: &Fields<'_>, original: f64, max_positions: usize) -> Result<RopeScaling> {
    let factors =
        |key| parameters.get(key)?.ok_or_else(|| parameters.value_error(key, "one factor for each frequency"));
    let factor = parameters.get_or("factor", Some(max_positions as f64 / original))?;
    let inferred = longrope_attention_factor(factor, original);
    Ok(RopeScaling::Long {
        short_factor: factors("short_factor")?,
        long_factor: factors("long_factor")?,
        original: original as usize,
        attention_factor: parameters.get_or("attention_factor", Some(inferred))?,
    })
}

/// The `sliding_window` in tokens: `None` for `null`, [`WINDOW`] if the key is missing.
pub(super) fn sliding_window(fields: &Fields<'_>) -> Result<Option<usize>> {
    match fields.contains_key("sliding_window") {
        true => fields.get("sliding_window"),
        false => Ok(Some(WINDOW)),
    }
}

/// Sets `window` on the layers that slide and none on the others. `layer_types` says which slide; if it is missing,
/// `slides(layer)`. Errors: `layer_types` of another length or with other names.
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
    for (layer, kind) in configuration.layers_kind.iter_mut().enumerate() {
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

/// The window in tokens if `use_sliding_window` is set, `usual` if none is named; else `None`. Errors: `layer_types`
/// names sliding layers but there is no window; transformers stops there, or applies a window in only some of its
/// attention implementations.
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

/// Converts a configuration of a family to the `config.json` keys that all families share. Writes rotation keys only for
/// models with one rotation.
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
    if let [rope] = configuration.ropes.as_slice() {
        config["rope_theta"] = json!(rope.theta);
        if rope.scaling != RopeScaling::None {
            config["rope_scaling"] = write_scaling(rope);
        }
    }
    config
}

/// The value of `layer_types`: `sliding_attention` for each layer that slides, else `full_attention`.
pub(super) fn layer_types(configuration: &Configuration, slides: impl Fn(&LayerKind) -> bool) -> Value {
    let kinds = configuration.layers_kind.iter();
    kinds.map(|kind| if slides(kind) { "sliding_attention" } else { "full_attention" }).collect()
}

/// Writes the window of the first layer that has one as `sliding_window`; `null` if none has.
pub(super) fn write_one_window(configuration: &Configuration, config: &mut Value) {
    config["sliding_window"] = json!(configuration.layers_kind.iter().find_map(|kind| kind.window));
}

/// Adds `use_sliding_window` and, if any layer has a window, `sliding_window` and `layer_types`.
pub(super) fn write_windows_in_use(configuration: &Configuration, config: &mut Value) {
    let used = configuration.layers_kind.iter().any(|kind| kind.window.is_some());
    config["use_sliding_window"] = json!(used);
    if used {
        write_one_window(configuration, config);
        config["layer_types"] = layer_types(configuration, |kind| kind.window.is_some());
    }
}

/// A rotation's `rope_scaling` object, without its base.
///
/// A list of GGUF divisors becomes Llama 3's scaling: the factor is the largest divisor; low 1, high 4 and a first
/// context of 8,192 tokens are those of every Llama 3 checkpoint.
pub(super) fn write_scaling(rope: &RopeSetting) -> Value {
    match &rope.scaling {
        RopeScaling::Divided { divisors } => json!(RopeScaling::Llama3 {
            factor: divisors.iter().copied().fold(1.0, f64::max),
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original: 8192,
        }),
        scaling => json!(scaling),
    }
}
