//! ModernBERT with a classification head. Candle computes the encoder; the head is here, since candle's gives
//! probabilities, which are 1 for a single label.

use candle_core::{D, DType, Device, Module, Tensor};
use candle_nn::{LayerNorm, Linear, layer_norm_no_bias, linear, linear_no_bias};
use candle_transformers::models::modernbert::{self, Config};
use serde_json::json;

use super::MAX_ENCODER_TOKENS;
use super::configuration::{Sizes, number, size};
use super::tensors::{build_encoder, encoder_bytes};
use super::text::Tokens;
use crate::error::Result;
use crate::fields::Fields;
use crate::source::Source;

/// Numbers in the attention for each head and pair of tokens: scores with and without a mask, and probabilities.
const SCORES: u64 = 5;

/// The sizes of a model, and what candle's configuration has no place for.
pub(crate) struct Settings {
    pub(super) config: Config,
    /// Whether the head gets the mean of all tokens; else it gets the first.
    is_mean: bool,
}

/// A ModernBERT classifier on the CPU.
pub(super) struct ModernBert {
    model: modernbert::ModernBert,
    dense: Linear,
    norm: LayerNorm,
    classifier: Linear,
    settings: Settings,
}

impl Settings {
    /// Reads the configuration. Errors: a setting is missing, out of bounds, or one that candle does not compute, such
    /// as biases.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self> {
        let sizes = Sizes::read(fields)?;
        if !(sizes.hidden / sizes.heads).is_multiple_of(2) {
            return Err(fields.value_error("num_attention_heads", "heads of an even width: rotation works on pairs"));
        }
        for key in ["attention_bias", "mlp_bias", "norm_bias", "classifier_bias"] {
            fields.only(key, &json!(false))?;
        }
        for key in ["hidden_activation", "classifier_activation"] {
            fields.only(key, &json!("gelu"))?;
        }
        let every = size(fields, "global_attn_every_n_layers", Some(3), 1..=256)?;
        check_layer_types(fields, sizes.layers, every)?;
        let is_mean = match fields.get_or("classifier_pooling", Some("cls"))? {
            "cls" => false,
            "mean" => true,
            _ => return Err(fields.value_error("classifier_pooling", "`cls` or `mean`")),
        };
        let config = Config {
            vocab_size: sizes.vocabulary,
            hidden_size: sizes.hidden,
            num_hidden_layers: sizes.layers,
            num_attention_heads: sizes.heads,
            intermediate_size: sizes.intermediate,
            max_position_embeddings: sizes.positions.min(MAX_ENCODER_TOKENS),
            layer_norm_eps: number(fields, "norm_eps", Some(1e-5), 0.0)?,
            pad_token_id: 0,
            global_attn_every_n_layers: every,
            global_rope_theta: read_theta(fields, "full_attention", "global_rope_theta", 160_000.0)?,
            local_attention: size(fields, "local_attention", Some(128), 1..=1 << 17)?,
            local_rope_theta: read_theta(fields, "sliding_attention", "local_rope_theta", 10_000.0)?,
            classifier_config: None,
        };
        Ok(Self { config, is_mean })
    }
}

/// Checks that `layer_types`, if it is there, names full attention for every `every`th layer, from the first, and
/// sliding attention for the others.
fn check_layer_types(fields: &Fields<'_>, layers: usize, every: usize) -> Result<()> {
    let Some(types) = fields.get::<Vec<&str>>("layer_types")? else { return Ok(()) };
    let wanted = |layer: usize| if layer.is_multiple_of(every) { "full_attention" } else { "sliding_attention" };
    let is_right = types.len() == layers && types.iter().enumerate().all(|(layer, kind)| *kind == wanted(layer));
    if is_right {
        return Ok(());
    }
    Err(fields.value_error("layer_types", "full attention in every layer that `global_attn_every_n_layers` divides"))
}

/// Reads the base of the rotations of a kind of layers: from `rope_parameters`, where transformers 5 writes it, else
/// from the key `old`. If the key is missing there, it is `default`. Errors: a base below 1, or another `rope_type`
/// than `default`.
fn read_theta(fields: &Fields<'_>, kind: &str, old: &str, default: f64) -> Result<f64> {
    // A base below 1 makes frequencies that grow.
    const LEAST: f64 = 1.0;
    let Some(parameters) = fields.object("rope_parameters")?.map(|all| all.object(kind)).transpose()?.flatten() else {
        return number(fields, old, Some(default), LEAST);
    };
    parameters.only("rope_type", &json!("default"))?;
    number(&parameters, "rope_theta", Some(default), LEAST)
}

/// The names and shapes of the weights.
pub(super) fn weight_shapes(config: &Config) -> Vec<(String, Vec<usize>)> {
    let (hidden, wide) = (config.hidden_size, config.intermediate_size);
    let mut list = vec![
        ("model.embeddings.tok_embeddings.weight".to_owned(), vec![config.vocab_size, hidden]),
        ("model.embeddings.norm.weight".into(), vec![hidden]),
    ];
    for layer in 0..config.num_hidden_layers {
        let mut add = |name: &str, shape: &[usize]| {
            list.push((format!("model.layers.{layer}.{name}.weight"), shape.to_vec()));
        };
        // The embeddings are normalized already.
        if layer > 0 {
            add("attn_norm", &[hidden]);
        }
        add("attn.Wqkv", &[3 * hidden, hidden]);
        add("attn.Wo", &[hidden, hidden]);
        add("mlp_norm", &[hidden]);
        add("mlp.Wi", &[2 * wide, hidden]);
        add("mlp.Wo", &[hidden, wide]);
    }
    list.push(("model.final_norm.weight".into(), vec![hidden]));
    list.push(("head.dense.weight".into(), vec![hidden, hidden]));
    list.push(("head.norm.weight".into(), vec![hidden]));
    list.push(("classifier.weight".into(), vec![1, hidden]));
    list.push(("classifier.bias".into(), vec![1]));
    list
}

impl ModernBert {
    /// Reads the weights of a model folder onto the CPU as `f32`, and builds a classifier with one label of them.
    /// Errors: a file is broken, a weight is missing, of another shape or format, or not finite, or candle rejects the
    /// model.
    pub(super) fn open(settings: Settings, source: &Source) -> Result<Self> {
        let config = &settings.config;
        let (hidden, epsilon) = (config.hidden_size, config.layer_norm_eps);
        let (model, dense, norm, classifier) = build_encoder(source, &weight_shapes(config), |weights| {
            Ok((
                modernbert::ModernBert::load(weights.clone(), config)?,
                linear_no_bias(hidden, hidden, weights.pp("head.dense"))?,
                layer_norm_no_bias(hidden, epsilon, weights.pp("head.norm"))?,
                linear(hidden, 1, weights.pp("classifier"))?,
            ))
        })?;
        Ok(Self { model, dense, norm, classifier, settings })
    }

    /// Computes the logit of an encoded text. Errors: a token is not in the vocabulary.
    pub(super) fn logit(&self, tokens: &Tokens) -> Result<f32> {
        tokens.check(self.settings.config.vocab_size, 0)?;
        let ids = Tensor::new(tokens.ids.as_slice(), &Device::Cpu)?.unsqueeze(0)?;
        let mask = Tensor::ones(ids.dims(), DType::U32, &Device::Cpu)?;
        let hidden = self.model.forward(&ids, &mask)?;
        let pooled = if self.settings.is_mean { hidden.mean(1)? } else { hidden.narrow(1, 0, 1)?.squeeze(1)? };
        let normed = self.norm.forward(&self.dense.forward(&pooled.contiguous()?)?.gelu_erf()?)?;
        Ok(self.classifier.forward(&normed)?.squeeze(D::Minus1)?.to_vec1::<f32>()?[0])
    }

    /// Estimates the bytes of the model and of a pass over `tokens` tokens.
    pub(super) fn bytes(&self, tokens: u64) -> u64 {
        let config = &self.settings.config;
        let wide = 8 * config.hidden_size + 5 * config.intermediate_size;
        encoder_bytes(&weight_shapes(config), tokens, (config.num_attention_heads, SCORES, wide))
    }
}
