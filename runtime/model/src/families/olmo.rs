//! OLMo 2, with norms of what attention and feed-forward add to the residual stream instead of what they read, and with
//! norms over all features of queries and keys; and OLMo 3, in which three of four layers are local. OLMoE is in `moe`.

use candle_core::quantized::gguf_file::Value;

use super::family::Family;
use super::gguf::{self, Keys};
use super::gguf_keys::{OwnKeys, without_own};
use super::hugging_face;
use crate::configuration::{BlockNorms, Configuration, LayerKind, RopeSetting};
use crate::error::Result;
use crate::fields::Fields;

pub(super) const OLMO2: Family = Family {
    name: "olmo2",
    model_types: &["olmo2"],
    class: "Olmo2ForCausalLM",
    architecture: "olmo2",
    attention_bias: true,
    heads: Some(32),
    vocabulary: Some(50_304),
    norm_epsilon: 1e-5,
    set_architecture: |configuration| {
        (configuration.query_key_norm, configuration.joint_query_key_norm) = (true, true);
        configuration.norms = BlockNorms::OUTPUTS;
    },
    from_gguf,
    to_gguf: Some(|configuration| refuse_tied(configuration).and_then(|()| without_own(configuration))),
    ..Family::PLAIN
};

/// OLMo 3. Its GGUF files have the architecture `olmo2` as well.
pub(super) const OLMO3: Family = Family {
    name: "olmo3",
    model_types: &["olmo3"],
    class: "Olmo3ForCausalLM",
    theta: THETA,
    local_theta: Some(THETA),
    from_hugging_face,
    to_hugging_face: hugging_face::write_local_layers,
    to_gguf: Some(to_gguf),
    ..OLMO2
};

/// The default base of both rotations of OLMo 3.
const THETA: f64 = 500_000.0;
/// Every fourth layer of OLMo 3 is global.
const PERIOD: usize = 4;

/// Sets the window `sliding_window` (4,096 tokens by default) and the rotations of local and global layers.
/// `layer_types` names the local layers; if it is missing, all are local but each fourth.
fn from_hugging_face(fields: &Fields<'_>, configuration: &mut Configuration) -> Result<()> {
    let slides = |layer: usize| !(layer + 1).is_multiple_of(PERIOD);
    hugging_face::set_windows(fields, configuration, hugging_face::sliding_window(fields)?, slides)?;
    hugging_face::set_local_rotations(fields, configuration, slides)
}

/// Makes a file with a window OLMo 3, and sets the windows and rotations of its local and global layers; does nothing
/// for a file without one, which is OLMo 2.
fn from_gguf(keys: &Keys<'_>, configuration: &mut Configuration) -> Result<()> {
    const WINDOW: &str = "attention.sliding_window";
    let Some(window) = keys.optional_size(WINDOW)?.filter(|window| *window > 0) else { return Ok(()) };
    OLMO3.name.clone_into(&mut configuration.family);
    // llama.cpp rotates local layers by the base of the global ones, without their scaling.
    let theta = configuration.ropes.first().map_or(THETA, |rope| rope.theta);
    gguf::set_local_layers(keys, configuration, window, PERIOD, theta)
}

/// The window of OLMo 3 as a key of GGUF files. Errors: the embedding is the output head, or windows and rotations are
/// not those that llama.cpp gives such a model: one window and a rotation without scaling on local layers, three of
/// them before each global one, and the same base for both rotations.
fn to_gguf(configuration: &Configuration) -> OwnKeys {
    refuse_tied(configuration)?;
    let (kinds, ropes) = (&configuration.layer_kinds, configuration.ropes.as_slice());
    let window = kinds.first().and_then(|kind| kind.window);
    let is_right = |(layer, kind): (usize, &LayerKind)| match (layer + 1).is_multiple_of(PERIOD) {
        true => *kind == LayerKind::FULL,
        false => *kind == LayerKind { window, rope: Some(1) },
    };
    let has_one_base = matches!(ropes, [global, local] if *local == RopeSetting::plain(global.theta));
    match window.and_then(|window| u32::try_from(window).ok()) {
        Some(window) if has_one_base && kinds.iter().enumerate().all(is_right) => {
            Ok(vec![("attention.sliding_window", Value::U32(window))])
        }
        _ => Err("llama.cpp has three local layers before each global one in this family, and one base of rotations"),
    }
}

/// Fails if the embedding is the output head, for which llama.cpp has no place in these families.
fn refuse_tied(configuration: &Configuration) -> std::result::Result<(), &'static str> {
    match configuration.tied {
        true => Err("llama.cpp needs an output head apart from the embedding in this family"),
        false => Ok(()),
    }
}
