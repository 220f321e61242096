//! Attention over one causal sequence, forward and backward. Only scores that the mask leaves count.

use criterion::Criterion;
use tunebox_compute::fused::{AttentionShape, Segments, attention, attention_backward};

use crate::sizes::{Sizes, elements, normal, time};

/// Tokens of the sequence.
const LENGTHS: [usize; 3] = [256, 1024, 4096];

/// Benchmarks causal attention over one sequence of 256, 1024 and 4096 tokens, forward and backward, with the heads of
/// `sizes`. Throughput counts floating-point operations of the scores that the mask leaves.
pub(crate) fn bench(criterion: &mut Criterion, sizes: &Sizes) {
    let mut group = criterion.benchmark_group(format!("attention/{}", sizes.name));
    let Sizes { heads, kv_heads, head_dim, .. } = *sizes;
    let scale = 1.0 / (head_dim as f32).sqrt();
    let shape = AttentionShape { heads, kv_heads, head_dim, scale, window: None, soft_cap: None };
    for length in LENGTHS {
        let segments = Segments::new(&[length]);
        let queries = normal(&[length, heads * head_dim]);
        let (keys, values) = (normal(&[length, kv_heads * head_dim]), normal(&[length, kv_heads * head_dim]));
        let (out, sums) = attention(&queries, &keys, &values, &segments, &shape).unwrap();
        // A score and its part in the mixture are each a multiplication and an addition a feature.
        let operations = 4 * (length * (length + 1) / 2) * heads * head_dim;
        time(&mut group, &format!("{length} forward"), elements(operations), || {
            attention(&queries, &keys, &values, &segments, &shape)
        });
        // Scores once more, and the gradients of values, of their weights, of queries and of keys.
        time(&mut group, &format!("{length} backward"), elements(operations / 2 * 5), || {
            attention_backward(&out, &queries, &keys, &values, &out, &sums, &segments, &shape)
        });
    }
}
