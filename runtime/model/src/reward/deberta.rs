//! DeBERTa-v2 and v3 with a classification head, computed by candle.

use candle_core::{Device, Tensor};
use candle_transformers::models::debertav2::{Config, DebertaV2SeqClassificationModel, HiddenAct};
use serde_json::json;

use super::configuration::{Sizes, number, size};
use super::tensors::{build_encoder, encoder_bytes};
use super::text::Tokens;
use crate::error::Result;
use crate::fields::Fields;
use crate::source::Source;

/// The most distances, of one sign, between two tokens that have a vector of their own.
const MAX_DISTANCES: usize = 1024;

/// Numbers in the attention for each head and pair of tokens: scores, terms of the distances, masks and probabilities.
const SCORES: u64 = 6;

/// A DeBERTa classifier on the CPU.
pub(super) struct Deberta {
    model: DebertaV2SeqClassificationModel,
    config: Config,
}

/// Reads the configuration. Errors: a setting is missing, out of bounds, or one that candle does not compute, such as a
/// convolution.
pub(super) fn read(fields: &Fields<'_>) -> Result<Config> {
    let Sizes { vocabulary, hidden, layers, heads, intermediate, positions } = Sizes::read(fields)?;
    fields.only("conv_kernel_size", &json!(0))?;
    fields.only("attention_head_size", &json!(hidden / heads))?;
    fields.only("pooler_hidden_size", &json!(hidden))?;
    let config = Config {
        vocab_size: vocabulary,
        hidden_size: hidden,
        num_hidden_layers: layers,
        num_attention_heads: heads,
        intermediate_size: intermediate,
        hidden_act: read_activation(fields, "hidden_act")?,
        hidden_dropout_prob: 0.0,
        attention_probs_dropout_prob: 0.0,
        max_position_embeddings: positions,
        type_vocab_size: size(fields, "type_vocab_size", Some(0), 0..=1024)?,
        initializer_range: 0.0,
        layer_norm_eps: number(fields, "layer_norm_eps", Some(1e-7), 0.0)?,
        relative_attention: fields.get_or("relative_attention", Some(false))?,
        max_relative_positions: optional_size(fields, "max_relative_positions", 1 << 17)?,
        pad_token_id: None,
        position_biased_input: fields.get_or("position_biased_input", Some(true))?,
        pos_att_type: read_terms(fields)?,
        position_buckets: Some(optional_size(fields, "position_buckets", 1 << 17)?),
        share_att_key: fields.get("share_att_key")?,
        attention_head_size: None,
        embedding_size: Some(size(fields, "embedding_size", Some(hidden), 1..=1 << 16)?),
        norm_rel_ebd: read_norm(fields)?,
        conv_kernel_size: None,
        conv_groups: None,
        conv_act: None,
        id2label: None,
        label2id: None,
        pooler_dropout: Some(0.0),
        pooler_hidden_act: Some(read_activation(fields, "pooler_hidden_act")?),
        pooler_hidden_size: Some(hidden),
        cls_dropout: None,
    };
    check_distances(fields, &config)?;
    // Candle adds the types of tokens in the hidden width, transformers in that of the embedding.
    if config.type_vocab_size > 0 && config.embedding_size != Some(hidden) {
        return Err(fields.value_error("embedding_size", "`hidden_size`, as in every model with types of tokens"));
    }
    Ok(config)
}

/// Fails if `position_buckets` is 1, which leaves no bucket for each sign, and, for a model with relative attention,
/// if there are more than [`MAX_DISTANCES`] distances of one sign.
fn check_distances(fields: &Fields<'_>, config: &Config) -> Result<()> {
    if config.position_buckets == Some(1) {
        return Err(fields.value_error("position_buckets", "two buckets or more, or none"));
    }
    if config.relative_attention && distances(config) > MAX_DISTANCES {
        let key = if config.position_buckets > Some(0) { "position_buckets" } else { "max_relative_positions" };
        return Err(fields.value_error(key, &format!("at most {MAX_DISTANCES}")));
    }
    Ok(())
}

/// Reads a whole number of at most `most`, or -1, which stands for none, also if the key is missing. 0 is accepted and
/// means none as well.
fn optional_size(fields: &Fields<'_>, key: &str, most: isize) -> Result<isize> {
    let found: isize = fields.get_or(key, Some(-1))?;
    if (-1..=most).contains(&found) {
        return Ok(found);
    }
    Err(fields.value_error(key, &format!("-1 or 0 for none, or a number up to {most}")))
}

/// Reads an activation by its name in transformers; GELU if the key is missing. Errors: another than GELU and ReLU.
fn read_activation(fields: &Fields<'_>, key: &str) -> Result<HiddenAct> {
    match fields.get_or(key, Some("gelu"))? {
        "gelu" => Ok(HiddenAct::Gelu),
        "relu" => Ok(HiddenAct::Relu),
        _ => Err(fields.value_error(key, "`gelu` or `relu`")),
    }
}

/// Reads `pos_att_type`, a list or names joined by `|`, in any case: the terms of attention that depend on the
/// distance of two tokens. Empty if the key is missing. Errors: another name than `c2p` and `p2c`.
fn read_terms(fields: &Fields<'_>) -> Result<Vec<String>> {
    let listed: Vec<&str> = fields.list("pos_att_type")?.unwrap_or_default();
    let names = listed.iter().flat_map(|name| name.split('|')).map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(str::to_lowercase).collect();
    match names.iter().all(|name| matches!(name.as_str(), "c2p" | "p2c")) {
        true => Ok(names),
        false => Err(fields.value_error("pos_att_type", "`c2p` and `p2c`")),
    }
}

/// Reads `norm_rel_ebd`: whether the vectors of the distances are normalized; `none` if the key is missing. Errors:
/// another value than `none` and `layer_norm`.
fn read_norm(fields: &Fields<'_>) -> Result<Option<String>> {
    match fields.get_or("norm_rel_ebd", Some("none"))? {
        name @ ("none" | "layer_norm") => Ok(Some(name.to_owned())),
        _ => Err(fields.value_error("norm_rel_ebd", "`none` or `layer_norm`")),
    }
}

/// The number of distances, of one sign, between two tokens that have a vector of their own: `position_buckets`, else
/// `max_relative_positions`, else the maximum number of positions, of which the first above 0 counts.
fn distances(config: &Config) -> usize {
    let given = |count: Option<isize>| count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let positions = given(Some(config.max_relative_positions)).unwrap_or(config.max_position_embeddings);
    given(config.position_buckets).unwrap_or(positions)
}

/// The names and shapes of the weights.
pub(super) fn weight_shapes(config: &Config) -> Vec<(String, Vec<usize>)> {
    let (hidden, wide) = (config.hidden_size, config.intermediate_size);
    let embedding = config.embedding_size.unwrap_or(hidden);
    let mut list = Vec::new();
    let mut add = |name: String, shape: &[usize]| list.push((name, shape.to_vec()));
    let embeddings = [
        ("word_embeddings", true, [config.vocab_size, embedding]),
        ("position_embeddings", config.position_biased_input, [config.max_position_embeddings, embedding]),
        ("token_type_embeddings", config.type_vocab_size > 0, [config.type_vocab_size, hidden]),
        ("embed_proj", embedding != hidden, [hidden, embedding]),
    ];
    for (name, _, shape) in embeddings.iter().filter(|(_, is_present, _)| *is_present) {
        add(format!("deberta.embeddings.{name}.weight"), shape);
    }
    let mut add_pair = |name: &str, shape: &[usize]| {
        add(format!("{name}.weight"), shape);
        add(format!("{name}.bias"), &shape[..1]);
    };
    add_pair("deberta.embeddings.LayerNorm", &[hidden]);
    let own = config.relative_attention && !config.share_att_key.unwrap_or(false);
    let has = |term: &str| own && config.pos_att_type.iter().any(|one| one == term);
    for layer in 0..config.num_hidden_layers {
        let maps = [
            ("attention.self.query_proj", true, [hidden, hidden]),
            ("attention.self.key_proj", true, [hidden, hidden]),
            ("attention.self.value_proj", true, [hidden, hidden]),
            ("attention.self.pos_key_proj", has("c2p"), [hidden, hidden]),
            ("attention.self.pos_query_proj", has("p2c"), [hidden, hidden]),
            ("attention.output.dense", true, [hidden, hidden]),
            ("intermediate.dense", true, [wide, hidden]),
            ("output.dense", true, [hidden, wide]),
        ];
        for (name, _, shape) in maps.iter().filter(|(_, is_present, _)| *is_present) {
            add_pair(&format!("deberta.encoder.layer.{layer}.{name}"), shape);
        }
        for name in ["attention.output.LayerNorm", "output.LayerNorm"] {
            add_pair(&format!("deberta.encoder.layer.{layer}.{name}"), &[hidden]);
        }
    }
    if config.norm_rel_ebd.as_deref() == Some("layer_norm") {
        add_pair("deberta.encoder.LayerNorm", &[hidden]);
    }
    add_pair("pooler.dense", &[hidden, hidden]);
    add_pair("classifier", &[1, hidden]);
    if config.relative_attention {
        list.push(("deberta.encoder.rel_embeddings.weight".into(), vec![2 * distances(config), hidden]));
    }
    list
}

impl Deberta {
    /// Reads the weights of a model folder onto the CPU as `f32`, and builds a classifier with one label of them.
    /// Errors: a file is broken, a weight is missing, of another shape or format, or not finite, or candle rejects the
    /// model.
    pub(super) fn open(config: Config, source: &Source) -> Result<Self> {
        let label = [(0, "LABEL_0".to_owned())].into();
        let model = build_encoder(source, &weight_shapes(&config), |weights| {
            DebertaV2SeqClassificationModel::load(weights.pp("deberta"), &config, Some(label))
        })?;
        Ok(Self { model, config })
    }

    /// Computes the logit of an encoded text. Errors: a token is not in the vocabulary.
    pub(super) fn logit(&self, tokens: &Tokens) -> Result<f32> {
        let types = self.config.type_vocab_size;
        tokens.check(self.config.vocab_size, types)?;
        let row = |ids: &[u32]| Tensor::new(ids, &Device::Cpu)?.unsqueeze(0);
        let types = if types > 0 { Some(row(&tokens.types)?) } else { None };
        Ok(self.model.forward(&row(&tokens.ids)?, types, None)?.flatten_all()?.to_vec1::<f32>()?[0])
    }

    /// Estimates the bytes of the model and of a pass over `tokens` tokens.
    pub(super) fn bytes(&self, tokens: u64) -> u64 {
        let config = &self.config;
        // A term of the distances computes a number for each distance and token, then selects those of the pairs.
        let wide =
            4 * config.num_attention_heads * distances(config) + 8 * config.hidden_size + 3 * config.intermediate_size;
        encoder_bytes(&weight_shapes(config), tokens, (config.num_attention_heads, SCORES, wide))
    }
}
