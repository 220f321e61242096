//! What a model is: its sizes, its layers, its norms and rotations, as plain values.
//! Where they are written, and what each family means by them, `families` knows.

mod check;
pub mod rope;

use std::path::Path;

pub use rope::{RopeScaling, RopeSetting};
pub use tunebox_compute::fused::Activation;

use crate::error::Result;
use crate::families::{self, TensorFacts};
use crate::weights::gguf::Metadata;

/// Everything about a model but its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// The family by its Hugging Face name: `llama`, `mistral`, `smollm3`, `qwen2`, `qwen3`,
    /// `gemma2`, `gemma3_text`, `phi3`.
    pub family: String,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the feed-forward part.
    pub intermediate: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads of each block.
    pub heads: usize,
    /// Key and value heads of each block; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Features of a head that turn, the first ones; even, at most `head_dim`.
    pub rotated: usize,
    /// Rows of the embedding, padding rows included.
    pub vocabulary: usize,
    /// What the norms add to the mean square.
    pub norm_epsilon: f64,
    /// The feed-forward part's activation.
    pub activation: Activation,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// Whether each head of queries and keys has a norm before it is rotated.
    pub query_key_norm: bool,
    /// Whether norms multiply by 1 + weight.
    pub unit_offset_norm: bool,
    /// Whether attention and feed-forward have a second norm on the way back into the stream.
    pub sandwich_norms: bool,
    /// What embeddings are multiplied by. Gemma's √hidden is not rounded to bf16 here: transformers rounds it to the
    /// type that it computes in, and this program computes in `f32`.
    pub embedding_scale: f32,
    /// What scores are multiplied by before the softmax.
    pub attention_scale: f32,
    /// Whether queries, keys and values have biases.
    pub attention_bias: bool,
    /// Whether the attention's output has a bias.
    pub output_bias: bool,
    /// Whether gate, up and down have biases.
    pub feed_forward_bias: bool,
    /// Whether query, key and value are one matrix, and gate and up another.
    pub fused_projections: bool,
    /// Bound of the attention scores: c·tanh(score/c).
    pub attention_soft_cap: Option<f32>,
    /// Bound of the logits: c·tanh(logit/c).
    pub logit_soft_cap: Option<f32>,
    /// What logits are multiplied by.
    pub logit_scale: f32,
    /// The longest context that the model was made for.
    pub max_positions: usize,
    /// What differs from block to block; as many as `layers`.
    pub layers_kind: Vec<LayerKind>,
    /// The rotations that layers choose from.
    pub ropes: Vec<RopeSetting>,
    /// Tokens that end an answer.
    pub eos: Vec<u32>,
    /// The token that starts a text.
    pub bos: Option<u32>,
    /// The token that fills rows.
    pub pad: Option<u32>,
}

/// What differs from block to block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerKind {
    /// How many tokens back the attention sees, itself included; none: all.
    pub window: Option<usize>,
    /// The index of its rotation in `ropes`; none: no positions.
    pub rope: Option<usize>,
}

impl LayerKind {
    /// A layer that sees everything, with the first rotation.
    pub const FULL: Self = Self { window: None, rope: Some(0) };
}

impl Configuration {
    /// Reads `config.json` of a model folder; `place` names the file in errors.
    ///
    /// # Errors
    /// When the family is not known, a setting is missing or has a value that cannot be run.
    pub fn from_hugging_face(config: &serde_json::Value, place: &Path) -> Result<Self> {
        let configuration = families::from_hugging_face(config, place)?;
        configuration.check(place)?;
        Ok(configuration)
    }

    /// Adds the tokens that end an answer from `generation_config.json`, which knows the ends of turns as well.
    ///
    /// # Errors
    /// When they are not token ids.
    pub fn add_eos(&mut self, config: &serde_json::Value, place: &Path) -> Result<()> {
        for id in families::eos(config, place)? {
            if !self.eos.contains(&id) {
                self.eos.push(id);
            }
        }
        Ok(())
    }

    /// Reads the metadata of a GGUF file, and what only its tensors tell.
    ///
    /// # Errors
    /// When the architecture is not known, a setting is missing or has a value that cannot be run.
    pub fn from_gguf(metadata: &Metadata, facts: TensorFacts) -> Result<Self> {
        let configuration = families::from_gguf(metadata, facts)?;
        configuration.check(metadata.path())?;
        Ok(configuration)
    }

    /// The same as a `config.json`, for models that came without one.
    #[must_use]
    pub fn to_hugging_face(&self) -> serde_json::Value {
        families::to_hugging_face(self)
    }

    /// The longest sequence that the factors of short texts serve, where rotations have such.
    #[must_use]
    pub fn short_context(&self) -> Option<usize> {
        self.ropes.iter().find_map(RopeSetting::short_context)
    }

    /// Weights of the model, counted by value, the tied head once.
    #[must_use]
    pub fn weights(&self) -> u64 {
        families::expected(self).iter().map(|(_, shape)| shape.iter().map(|side| *side as u64).product::<u64>()).sum()
    }
}
