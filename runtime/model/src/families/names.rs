//! The weights that a configuration calls for, by their Hugging Face names, and the names that files give them.

use crate::configuration::Configuration;
use crate::decoder::site::{EXPERT_MAPS, Site, expert_of, is_router};

/// The Hugging Face name of the token embedding.
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
/// The Hugging Face name of the output head, if it is a matrix of its own.
pub(crate) const HEAD: &str = "lm_head.weight";

/// The Hugging Face names and shapes (`[out, in]` for matrices) of all weights of a model: the embedding, each block,
/// the last norm and the output head. Without `lm_head.weight` if the head is tied.
#[must_use]
pub fn weight_shapes(configuration: &Configuration) -> Vec<(String, Vec<usize>)> {
    let hidden = configuration.hidden;
    let mut list = vec![(EMBEDDING.to_owned(), vec![configuration.vocabulary, hidden])];
    for layer in 0..configuration.layers {
        for (name, shape) in block(configuration) {
            list.push((format!("model.layers.{layer}.{name}"), shape));
        }
    }
    list.push(("model.norm.weight".into(), vec![hidden]));
    if !configuration.tied {
        list.push((HEAD.into(), vec![configuration.vocabulary, hidden]));
    }
    list
}

/// The name of the base model's weight that `name` is without training: the embedding for the head of a model that ties
/// them, else `name`.
pub(crate) fn base_name<'a>(configuration: &Configuration, name: &'a str) -> &'a str {
    if configuration.tied && name == HEAD { EMBEDDING } else { name }
}

/// The names, within the block, and the shapes of one block's weights: norms, matrices `[out, in]`, those of router and
/// experts included, and biases `[out]` of those matrices that have one.
fn block(configuration: &Configuration) -> Vec<(String, Vec<usize>)> {
    let hidden = configuration.hidden;
    let mut norms =
        configuration.norms.with_gguf_names().map(|(name, _)| (format!("{name}.weight"), vec![hidden])).peekable();
    // Hugging Face's order: a norm of what attention reads, the matrices, the other norms.
    let reads = configuration.norms.attention_input.is_some();
    let mut list: Vec<_> = norms.next_if(|_| reads).into_iter().collect();
    for site in Site::all(configuration) {
        let (out, input) = site.shape(configuration);
        list.push((format!("{}.weight", site.module()), vec![out, input]));
        if site.has_bias(configuration) {
            list.push((format!("{}.bias", site.module()), vec![out]));
        }
    }
    if let Some(experts) = &configuration.experts {
        let (names, inner) = (configuration.expert_names, experts.intermediate);
        list.push((format!("{}.weight", names.router()), vec![experts.count, hidden]));
        for (module, map) in (0..experts.count).flat_map(|expert| names.of_expert(expert).into_iter().zip(EXPERT_MAPS))
        {
            let shape = if map == Site::Down { vec![hidden, inner] } else { vec![inner, hidden] };
            list.push((format!("{module}.weight"), shape));
        }
    }
    if configuration.query_key_norm {
        let joint = configuration.joint_query_key_norm;
        let width = |heads: usize| if joint { heads * configuration.head_dim } else { configuration.head_dim };
        list.push(("self_attn.q_norm.weight".into(), vec![width(configuration.heads)]));
        list.push(("self_attn.k_norm.weight".into(), vec![width(configuration.kv_heads)]));
    }
    list.extend(norms);
    list
}

/// The names that a safetensors file may give a weight, the usual one first. For `model.x`: `model.language_model.x`
/// and `language_model.model.x`, as in multimodal models, and `x`; for another name `x`: `language_model.x`.
pub(crate) fn aliases(name: &str) -> Vec<String> {
    match name.strip_prefix("model.") {
        Some(rest) => vec![
            name.to_owned(),
            format!("model.language_model.{rest}"),
            format!("language_model.model.{rest}"),
            rest.to_owned(),
        ],
        None => vec![name.to_owned(), format!("language_model.{name}")],
    }
}

/// The name of a weight or bias in GGUF files, such as `blk.0.attn_q.weight`, from its Hugging Face name; `None` if
/// GGUF has none. The matrices of a block's experts share one tensor `[experts, out, in]`, such as
/// `blk.0.ffn_gate_exps.weight`.
pub(crate) fn gguf_name(name: &str, configuration: &Configuration) -> Option<String> {
    match name {
        EMBEDDING => return Some("token_embd.weight".into()),
        "model.norm.weight" => return Some("output_norm.weight".into()),
        HEAD => return Some("output.weight".into()),
        _ => {}
    }
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (module, kind) = rest.rsplit_once('.')?;
    if expert_of(name).is_some() {
        let map = module.rsplit('.').next()?;
        let at = configuration.expert_names.maps.iter().position(|name| *name == map)?;
        return Some(format!("blk.{layer}.ffn_{}_exps.{kind}", ["gate", "up", "down"][at]));
    }
    if is_router(name) {
        return Some(format!("blk.{layer}.ffn_gate_inp.{kind}"));
    }
    let short = match module {
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.qkv_proj" => "attn_qkv",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        // Gate first, as in the other files.
        "mlp.gate_up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        // Families give the same name to norms at different places.
        other => configuration.norms.with_gguf_names().find(|(name, _)| *name == other)?.1,
    };
    Some(format!("blk.{layer}.{short}.{kind}"))
}
