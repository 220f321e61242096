//! What all families share in `config.json`, read and written.
//! Leaves what differs to the families' own files.

use serde_json::{Map, Value, json};

use super::family::Family;
use super::fields::Fields;
use crate::configuration::rope::{longrope_attention_factor, yarn_attention_factor};
use crate::configuration::{Configuration, RopeScaling, RopeSetting};
use crate::error::Result;

/// The base of rotation frequencies when a `config.json` names none.
pub(super) const THETA: f64 = 10_000.0;

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
        configuration.tied = whole.flag("tie_word_embeddings", configuration.tied)?;
    }
    (family.from_hugging_face)(fields, &mut configuration)?;
    Ok(configuration)
}

/// A plain decoder with the sizes, norms and special tokens that all families read from the same keys.
fn shared_keys(fields: &Fields<'_>, family: &Family) -> Result<Configuration> {
    let defaults = family.defaults;
    let hidden = fields.size("hidden_size")?;
    let layers = fields.size("num_hidden_layers")?;
    let heads = fields.size_or("num_attention_heads", defaults.heads)?;
    let head_dim = fields.size_or("head_dim", defaults.head_dim.or(hidden.checked_div(heads)))?;
    let mut configuration = Configuration {
        intermediate: fields.size("intermediate_size")?,
        kv_heads: kv_heads(fields, defaults.kv_heads, heads)?,
        rotated: rotated(fields, family, head_dim)?,
        vocabulary: fields.size_or("vocab_size", defaults.vocabulary)?,
        norm_epsilon: fields.optional_number("rms_norm_eps")?.unwrap_or(1e-6),
        tied: fields.flag("tie_word_embeddings", defaults.tied)?,
        max_positions: fields.optional_size("max_position_embeddings")?.unwrap_or(defaults.max_positions),
        ..Configuration::plain(family.name, hidden, layers, heads, head_dim)
    };
    read_special(fields, &mut configuration)?;
    Ok(configuration)
}

/// The number of key and value heads: the family's default if the key is missing; as many as query heads if it is
/// `null` or there is no default.
fn kv_heads(fields: &Fields<'_>, default: Option<usize>, heads: usize) -> Result<usize> {
    const KEY: &str = "num_key_value_heads";
    fields.size_or(KEY, default.filter(|_| !fields.contains_key(KEY)).or(Some(heads)))
}

/// The number of rotated features of a head, from `partial_rotary_factor` in the rotation's object or beside it;
/// `head_dim` if missing. Errors: a share outside (0, 1], or other than 1 in a family that rotates whole heads.
fn rotated(fields: &Fields<'_>, family: &Family, head_dim: usize) -> Result<usize> {
    const KEY: &str = "partial_rotary_factor";
    let objects = [rotation(fields)?, Some(*fields)];
    let Some(holder) = objects.into_iter().flatten().find(|object| object.value(KEY).is_some()) else {
        return Ok(head_dim);
    };
    if !family.partial_rotation {
        holder.only(KEY, &json!(1.0))?;
    }
    let share = holder.number(KEY)?;
    if !(share > 0.0 && share <= 1.0) {
        return Err(holder.value_error(KEY, "shares above 0 and up to 1"));
    }
    Ok((head_dim as f64 * share) as usize)
}

/// Sets end, beginning and padding tokens from the keys that are present; others stay as they are.
fn read_special(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    let eos = fields.ids("eos_token_id")?;
    if !eos.is_empty() {
        configuration.eos = eos;
    }
    configuration.bos = fields.ids("bos_token_id")?.first().copied().or(configuration.bos);
    configuration.pad = fields.ids("pad_token_id")?.first().copied().or(configuration.pad);
    Ok(())
}

/// The rotation's object: `rope_scaling` if it is present and has keys, as in transformers, else `rope_parameters`.
/// `None` if neither has keys.
pub(super) fn rotation<'a>(fields: &Fields<'a>) -> Result<Option<Fields<'a>>> {
    let older = fields.object("rope_scaling")?.filter(|object| !object.is_empty());
    let newer = fields.object("rope_parameters")?.filter(|object| !object.is_empty());
    Ok(older.or(newer))
}

/// Reads the one rotation of a model, in the older form (`rope_theta` and `rope_scaling`) or the newer
/// (`rope_parameters`), with 10,000 as the default base.
pub(super) fn rope(fields: &Fields<'_>, configuration: &Configuration) -> Result<RopeSetting> {
    rope_from(fields, configuration, THETA)
}

/// Reads the one rotation of a model; `theta` is the default base. Errors: an object with a rotation for each kind of
/// layer, or a kind of scaling that is not known.
pub(super) fn rope_from(fields: &Fields<'_>, configuration: &Configuration, theta: f64) -> Result<RopeSetting> {
    let theta = fields.optional_number("rope_theta")?.unwrap_or(theta);
    let Some(parameters) = rotation(fields)? else { return Ok(RopeSetting::plain(theta)) };
    if parameters.value("full_attention").is_some() {
        return Err(parameters.value_error("full_attention", "one rotation for all layers of this family"));
    }
    // Beside the rotation it counts before one in it, as in transformers.
    let beside = fields.optional_number(ORIGINAL)?;
    rope_of(&parameters, theta, beside, configuration.max_positions)
}

/// Reads a rotation from its own object. `theta` is the default base; `original`, the context first trained on in
/// tokens, wins over the key in the object, and `max_positions` is used without either. Errors: an unknown kind of
/// scaling.
pub(super) fn rope_of(
    parameters: &Fields<'_>,
    theta: f64,
    original: Option<f64>,
    max_positions: usize,
) -> Result<RopeSetting> {
    let theta = parameters.optional_number("rope_theta")?.unwrap_or(theta);
    let key = if parameters.value("rope_type").is_some() { "rope_type" } else { "type" };
    let original =
        || -> Result<f64> { Ok(original.or(parameters.optional_number(ORIGINAL)?).unwrap_or(max_positions as f64)) };
    let scaling = match parameters.optional_text(key)?.unwrap_or("default") {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: parameters.number("factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: parameters.number("factor")?,
            low: parameters.number("low_freq_factor")?,
            high: parameters.number("high_freq_factor")?,
            original: original()?,
        },
        "yarn" => yarn(parameters, original()?, max_positions)?,
        "longrope" => longrope(parameters, original()?, max_positions)?,
        _ => return Err(parameters.value_error(key, "the rotations default, linear, llama3, yarn and longrope")),
    };
    Ok(RopeSetting { theta, scaling })
}

/// Reads YaRN's parameters. Defaults as in transformers: factor `max_positions / original`, and an attention factor
/// inferred from the factor, with `mscale` and `mscale_all_dim` if both are set.
fn yarn(parameters: &Fields<'_>, original: f64, max_positions: usize) -> Result<RopeScaling> {
    let factor = parameters.optional_number("factor")?.unwrap_or(max_positions as f64 / original);
    let weight = |key| -> Result<Option<f64>> { Ok(parameters.optional_number(key)?.filter(|weight| *weight != 0.0)) };
    let inferred = match (weight("mscale")?, weight("mscale_all_dim")?) {
        (Some(one), Some(all)) => yarn_attention_factor(factor, one) / yarn_attention_factor(factor, all),
        _ => yarn_attention_factor(factor, 1.0),
    };
    Ok(RopeScaling::Yarn {
        factor,
        original,
        beta_fast: weight("beta_fast")?.unwrap_or(32.0),
        beta_slow: weight("beta_slow")?.unwrap_or(1.0),
        attention_factor: parameters.optional_number("attention_factor")?.unwrap_or(inferred),
        truncate: parameters.flag("truncate", true)?,
    })
}

/// Reads LongRoPE's parameters: a list of factors for short and one for long sequences. The attention factor is
/// inferred from `max_positions / original` if missing. Errors: a list is missing.
pub(super) fn longrope(parameters: &Fields<'_>, original: f64, max_positions: usize) -> Result<RopeScaling> {
    let factors =
        |key| parameters.numbers(key)?.ok_or_else(|| parameters.value_error(key, "one factor for each frequency"));
    let factor = parameters.optional_number("factor")?.unwrap_or(max_positions as f64 / original);
    let inferred = longrope_attention_factor(factor, original);
    Ok(RopeScaling::Long {
        short: factors("short_factor")?,
        long: factors("long_factor")?,
        original,
        attention_factor: parameters.optional_number("attention_factor")?.unwrap_or(inferred),
    })
}

/// Sets the biases of queries, keys and values and of the attention's output from `attention_bias`, false if missing.
pub(super) fn attention_bias(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    configuration.attention_bias = fields.flag("attention_bias", false)?;
    configuration.output_bias = configuration.attention_bias;
    Ok(())
}

/// The `sliding_window` in tokens: `None` for `null`, `assumed` if the key is missing.
pub(super) fn sliding_window(fields: &Fields<'_>, assumed: usize) -> Result<Option<usize>> {
    match fields.contains_key("sliding_window") {
        true => fields.optional_size("sliding_window"),
        false => Ok(Some(assumed)),
    }
}

/// The value of `layer_types`: `sliding_attention` for each layer with a window, else `full_attention`.
pub(super) fn layer_types(configuration: &Configuration) -> Value {
    let kinds = configuration.layers_kind.iter();
    kinds.map(|kind| if kind.window.is_some() { "sliding_attention" } else { "full_attention" }).collect()
}

/// Sets `window` on the layers that slide and none on the others. `layer_types` says which slide; if it is missing,
/// `slides(layer)`. Errors: `layer_types` of another length or with other names.
pub(super) fn windows(
    fields: &Fields<'_>,
    configuration: &mut Configuration,
    window: Option<usize>,
    slides: impl Fn(usize) -> bool,
) -> Result<()> {
    let types = fields.texts("layer_types")?;
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
    let used = fields.flag("use_sliding_window", false)?;
    let window = if used { fields.optional_size("sliding_window")?.or(usual) } else { None };
    if window.is_none() && fields.texts("layer_types")?.is_some_and(|types| types.contains(&"sliding_attention")) {
        let (key, allowed) = if used { ("sliding_window", "a window") } else { ("use_sliding_window", "true") };
        return Err(fields.value_error(key, &format!("{allowed} where `layer_types` names layers that slide")));
    }
    Ok(window)
}

/// The `config.json` keys that all families share. Writes rotation keys only for models with one rotation.
pub(super) fn write(configuration: &Configuration) -> Map<String, Value> {
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| map.insert(key.into(), value);
    put("model_type", json!(configuration.family));
    put("hidden_size", json!(configuration.hidden));
    put("intermediate_size", json!(configuration.intermediate));
    put("num_hidden_layers", json!(configuration.layers));
    put("num_attention_heads", json!(configuration.heads));
    put("num_key_value_heads", json!(configuration.kv_heads));
    put("head_dim", json!(configuration.head_dim));
    put("vocab_size", json!(configuration.vocabulary));
    put("rms_norm_eps", json!(configuration.norm_epsilon));
    put("hidden_act", json!("silu"));
    put("max_position_embeddings", json!(configuration.max_positions));
    put("tie_word_embeddings", json!(configuration.tied));
    match configuration.eos.as_slice() {
        [] => {}
        [one] => drop(put("eos_token_id", json!(one))),
        several => drop(put("eos_token_id", json!(several))),
    }
    if let Some(id) = configuration.bos {
        put("bos_token_id", json!(id));
    }
    if let Some(id) = configuration.pad {
        put("pad_token_id", json!(id));
    }
    if let [rope] = configuration.ropes.as_slice() {
        put("rope_theta", json!(rope.theta));
        if rope.scaling != RopeScaling::None {
            put("rope_scaling", write_scaling(rope));
        }
    }
    map
}

/// A rotation's `rope_scaling` object, without its base.
pub(super) fn write_scaling(rope: &RopeSetting) -> Value {
    match &rope.scaling {
        RopeScaling::None => json!({"rope_type": "default"}),
        RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        RopeScaling::Llama3 { factor, low, high, original } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": *original as u64,
        }),
        RopeScaling::Yarn { factor, original, beta_fast, beta_slow, attention_factor, truncate } => json!({
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": *original as u64,
            "beta_fast": beta_fast,
            "beta_slow": beta_slow,
            "attention_factor": attention_factor,
            "truncate": truncate,
        }),
        RopeScaling::Long { short, long, original, attention_factor } => json!({
            "rope_type": "longrope",
            "short_factor": short,
            "long_factor": long,
            "original_max_position_embeddings": *original as u64,
            "attention_factor": attention_factor,
        }),
        RopeScaling::Divided { divisors } => write_divisors(rope.theta, divisors),
    }
}

/// The `llama3` scaling for a list of GGUF divisors: the factor is the largest divisor; low 1, high 4 and a first
/// context of 8,192 tokens are those of every Llama 3 checkpoint.
fn write_divisors(theta: f64, divisors: &[f64]) -> Value {
    let factor = divisors.iter().copied().fold(1.0, f64::max);
    let scaling = RopeScaling::Llama3 { factor, low: 1.0, high: 4.0, original: 8192.0 };
    let setting = RopeSetting { theta, scaling };
    write_scaling(&setting)
}
