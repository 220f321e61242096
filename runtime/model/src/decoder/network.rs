//! The network of one pass: builds blocks and head from the base weights, an adapter, edits and patches. The parts that
//! it builds compute.

mod experts;

use std::time::Instant;

use tunebox_compute::fused::{self, AttentionShape, Dropout, LowRank};
use tunebox_compute::parameters::Parameters;
use tunebox_compute::precision::Purpose;
use tunebox_compute::{Tensor, Weight};

use super::attention::Attention;
use super::block::Block;
use super::feed_forward::{DenseFeedForward, FeedForward};
use super::hook::{ActivationGradient, ActivationReader, AnswerMask, AtSite, SiteHooks};
use super::linear::{Learned, Linear, LowRankPart, Magnitude};
use super::noise::EmbeddingNoise;
use super::norm::{InputNorm, Norm};
use super::projection::{Projection, ResidualAddition, ResidualOutput};
use super::site::Site;
use super::tables::RopeTables;
use crate::Model;
use crate::adapter::{Adapter, Module};
use crate::edit::Edits;
use crate::error::{Error, Result};
use crate::families::{EMBEDDING, HEAD, base_name};
use crate::stream::{self, Patches};

/// The network of one pass: the base weights with an adapter, edits, patches and dropout of one view.
#[derive(Clone, Copy)]
pub(crate) struct Network<'a> {
    pub(crate) model: &'a Model,
    /// The trained parameters; `None` computes as the base model, bit for bit.
    pub(crate) adapter: Option<&'a Adapter>,
    pub(crate) tables: &'a RopeTables,
    /// The two numbers that identify the dropout masks and the noise of a pass for learning; equal numbers give equal
    /// masks and noise. `None` switches both off.
    pub(crate) learning_pass: Option<(u64, u64)>,
    /// The number of tokens of the pass before the first one that is here: dropout masks and noise begin there.
    pub(crate) first_token: usize,
    /// Noise on the embeddings, in passes for learning; `None` for none.
    pub(crate) noise: Option<EmbeddingNoise>,
    /// Edited weights, which replace those of the base; `None` for no edits.
    pub(crate) edits: Option<&'a Edits>,
    /// The active patches of activations.
    pub(crate) patches: &'a Patches,
    /// Readers of activations.
    pub(crate) readers: Option<&'a AtSite<ActivationReader>>,
    /// Gradients of what was read, which the backward pass adds.
    pub(crate) read_gradients: Option<&'a AtSite<ActivationGradient>>,
    /// Whether the pass decodes: one new token for each sequence, nothing to be differentiated.
    pub(crate) decoding: bool,
    /// When passes fail with [`Error::OutOfTime`]; `None` for no deadline.
    pub(crate) deadline: Option<Instant>,
}

/// A matrix, and the index of its slot in the parameters if it is trained.
#[derive(Debug)]
pub(crate) struct Matrix {
    /// `[rows, columns]`, as stored.
    pub(crate) weight: Weight,
    pub(crate) slot: Option<usize>,
}

impl Network<'_> {
    /// Returns [`Error::OutOfTime`] if there is a deadline and it has passed. Called before each block of a pass.
    pub(crate) fn check_deadline(&self) -> Result<()> {
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) { Err(Error::OutOfTime) } else { Ok(()) }
    }

    /// Builds block `layer` with the weights, adapter, patches, readers and gradients of this network. Its rotation
    /// table has at least `rows` rows; `answer_mask` marks the tokens that answer-only patches change. Errors: the
    /// deadline has passed, or a weight is missing.
    pub(crate) fn build_block(&self, layer: usize, rows: usize, answer_mask: &AnswerMask) -> Result<Block> {
        self.check_deadline()?;
        let hooks = |site| self.build_site_hooks(layer, site, answer_mask);
        Ok(Block {
            input_hooks: hooks(stream::Site::ResidualBefore),
            attention: self.build_attention(layer, rows, hooks(stream::Site::AttentionOutput))?,
            feed_forward: self.build_feed_forward(layer, hooks(stream::Site::MlpOutput))?,
            output_hooks: hooks(stream::Site::ResidualAfter),
        })
    }

    /// Collects the active patches at one site of a layer, oldest first, the mask for answer-only patches, and the
    /// reader and the gradient that the network has for this site of this layer, if any.
    fn build_site_hooks(&self, layer: usize, site: stream::Site, answer_mask: &AnswerMask) -> SiteHooks {
        SiteHooks {
            patches: self.patches.at(layer, site).cloned().collect(),
            answers: answer_mask.clone(),
            reader: self.readers.and_then(|readers| readers.get(layer, site)),
            gradient: self.read_gradients.and_then(|gradients| gradients.get(layer, site)),
        }
    }

    /// The lowest block with something to train, 0 if the embedding is trained; `None` without an adapter, or with
    /// nothing to train below the final norm.
    pub(crate) fn lowest_trained(&self) -> Option<usize> {
        self.adapter?.lowest_trained()
    }

    /// The embedding matrix, `[vocabulary, hidden]`.
    pub(crate) fn embedding(&self) -> Result<Matrix> {
        self.matrix(EMBEDDING)
    }

    /// The output head, `[vocabulary, hidden]`; the embedding if the two are tied, unless the adapter separates them.
    pub(crate) fn head(&self) -> Result<Matrix> {
        if self.model.configuration.tied && !self.adapter.is_some_and(Adapter::separates_head) {
            return self.embedding();
        }
        self.matrix(HEAD)
    }

    /// Builds the attention half of a block: projections, the norms that the family has, and the layer's rotation
    /// table, with at least `rows` rows, if the layer has a rotation. `output_hooks` act on what the output projection
    /// gives.
    fn build_attention(&self, layer: usize, rows: usize, output_hooks: SiteHooks) -> Result<Attention> {
        let configuration = &self.model.configuration;
        let (kind, norms) = (&configuration.layer_kinds[layer], configuration.norms);
        let norm = |name| self.build_norm_in(layer, name);
        let of_features = |name| norm(configuration.query_key_norm.then_some(name));
        let rope = kind.rope.map(|number| self.tables.get_or_build(configuration, number, rows)).transpose()?;
        Ok(Attention {
            input_norm: InputNorm(norm(norms.attention_input)?),
            projection: self.build_projection(
                layer,
                &[Site::Query, Site::Key, Site::Value],
                configuration.fused_query_key_value.then_some(Site::QueryKeyValue),
            )?,
            query_norm: of_features("self_attn.q_norm")?,
            key_norm: of_features("self_attn.k_norm")?,
            output: ResidualOutput {
                linear: self.build_linear(layer, Site::AttentionOutput)?,
                addition: self.build_addition(output_hooks, norm(norms.attention_output)?)?,
            },
            rope,
            shape: AttentionShape {
                heads: configuration.heads,
                kv_heads: configuration.kv_heads,
                head_dim: configuration.head_dim,
                scale: configuration.attention_scale,
                window: kind.window,
                soft_cap: configuration.attention_soft_cap,
            },
        })
    }

    /// Builds the feed-forward half of a block; `output_hooks` act on what the down projection, or the sum over the
    /// experts, gives.
    fn build_feed_forward(&self, layer: usize, output_hooks: SiteHooks) -> Result<FeedForward> {
        let configuration = &self.model.configuration;
        let norms = configuration.norms;
        let input_norm = InputNorm(self.build_norm_in(layer, norms.feed_forward_input)?);
        let norm = self.build_norm_in(layer, norms.feed_forward_output)?;
        let addition = self.build_addition(output_hooks, norm)?;
        if let Some(experts) = &configuration.experts {
            return Ok(FeedForward::Experts(self.build_experts(layer, experts, input_norm, addition)?));
        }
        Ok(FeedForward::Dense(DenseFeedForward {
            input_norm,
            projection: self.build_projection(
                layer,
                &[Site::Gate, Site::Up],
                configuration.fused_gate_up.then_some(Site::GateUp),
            )?,
            output: ResidualOutput { linear: self.build_linear(layer, Site::Down)?, addition },
            activation: configuration.activation,
        }))
    }

    /// Builds how the output of a half is added to the residual stream.
    fn build_addition(&self, hooks: SiteHooks, norm: Option<Norm>) -> Result<ResidualAddition> {
        Ok(ResidualAddition { hooks, norm, scale: self.model.residual_scale()? })
    }

    /// Builds the linear maps of sites that read the same input: one map for each site in `apart`, or, if the
    /// checkpoint fuses them, the one map of `fused` with the output widths of the sites in `apart`.
    fn build_projection(&self, layer: usize, apart: &[Site], fused: Option<Site>) -> Result<Projection> {
        let width = |site: &Site| site.shape(&self.model.configuration).0;
        let widths = if fused.is_some() { apart.iter().map(width).collect() } else { Vec::new() };
        let sites = fused.as_ref().map_or(apart, std::slice::from_ref);
        let linears = sites.iter().map(|site| self.build_linear(layer, *site)).collect::<Result<_>>()?;
        Ok(Projection { linears, widths })
    }

    /// Builds a linear map, with its bias if the model has one at this site. The map trains the weight and bias
    /// themselves if the adapter trains them whole, its factors if it has a module at this site, else nothing.
    fn build_linear(&self, layer: usize, site: Site) -> Result<Linear> {
        let path = site.path(layer);
        let weight = self.matrix(&format!("{path}.weight"))?;
        let has_bias = site.has_bias(&self.model.configuration);
        let bias = has_bias.then(|| self.vector(&format!("{path}.bias"))).transpose()?;
        let module = self.adapter.and_then(|adapter| Some((adapter, adapter.module(layer, site)?)));
        let learned = match (weight.slot, module) {
            (Some(slot), _) => Learned::Whole { weight: slot, bias: bias.as_ref().and_then(|(_, slot)| *slot) },
            (None, Some((adapter, module))) => {
                Learned::LowRank(self.build_low_rank(adapter, module, &path, &weight.weight)?)
            }
            (None, None) => Learned::Nothing,
        };
        Ok(Linear { weight: weight.weight, bias: bias.map(|(bias, _)| bias), learned, decoding: self.decoding })
    }

    /// Builds the adapter part of a linear map from its module in the adapter: A and B in `f32` for DoRA, else in the
    /// dtype that products use; DoRA's magnitudes, with row norms computed once if the network decodes; and dropout if
    /// the network has it and the adapter's rate is above 0. `path` is part of the dropout masks' name; `weight` is the
    /// frozen weight.
    fn build_low_rank(&self, adapter: &Adapter, module: &Module, path: &str, weight: &Weight) -> Result<LowRankPart> {
        let parameters = adapter.parameters();
        // DoRA takes lengths of the f32 numbers; products alone take them as they multiply.
        let dora = module.magnitude_slot.is_some();
        let part = |slot| if dora { parameters.value(slot) } else { parameters.operand(slot) };
        let low = LowRank { a: part(module.a_slot)?, b: part(module.b_slot)?, scale: module.scale as f32 };
        let magnitude = match (module.magnitude_slot, &module.base_squares) {
            (Some(slot), Some(squares)) => {
                let dtype = self.model.weights.precision().dtype(Purpose::Activation);
                let norm = self.decoding.then(|| fused::adapted_row_norms(squares, weight, &low, dtype)).transpose()?;
                Some(Magnitude { value: parameters.value(slot)?, slot, base_squares: squares.clone(), norm })
            }
            _ => None,
        };
        let settings = adapter.settings();
        let dropout = self.learning_pass.filter(|_| settings.dropout > 0.0).map(|(generation, pass)| Dropout {
            rate: settings.dropout as f32,
            seed: settings.seed,
            name: format!("dropout/{generation}/{pass}/{path}"),
            first_row: self.first_token,
        });
        let slots = (module.a_slot, module.b_slot);
        Ok(LowRankPart { low, slots, initial: module.initial.clone(), magnitude, dropout })
    }

    /// The RMS norm of this name within a block, such as `input_layernorm`; `None` for no name.
    fn build_norm_in(&self, layer: usize, name: Option<&str>) -> Result<Option<Norm>> {
        name.map(|name| self.build_norm(&format!("model.layers.{layer}.{name}.weight"))).transpose()
    }

    /// The RMS norm with the weight of this name.
    pub(crate) fn build_norm(&self, name: &str) -> Result<Norm> {
        let configuration = &self.model.configuration;
        let (weight, slot) = self.vector(name)?;
        Ok(Norm { weight, slot, epsilon: configuration.norm_epsilon, unit_offset: configuration.unit_offset_norm })
    }

    /// The vector of this name in `f32`, and the index of its parameter slot if it is trained; a frozen vector is the
    /// edited one if there is one. Errors: no weight of this name.
    fn vector(&self, name: &str) -> Result<(Tensor, Option<usize>)> {
        if let Some((parameters, slot)) = self.trained(name) {
            return Ok((parameters.value(slot)?, Some(slot)));
        }
        Ok((self.frozen(name)?.vector()?, None))
    }

    /// The matrix of this name, and the index of its parameter slot if it is trained. A trained matrix is in the type
    /// in which products take it; a frozen one is the edited matrix if there is one, else the base model's, maybe
    /// quantized. Errors: no weight of this name.
    fn matrix(&self, name: &str) -> Result<Matrix> {
        if let Some((parameters, slot)) = self.trained(name) {
            return Ok(Matrix { weight: parameters.operand(slot)?.into(), slot: Some(slot) });
        }
        Ok(Matrix { weight: self.frozen(name)?, slot: None })
    }

    /// The parameters and the slot of the weight of this name; `None` unless the adapter trains that weight itself.
    fn trained(&self, name: &str) -> Option<(&Parameters, usize)> {
        let parameters = self.adapter?.parameters();
        Some((parameters, parameters.index(name)?))
    }

    /// The edited weight of this name on the model's device, if there is one, else the base model's weight. Errors: no
    /// weight of this name.
    fn frozen(&self, name: &str) -> Result<Weight> {
        match self.edits.and_then(|edits| edits.get_on_device(name)) {
            Some(edited) => Ok(edited),
            None => self.model.weights.weight(base_name(&self.model.configuration, name)),
        }
    }
}
