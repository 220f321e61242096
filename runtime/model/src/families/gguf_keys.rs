//! What the metadata of a GGUF file says of single families, and which models llama.cpp runs by it.

use candle_core::quantized::gguf_file::Value;

use crate::configuration::Configuration;

/// The keys that only one family has in GGUF metadata, without the architecture before them; or why llama.cpp cannot
/// run the model.
pub(crate) type OwnKeys = Result<Vec<(&'static str, Value)>, &'static str>;

/// No keys of its own. Errors: a layer has an attention window shorter than the context, or no rotation, or there are
/// several rotations.
pub(super) fn without_own(configuration: &Configuration) -> OwnKeys {
    let kinds = &configuration.layer_kinds;
    if kinds.iter().any(|kind| kind.window.is_some_and(|window| window < configuration.max_positions)) {
        return Err("llama.cpp has no attention window for this family");
    }
    match configuration.ropes.len() == 1 && kinds.iter().all(|kind| kind.rope == Some(0)) {
        true => Ok(Vec::new()),
        false => Err("its layers have several rotations or none"),
    }
}

/// No keys of its own, for a family in which llama.cpp divides the weights of a token's experts by their sum if
/// `normalized`. Errors: the model's are normalized otherwise, or those of [`without_own`].
pub(super) fn with_experts(configuration: &Configuration, normalized: bool) -> OwnKeys {
    match configuration.experts.is_some_and(|experts| experts.normalized != normalized) {
        true => Err("llama.cpp normalizes the weights of this family's experts otherwise than `norm_topk_prob` says"),
        false => without_own(configuration),
    }
}
