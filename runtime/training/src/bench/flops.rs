//! The necessary floating-point operations of a training step, from its sizes. Recomputation is not counted.

use tunebox_model::Configuration;

/// Floating-point operations of one supervised step over `rows` rows of `length` tokens: a forward pass, and a backward pass
/// with the gradients of inputs and low-rank adapters (`trainable` numbers), without those of frozen weights.
///
/// A product of n × m by m × k counts 2·n·m·k operations; attention counts the scores that the causal mask leaves.
pub(super) fn step(sizes: &Configuration, trainable: usize, rows: usize, length: usize) -> f64 {
    let tokens = (rows * length) as f64;
    let frozen = 2.0 * tokens * (linear(sizes) + head(sizes));
    // Forward, the gradient of the input, and for an adapter that of its weights.
    2.0 * frozen + 3.0 * 2.0 * tokens * trainable as f64 + 3.0 * attention(sizes, rows, length)
}

/// Number of weights in the linear layers of all blocks.
fn linear(sizes: &Configuration) -> f64 {
    let (heads, shared) = (sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim);
    let attention = sizes.hidden * (2 * heads + 2 * shared);
    (sizes.layers * (attention + 3 * sizes.hidden * sizes.intermediate)) as f64
}

/// Number of weights in the output head: hidden size × vocabulary.
fn head(sizes: &Configuration) -> f64 {
    (sizes.hidden * sizes.vocabulary) as f64
}

/// Floating-point operations of attention scores and weighted sums in a forward pass through all blocks, for `rows`
/// causal rows of `length` tokens.
fn attention(sizes: &Configuration, rows: usize, length: usize) -> f64 {
    let scores = (rows * length * (length + 1) / 2) as f64;
    4.0 * scores * (sizes.heads * sizes.head_dim * sizes.layers) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_sizes_of_qwen_2_5_0_5b_is_what_a_person_counts() {
        let config = r#"{"model_type":"qwen2","architectures":["Qwen2ForCausalLM"],"hidden_size":896,
            "intermediate_size":4864,"num_hidden_layers":24,"num_attention_heads":14,"num_key_value_heads":2,
            "vocab_size":151936,"rms_norm_eps":1e-6,"rope_theta":1000000.0,"max_position_embeddings":32768,
            "tie_word_embeddings":true,"hidden_act":"silu"}"#;
        let config: serde_json::Value = serde_json::from_str(config).unwrap();
        let sizes = Configuration::from_hugging_face(&config, std::path::Path::new("config.json")).unwrap();
        // 357,826,560 weights in the blocks' products and 136,134,656 in the head.
        assert_eq!(linear(&sizes) + head(&sizes), 493_961_216.0);
        let whole = step(&sizes, 8_798_208, 4, 256);
        assert!((whole / 2.12e12 - 1.0).abs() < 0.02, "{whole:e}");
    }
}
