//! What a model is: its sizes, its layers, its norms and rotations, as plain values.
//! Where they are written, and what each family means by them, `families` knows.

mod check;
pub mod rope;

pub use rope::{RopeScaling, RopeSetting};
pub use tunebox_compute::fused::Activation;

use crate::error::{Error, Result};

/// Everything about a model but its weights.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// A plain decoder: RMS norms before attention and feed-forward, gated SiLU, no biases, untied head, full
    /// attention, and no rotation set yet. As many key heads as query heads; sizes that are not given are 0.
    pub(crate) fn plain(family: &str, hidden: usize, layers: usize, heads: usize, head_dim: usize) -> Self {
        Self {
            family: family.into(),
            hidden,
            layers,
            heads,
            kv_heads: heads,
            head_dim,
            rotated: head_dim,
            norm_epsilon: 1e-6,
            embedding_scale: 1.0,
            attention_scale: (head_dim as f32).sqrt().recip(),
            logit_scale: 1.0,
            // An absurd count is refused by the check that follows; it must not be allocated before.
            layers_kind: vec![LayerKind::FULL; layers.min(1 << 16)],
            ..Self::default()
        }
    }

    /// Sets the same attention window, in tokens, for every layer; `None` is full attention.
    pub(crate) fn set_window(&mut self, window: Option<usize>) {
        self.layers_kind.iter_mut().for_each(|kind| kind.window = window);
    }

    /// Checks that the model has a layer of this index. Errors: it has not.
    pub(crate) fn check_layer(&self, layer: usize) -> Result<()> {
        if layer < self.layers {
            return Ok(());
        }
        let last = self.layers.saturating_sub(1);
        Err(Error::Argument(format!("layer `{layer}` is not there, the model's layers are 0 to {last}")))
    }

    /// Checks that all token ids are below the vocabulary size. `holder` names their source in the error, such as "row
    /// `3`".
    pub(crate) fn check_tokens(&self, holder: &str, ids: &[u32]) -> Result<()> {
        let Some(id) = ids.iter().find(|id| **id as usize >= self.vocabulary) else { return Ok(()) };
        let last = self.vocabulary.saturating_sub(1);
        Err(Error::Argument(format!("{holder} holds token `{id}`, the model's vocabulary ends at `{last}`")))
    }

    /// The longest sequence, in tokens, that uses LongRoPE's short factors; `None` if no rotation is LongRoPE.
    #[must_use]
    pub fn short_context(&self) -> Option<usize> {
        self.ropes.iter().find_map(RopeSetting::short_context)
    }
}
