//! Where the blocks of a family have norms, and what files call them.

/// The norms of a block by their names within it, such as `input_layernorm`; `None` where the family has none. A part
/// of a block, attention or feed-forward, may have a norm of what it reads from the residual stream (input) and one of
/// what it adds to the stream (output).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockNorms {
    /// The norm of what attention reads.
    pub attention_input: Option<&'static str>,
    /// The norm of what attention adds to the residual stream.
    pub attention_output: Option<&'static str>,
    /// The norm of what the feed-forward part reads.
    pub feed_forward_input: Option<&'static str>,
    /// The norm of what the feed-forward part adds to the residual stream.
    pub feed_forward_output: Option<&'static str>,
}

impl BlockNorms {
    /// Norms of what both parts read (Llama and most families).
    pub const INPUTS: Self = Self {
        attention_input: Some("input_layernorm"),
        attention_output: None,
        feed_forward_input: Some("post_attention_layernorm"),
        feed_forward_output: None,
    };
    /// Norms of what both parts add to the residual stream (OLMo 2 and 3).
    pub const OUTPUTS: Self = Self {
        attention_input: None,
        attention_output: Some("post_attention_layernorm"),
        feed_forward_input: None,
        feed_forward_output: Some("post_feedforward_layernorm"),
    };
    /// All four norms, by the names of Gemma 2 and 3.
    pub const GEMMA: Self = Self {
        attention_input: Some("input_layernorm"),
        attention_output: Some("post_attention_layernorm"),
        feed_forward_input: Some("pre_feedforward_layernorm"),
        feed_forward_output: Some("post_feedforward_layernorm"),
    };

    /// All four norms, by the names of GLM-4-0414.
    pub const GLM4: Self = Self {
        attention_input: Some("input_layernorm"),
        attention_output: Some("post_self_attn_layernorm"),
        feed_forward_input: Some("post_attention_layernorm"),
        feed_forward_output: Some("post_mlp_layernorm"),
    };

    /// The norms in the order of a forward pass, each with its name in GGUF files, without those that the family does
    /// not have.
    pub(crate) fn with_gguf_names(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = [
            (self.attention_input, "attn_norm"),
            (self.attention_output, "post_attention_norm"),
            (self.feed_forward_input, "ffn_norm"),
            (self.feed_forward_output, "post_ffw_norm"),
        ];
        all.into_iter().filter_map(|(name, stored)| Some((name?, stored)))
    }
}

impl Default for BlockNorms {
    /// [`BlockNorms::INPUTS`].
    fn default() -> Self {
        Self::INPUTS
    }
}
