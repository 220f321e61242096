//! Reads and writes the rotary position embeddings (RoPE) of `config.json`.

use serde_json::{Value, json};

use super::family::Family;
use crate::configuration::rope::{longrope_attention_factor, yarn_attention_factor};
use crate::configuration::{Configuration, RopeScaling, RopeSetting};
use crate::error::Result;
use crate::fields::Fields;

/// The key of the context length, in tokens, that the model was first trained on.
const ORIGINAL: &str = "original_max_position_embeddings";
/// The keys, in `rope_parameters`, of the two rotations of a family with local layers, in the order of their indices.
const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];
/// The index of the rotation of global layers. It is the first, because files may name only that one.
pub(super) const GLOBAL: usize = 0;
/// The index of the rotation of local layers.
pub(super) const LOCAL: usize = 1;

/// The number of rotated features of each head: `partial_rotary_factor` · `head_dim`, rounded down; if the key is
/// missing, the share of the family, or all. The key in the JSON object of the rotation wins over that at the top level
/// of `config.json`. Errors: a factor outside (0, 1], or other than 1 in a family that rotates whole heads.
pub(super) fn rotated_features(fields: &Fields<'_>, family: &Family, head_dim: usize) -> Result<usize> {
    const KEY: &str = "partial_rotary_factor";
    let objects = [rotation(fields)?, Some(*fields)];
    let Some(holder) = objects.into_iter().flatten().find(|object| object.has_value(KEY)) else {
        return Ok((head_dim as f64 * family.partial_rotation.unwrap_or(1.0)) as usize);
    };
    if family.partial_rotation.is_none() {
        holder.only(KEY, &json!(1.0))?;
    }
    let share: f64 = holder.require(KEY)?;
    if !(share > 0.0 && share <= 1.0) {
        return Err(holder.value_error(KEY, "a share above 0 and up to 1"));
    }
    Ok((head_dim as f64 * share) as usize)
}

/// The JSON object that describes the rotation: `rope_scaling` if it is present and has keys, as in transformers, else
/// `rope_parameters`. `None` if neither has keys.
fn rotation<'a>(fields: &Fields<'a>) -> Result<Option<Fields<'a>>> {
    let (older, newer) = (fields.object("rope_scaling")?, fields.object("rope_parameters")?);
    Ok(older.or(newer))
}

/// Reads the rotations of a model. Most families have one, in the older form (`rope_theta` and `rope_scaling`) or the
/// newer (`rope_parameters`). A family with a base of its own for sliding-window layers has two: that of layers with
/// full attention, then that of sliding-window layers. There, `rope_parameters` may hold an object for each of the two,
/// and `rope_scaling` replaces the first. `max_positions` is the context length in tokens. Errors: an object for each
/// kind of layer where the family has one rotation, or an unknown kind of scaling.
pub(super) fn read(fields: &Fields<'_>, family: &Family, max_positions: usize) -> Result<Vec<RopeSetting>> {
    let theta = fields.get_or("rope_theta", Some(family.theta))?;
    let mut ropes = vec![RopeSetting::plain(theta)];
    let Some(local_theta) = family.local_theta else {
        let Some(parameters) = rotation(fields)? else { return Ok(ropes) };
        if parameters.has_value(KINDS[0]) {
            return Err(parameters.value_error(KINDS[0], "one rotation for all layers of this family"));
        }
        // A key beside the rotation's object wins over the key in it, as in transformers.
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
    // Where a file has both, the older key counts, as in transformers. It scales the global rotation alone.
    if let Some(scaling) = fields.object("rope_scaling")? {
        ropes[0] = rope_of(&scaling, family, ropes[0].theta, None, max_positions)?;
    }
    Ok(ropes)
}

/// Reads a rotation from its JSON object. `theta` is the default base. `original` is the context, in tokens, that the
/// model was first trained on: if given, it wins over the key in the object; without either, `max_positions` is used.
/// Errors: a kind of scaling that is unknown or that the family does not have.
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

/// Reads YaRN's parameters. Defaults as in transformers: factor `max_positions / original`, `beta_fast` 32, `beta_slow`
/// 1, `truncate` true, and an attention factor inferred from the factor, with `mscale` and `mscale_all_dim` if both are
/// set. A 0 counts as missing in `mscale`, `mscale_all_dim` and the betas.
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

/// Reads LongRoPE's parameters: a list of factors for short and one for long sequences, and an attention factor. If
/// that is missing, it is inferred from `factor`, by default `max_positions / original`. Errors: a list is missing.
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

/// Writes `rope_theta` and, if the frequencies are scaled, `rope_scaling` into `config`. Does nothing unless the model
/// has exactly one rotation.
pub(super) fn write(configuration: &Configuration, config: &mut Value) {
    if let [rope] = configuration.ropes.as_slice() {
        config["rope_theta"] = json!(rope.theta);
        if rope.scaling != RopeScaling::None {
            config["rope_scaling"] = write_scaling(rope);
        }
    }
}

/// Adds the `partial_rotary_factor` that gives the number of rotated features again when a reader multiplies it by the
/// width of a head and rounds down: their ratio, or the next larger number where the product of the ratio is rounded
/// below.
pub(super) fn write_partial(configuration: &Configuration, config: &mut Value) {
    let (rotated, head_dim) = (configuration.rotated, configuration.head_dim);
    let share = rotated as f64 / head_dim as f64;
    let is_exact = (head_dim as f64 * share) as usize == rotated;
    config["partial_rotary_factor"] = json!(if is_exact { share } else { share.next_up() });
}

/// Adds `rope_parameters` with an object for each of the two rotations of a family with local layers.
pub(super) fn write_kinds(configuration: &Configuration, config: &mut Value) {
    for (kind, setting) in KINDS.into_iter().zip(&configuration.ropes) {
        config["rope_parameters"][kind] = write_scaling(setting);
        config["rope_parameters"][kind]["rope_theta"] = json!(setting.theta);
    }
}

/// The `rope_scaling` object of a rotation, without its base `rope_theta`.
///
/// Divisors of frequencies, the form in GGUF files, become Llama 3's scaling. Its factor is the largest divisor; the
/// low factor 1, the high factor 4 and the original context of 8,192 tokens are those of every Llama 3 checkpoint.
fn write_scaling(rope: &RopeSetting) -> Value {
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
