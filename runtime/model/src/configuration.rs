//! The configuration of a model as plain values: its sizes, layers, norms and rotations. Invalid values are rejected
//! before any size is computed from them.
//! `families` reads and writes the files, and knows what each family means by their keys.

mod experts;
mod norms;
pub mod rope;

use std::fmt::Display;
use std::path::Path;

pub use experts::{ExpertNames, Experts};
pub use norms::BlockNorms;
pub use rope::{RopeScaling, RopeSetting};
use tunebox_compute::Device;
pub use tunebox_compute::fused::Activation;
use tunebox_foundation::explain::Explanation;

use crate::error::{Error, Result};

/// Everything about a model but its weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Configuration {
    /// The family by its Hugging Face name: `llama`, `mistral`, `mixtral`, `smollm3`, `qwen2`, `qwen3`, `qwen3_moe`,
    /// `olmoe`, `olmo2`, `olmo3`, `granite`, `gemma2`, `gemma3_text`, `phi3`, `glm4`.
    pub family: String,
    /// Width of the residual stream (hidden dimension).
    pub hidden: usize,
    /// Width inside the feed-forward part of a block without experts.
    pub intermediate: usize,
    /// The experts of every block; `None` for blocks without experts.
    pub experts: Option<Experts>,
    /// What files call the modules of a mixture of experts.
    pub expert_names: ExpertNames,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads of each block.
    pub heads: usize,
    /// Key and value heads of each block; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// How many features of a head are rotated by position (RoPE), the first ones; even, at most `head_dim`.
    pub rotated: usize,
    /// Whether features 2i and 2i + 1 of a head are rotated together, not i and i + `rotated`/2.
    pub adjacent_pairs: bool,
    /// Rows of the embedding, padding rows included.
    pub vocabulary: usize,
    /// The epsilon that norms add to the mean square.
    pub norm_epsilon: f64,
    /// The feed-forward part's activation.
    pub activation: Activation,
    /// Whether the output head is the embedding matrix.
    pub tied: bool,
    /// Whether queries and keys have a norm before they are rotated.
    pub query_key_norm: bool,
    /// Whether that norm is over the features of all heads together, not over each head.
    pub joint_query_key_norm: bool,
    /// Whether norms multiply by 1 + weight.
    pub unit_offset_norm: bool,
    /// Where blocks have norms.
    pub norms: BlockNorms,
    /// The factor on embeddings, in `f32`. Gemma's √hidden is not rounded here; transformers rounds it to the type that
    /// it computes in.
    pub embedding_scale: f32,
    /// The factor on attention scores before the softmax.
    pub attention_scale: f32,
    /// Whether queries, keys and values have biases.
    pub attention_bias: bool,
    /// Whether the attention's output has a bias.
    pub output_bias: bool,
    /// Whether gate, up and down have biases.
    pub feed_forward_bias: bool,
    /// Whether query, key and value are one matrix.
    pub fused_query_key_value: bool,
    /// Whether gate and up are one matrix.
    pub fused_gate_up: bool,
    /// The soft cap c of attention scores, c·tanh(score/c); `None` for no cap.
    pub attention_soft_cap: Option<f32>,
    /// The soft cap c of logits, c·tanh(logit/c); `None` for no cap.
    pub logit_soft_cap: Option<f32>,
    /// The divisor of logits, before the soft cap.
    pub logit_divisor: f32,
    /// The factor on what attention and feed-forward add to the residual stream.
    pub residual_scale: f32,
    /// The longest context that the model was made for, in tokens.
    pub max_positions: usize,
    /// The attention window and the rotation of each block, `layers` of them.
    pub layer_kinds: Vec<LayerKind>,
    /// The rotations (RoPE), to which layers refer by index.
    pub ropes: Vec<RopeSetting>,
    /// Tokens that end an answer.
    pub eos: Vec<u32>,
    /// The token that starts a text.
    pub bos: Option<u32>,
    /// The padding token.
    pub pad: Option<u32>,
}

/// The attention window and the rotation of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerKind {
    /// The number of tokens that a token attends to, itself included; `None` for all before it and itself.
    pub window: Option<usize>,
    /// The index of the block's rotation in [`Configuration::ropes`]; `None` for a block without position encoding.
    pub rope: Option<usize>,
}

impl LayerKind {
    /// Full attention, with the first rotation.
    pub const FULL: Self = Self { window: None, rope: Some(0) };
}

impl Configuration {
    /// A plain decoder: RMS norms with epsilon 1e-6 before attention and feed-forward, gated SiLU, no biases, untied
    /// head, full attention scaled by 1/√`head_dim`, all features of a head rotated. As many key heads as query heads;
    /// sizes that are not given are 0. Each layer, of the first 65,536 at most, refers to the first rotation, which the
    /// caller has to add.
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
            logit_divisor: 1.0,
            residual_scale: 1.0,
            // An absurd count is refused by the check that follows; it must not be allocated before.
            layer_kinds: vec![LayerKind::FULL; layers.min(1 << 16)],
            ..Self::default()
        }
    }

    /// Sets the same attention window, in tokens, for every layer; `None` is full attention.
    pub(crate) fn set_window(&mut self, window: Option<usize>) {
        self.layer_kinds.iter_mut().for_each(|kind| kind.window = window);
    }

    /// Returns an error unless the model has a layer of this index.
    pub(crate) fn check_layer(&self, layer: usize) -> Result<()> {
        if layer < self.layers {
            return Ok(());
        }
        let last = self.layers.saturating_sub(1);
        Err(Error::Argument(format!("layer `{layer}` is not there, the model's layers are 0 to {last}")))
    }

    /// Returns an error that names the first token id at or above the vocabulary size, if there is one. `holder` names
    /// the source of the ids in the error, such as "row `3`".
    pub(crate) fn check_tokens(&self, holder: &str, ids: &[u32]) -> Result<()> {
        let Some(id) = ids.iter().find(|id| **id as usize >= self.vocabulary) else { return Ok(()) };
        let last = self.vocabulary.saturating_sub(1);
        Err(Error::Argument(format!("{holder} holds token `{id}`, the model's vocabulary ends at `{last}`")))
    }

    /// The width inside the feed-forward part that a token runs through: that of all its experts together in a model
    /// with experts.
    #[must_use]
    pub fn active_intermediate(&self) -> usize {
        self.experts.map_or(self.intermediate, |experts| experts.active * experts.intermediate)
    }

    /// Returns an error if the model has experts and `device` is not the CPU.
    pub(crate) fn check_device(&self, device: &Device) -> Result<()> {
        if self.experts.is_none() || device.is_cpu() {
            return Ok(());
        }
        let what = format!("models with experts (`{}`) run on the CPU only", self.family);
        let hint = "set `train.device` to `cpu`, or take a model without experts";
        Err(Explanation::new("model", what).with_hint(hint).into())
    }

    /// The longest sequence, in tokens, that uses LongRoPE's short factors; `None` if no rotation is LongRoPE.
    #[must_use]
    pub fn short_context(&self) -> Option<usize> {
        self.ropes.iter().find_map(RopeSetting::short_context)
    }
}

/// The largest accepted size, such as a width or the vocabulary. No real model comes near; products of two such sizes
/// fit in 64 bits.
const LARGEST_SIDE: usize = 1 << 24;
const MOST_LAYERS: usize = 1 << 12;
const MOST_EXPERTS: usize = 1 << 16;

impl Configuration {
    /// Returns an error that names the first wrong setting and `file`. Checks sizes and layers by
    /// [`Self::check_sizes`]; that key heads divide query heads; that the width of a head is even; that the rotated
    /// features are even, at least 2 and at most that width; that the attention scale and soft caps are finite and
    /// positive, the epsilon is finite and not negative, and no window is 0; and the rotations by
    /// [`Self::check_ropes`].
    pub(crate) fn check(&self, file: &Path) -> Result<()> {
        self.check_sizes(file)?;
        let is_even = |width: usize| width.is_multiple_of(2);
        let is_positive = |number: f32| number.is_finite() && number > 0.0;
        let divides = self.heads.is_multiple_of(self.kv_heads);
        expect(divides, "num_key_value_heads", self.kv_heads, file, "a number that divides the query heads")?;
        expect(is_even(self.head_dim), "head_dim", self.head_dim, file, "an even width: rotation works on pairs")?;
        let turns = self.rotated > 0 && self.rotated <= self.head_dim && is_even(self.rotated);
        let (features, allowed) = (format!("{} features", self.rotated), "a share that is an even number of features");
        expect(turns, "partial_rotary_factor", features, file, allowed)?;
        let epsilon = self.norm_epsilon;
        expect(epsilon.is_finite() && epsilon >= 0.0, "rms_norm_eps", epsilon, file, "a small positive number")?;
        let scale = self.attention_scale;
        expect(is_positive(scale), "query_pre_attn_scalar", scale, file, "a positive scale")?;
        let caps =
            [("attn_logit_softcapping", self.attention_soft_cap), ("final_logit_softcapping", self.logit_soft_cap)];
        for (key, cap) in caps {
            let cap = cap.unwrap_or(1.0);
            expect(is_positive(cap), key, cap, file, "a positive number, or null for none")?;
        }
        let sees = self.layer_kinds.iter().all(|layer| layer.window != Some(0));
        expect(sees, "sliding_window", 0, file, "a window of one token or more")?;
        self.check_ropes(file)
    }

    /// Checks that sizes are in range: hidden and intermediate width, the numbers of query and key heads, the width of
    /// a head and of all query heads together, the vocabulary, and the width of all experts of a token, from 1 to
    /// [`LARGEST_SIDE`]; the number of layers, from 1 to [`MOST_LAYERS`], which must also match `layer_kinds`; the
    /// number of experts in all layers, from 1 to [`MOST_EXPERTS`]; and the number of experts of a token, from 1 to the
    /// number in a layer.
    fn check_sizes(&self, file: &Path) -> Result<()> {
        let sides = [
            ("hidden_size", self.hidden),
            ("intermediate_size", self.intermediate),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("vocab_size", self.vocabulary),
            ("num_attention_heads", self.heads.saturating_mul(self.head_dim)),
        ];
        for (key, side) in sides {
            expect((1..=LARGEST_SIDE).contains(&side), key, side, file, "a size from 1 to 16,777,216")?;
        }
        let fits = (1..=MOST_LAYERS).contains(&self.layers) && self.layer_kinds.len() == self.layers;
        expect(fits, "num_hidden_layers", self.layers, file, "from 1 to 4,096 layers")?;
        let Some(Experts { count, active, intermediate, .. }) = self.experts else { return Ok(()) };
        let all = count.saturating_mul(self.layers);
        expect(
            (1..=MOST_EXPERTS).contains(&all),
            "num_experts",
            count,
            file,
            "from 1 to 65,536 experts in all blocks",
        )?;
        expect((1..=count).contains(&active), "num_experts_per_tok", active, file, "from 1 to the number of experts")?;
        let together = active.saturating_mul(intermediate);
        let allowed = "a size from 1 to 16,777,216 for all experts of a token";
        expect((1..=LARGEST_SIDE).contains(&together), "moe_intermediate_size", intermediate, file, allowed)
    }

    /// Checks every rotation: finite and positive base, attention factor and frequencies, and, where a rotation lists
    /// factors, one factor for each rotated pair of features. Checks the contexts of LongRoPE first, by
    /// [`Self::check_contexts`].
    fn check_ropes(&self, file: &Path) -> Result<()> {
        self.check_contexts(file)?;
        let is_positive = |number: &f64| number.is_finite() && *number > 0.0;
        for rope in &self.ropes {
            for (key, number) in [("rope_theta", rope.theta), ("attention_factor", rope.attention_factor())] {
                expect(is_positive(&number), key, number, file, "a positive number")?;
            }
            let (counts, pairs) = (rope.listed(), self.rotated / 2);
            let found = counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ") + " factors";
            let allowed = format!("{pairs} factors, one for each pair of features that turn");
            expect(counts.iter().all(|count| *count == pairs), "rope_parameters", found, file, &allowed)?;
            let long = rope.long_frequencies(self.rotated).unwrap_or_default();
            let turns = rope.frequencies(self.rotated).iter().chain(&long).all(is_positive);
            let found = if counts.is_empty() { format!("{rope:?}") } else { "a list of factors".into() };
            expect(turns, "rope_parameters", found, file, "a rotation with positive frequencies")?;
        }
        Ok(())
    }

    /// Checks that all LongRoPE rotations have the same original context, from 2 to [`LARGEST_SIDE`] tokens: their
    /// tables switch to the long factors at one length.
    fn check_contexts(&self, file: &Path) -> Result<()> {
        const KEY: &str = "original_max_position_embeddings";
        let mut contexts = self.ropes.iter().filter_map(RopeSetting::short_context);
        let Some(first) = contexts.next() else { return Ok(()) };
        // The attention factor divides by the logarithm.
        expect((2..=LARGEST_SIDE).contains(&first), KEY, first, file, "a length from 2 to 16,777,216")?;
        let other = contexts.find(|other| *other != first).unwrap_or(first);
        expect(other == first, KEY, format!("{first} and {other}"), file, "one length for all rotations")
    }
}

/// Checks a setting. Unless `is_right`, returns an error that names key, value and file, and what is allowed.
fn expect(is_right: bool, key: &str, found: impl Display, file: &Path, allowed: &str) -> Result<()> {
    match is_right {
        true => Ok(()),
        false => Err(Error::key(key, found.to_string(), file, format!("expected {allowed}"))),
    }
}
