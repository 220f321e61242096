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

/// A family's configuration. Multimodal checkpoints keep their text model in `text_config`.
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

/// A plain decoder with what all families read from the same keys.
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

/// Key and value heads. `null` means as many as query heads, also where the key may be left out for fewer.
fn kv_heads(fields: &Fields<'_>, default: Option<usize>, heads: usize) -> Result<usize> {
    const KEY: &str = "num_key_value_heads";
    fields.size_or(KEY, default.filter(|_| !fields.contains_key(KEY)).or(Some(heads)))
}

/// The features of a head that turn. The share of them stands in the rotation's object or beside it.
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

fn read_special(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    let eos = fields.ids("eos_token_id")?;
    if !eos.is_empty() {
        configuration.eos = eos;
    }
    configuration.bos = fields.ids("bos_token_id")?.first().copied().or(configuration.bos);
    configuration.pad = fields.ids("pad_token_id")?.first().copied().or(configuration.pad);
    Ok(())
}

/// The object of the rotation: where a file has both the older and the newer, transformers takes `rope_scaling`. One
/// without keys says nothing.
pub(super) fn rotation<'a>(fields: &Fields<'a>) -> Result<Option<Fields<'a>>> {
    let older = fields.object("rope_scaling")?.filter(|object| !object.is_empty());
    let newer = fields.object("rope_parameters")?.filter(|object| !object.is_empty());
    Ok(older.or(newer))
}

/// The one rotation of a model, in the older form (`rope_theta` and `rope_scaling`) or the newer (`rope_parameters`).
pub(super) fn rope(fields: &Fields<'_>, configuration: &Configuration) -> Result<RopeSetting> {
    rope_from(fields, configuration, THETA)
}

/// The one rotation of a model; `theta` is the base of the frequencies where the file names none.
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

/// A rotation from its own object. `original`, the context that was first trained on, counts before one in the object.
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

/// Factors of their own for every frequency, one set for short and one for long texts.
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

/// Reads `attention_bias`, false where it is missing, for the attention's inputs and output.
pub(super) fn attention_bias(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    configuration.attention_bias = fields.flag("attention_bias", false)?;
    configuration.output_bias = configuration.attention_bias;
    Ok(())
}

/// Reads `sliding_window`: `null` means no window, a missing key the window that transformers assumes.
pub(super) fn sliding_window(fields: &Fields<'_>, assumed: usize) -> Result<Option<usize>> {
    match fields.contains_key("sliding_window") {
        true => fields.optional_size("sliding_window"),
        false => Ok(Some(assumed)),
    }
}

/// The names of the layers' kinds, for `layer_types`.
pub(super) fn layer_types(configuration: &Configuration) -> Value {
    let kinds = configuration.layers_kind.iter();
    kinds.map(|kind| if kind.window.is_some() { "sliding_attention" } else { "full_attention" }).collect()
}

/// Gives a window to the layers that slide. `layer_types` says which; `slides` does when it is missing.
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

/// The window of a family that says whether one is in use; of the usual size where none is named. Layers that are called
/// sliding must not lack it: transformers stops there, or gives them a window in one implementation of attention and none
/// in another.
pub(super) fn window_in_use(fields: &Fields<'_>, usual: Option<usize>) -> Result<Option<usize>> {
    let used = fields.flag("use_sliding_window", false)?;
    let window = if used { fields.optional_size("sliding_window")?.or(usual) } else { None };
    if window.is_none() && fields.texts("layer_types")?.is_some_and(|types| types.contains(&"sliding_attention")) {
        let (key, allowed) = if used { ("sliding_window", "a window") } else { ("use_sliding_window", "true") };
        return Err(fields.value_error(key, &format!("{allowed} where `layer_types` names layers that slide")));
    }
    Ok(window)
}

/// The keys that all families write.
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

/// A rotation's object, without its base.
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

/// The Llama 3.1 settings that make these divisors. Every Llama 3 checkpoint uses low 1, high 4 and a first context of
/// 8,192 tokens; the factor is the largest divisor.
fn write_divisors(theta: f64, divisors: &[f64]) -> Value {
    let factor = divisors.iter().copied().fold(1.0, f64::max);
    let scaling = RopeScaling::Llama3 { factor, low: 1.0, high: 4.0, original: 8192.0 };
    let setting = RopeSetting { theta, scaling };
    write_scaling(&setting)
}
