//! All beside linear maps: attention over one causal sequence, the head over a part of the vocabulary, and what is done
//! to every row or number by itself.

use criterion::{Criterion, Throughput};
use tunebox_compute::DType;
use tunebox_compute::fused::{
    self, AttentionShape, HeadOptions, Indices, RopeTable, Segments, Tap, TapGradients, TapSet, add,
    attention_backward, embed, gated, gated_backward, head_taps, head_taps_backward, head_taps_with_gradient, logits,
    rms_norm, rms_norm_backward, rope,
};

use crate::sizes::{STORED, Sizes, TOKENS, elements, normal, product, time, weight};

/// Tokens of the sequence.
const LENGTHS: [usize; 3] = [256, 1024, 4096];
/// Tokens that are scored.
const SCORED: usize = 256;
/// Words of the table of embeddings and of the head; a vocabulary has many times as many, and takes as many times as
/// long.
const WORDS: usize = 32_768;
/// What keeps a norm from dividing by 0.
const EPSILON: f64 = 1e-6;

/// Benchmarks causal attention over one sequence of 256, 1024 and 4096 tokens, forward and backward, with the heads of
/// `sizes`. Throughput counts floating-point operations of the scores that the mask leaves.
pub(crate) fn attention(criterion: &mut Criterion, sizes: &Sizes) {
    let mut group = criterion.benchmark_group(format!("attention/{}", sizes.name));
    let Sizes { heads, kv_heads, head_dim, .. } = *sizes;
    let scale = 1.0 / (head_dim as f32).sqrt();
    let shape = AttentionShape { heads, kv_heads, head_dim, scale, window: None, soft_cap: None };
    for length in LENGTHS {
        let segments = Segments::new(&[length]);
        let queries = normal(&[length, heads * head_dim]);
        let (keys, values) = (normal(&[length, kv_heads * head_dim]), normal(&[length, kv_heads * head_dim]));
        let (out, sums) = fused::attention(&queries, &keys, &values, &segments, &shape).unwrap();
        // A score and its part in the mixture are each a multiplication and an addition a feature.
        let operations = 4 * (length * (length + 1) / 2) * heads * head_dim;
        time(&mut group, &format!("{length} forward"), elements(operations), || {
            fused::attention(&queries, &keys, &values, &segments, &shape)
        });
        // Scores once more, and the gradients of values, of their weights, of queries and of keys.
        time(&mut group, &format!("{length} backward"), elements(operations / 2 * 5), || {
            attention_backward(&out, &queries, &keys, &values, &out, &sums, &segments, &shape)
        });
    }
}

/// Benchmarks the head over 32,768 words with f32 and bf16 weights. On 256 rows: taps, taps with the gradient of the
/// log-probability, and the backward pass, in floating-point operations. On 1 and 16 tokens: logits, in bytes of
/// weights.
pub(crate) fn head(criterion: &mut Criterion, sizes: &Sizes) {
    let mut group = criterion.benchmark_group(format!("head/{}", sizes.name));
    let shape = [WORDS, sizes.hidden];
    let hidden = normal(&[SCORED, sizes.hidden]);
    let (targets, seeds) = (vec![7; SCORED], vec![1.0; SCORED]);
    let reported = TapSet::of(&[Tap::Entropy, Tap::TopOne]);
    let (plain, options) = (HeadOptions::default(), HeadOptions { taps: reported, ..HeadOptions::default() });
    let once = product(SCORED, shape);
    let twice = product(2 * SCORED, shape);
    for dtype in STORED {
        let (weight, stored) = (weight(&shape, dtype), dtype.as_str());
        time(&mut group, &format!("{stored} taps"), once.clone(), || head_taps(&hidden, &weight, &targets, &options));
        time(&mut group, &format!("{stored} taps and slopes"), twice.clone(), || {
            head_taps_with_gradient(&hidden, &weight, &targets, &options)
        });
        let taps = head_taps(&hidden, &weight, &targets, &plain).unwrap();
        time(&mut group, &format!("{stored} backward"), twice.clone(), || {
            let seeds = TapGradients::from_iter([(Tap::Logprob, seeds.as_slice())]);
            head_taps_backward(&hidden, &weight, &targets, &plain, &taps, seeds, false)
        });
        let bytes = Throughput::Bytes((WORDS * sizes.hidden * dtype.size_in_bytes()) as u64);
        for tokens in [1, 16] {
            let hidden = normal(&[tokens, sizes.hidden]);
            time(&mut group, &format!("{stored} logits × {tokens}"), bytes.clone(), || {
                logits(&hidden, &weight, &plain)
            });
        }
    }
}

/// Benchmarks operations on single rows or numbers, over 1024 tokens: RMS norm, residual sum, gate, rotary positions
/// and embedding. Throughput counts numbers of the result.
pub(crate) fn rows(criterion: &mut Criterion, sizes: &Sizes) {
    let mut group = criterion.benchmark_group(format!("rows/{}", sizes.name));
    let (stream, gates) = (normal(&[TOKENS, sizes.hidden]), normal(&[TOKENS, sizes.intermediate]));
    let numbers = elements(TOKENS * sizes.hidden);
    let (scale, offset) = (normal(&[sizes.hidden]), sizes.unit_offset);
    time(&mut group, "norm forward", numbers.clone(), || rms_norm(&stream, &scale, EPSILON, offset));
    let (_, rates) = rms_norm(&stream, &scale, EPSILON, offset).unwrap();
    time(&mut group, "norm backward", numbers.clone(), || {
        rms_norm_backward(&stream, &stream, &scale, &rates, offset, None)
    });
    time(&mut group, "residual", numbers.clone(), || add(&stream, &stream));

    let between = elements(TOKENS * sizes.intermediate);
    time(&mut group, "gated forward", between.clone(), || gated(&gates, &gates, sizes.activation));
    time(&mut group, "gated backward", between, || gated_backward(&gates, &gates, &gates, sizes.activation));

    let queries = normal(&[TOKENS, sizes.heads * sizes.head_dim]);
    let frequencies: Vec<f64> = (0..sizes.head_dim / 2).map(|at| 1e6_f64.powf(-2.0 * at as f64 / 64.0)).collect();
    let table = RopeTable::from_frequencies(&frequencies, TOKENS, 1.0);
    let positions = Indices::from((0..TOKENS as u32).collect::<Vec<u32>>());
    let rotated = elements(TOKENS * sizes.heads * sizes.head_dim);
    time(&mut group, "rope", rotated, || rope(&queries, sizes.heads, &positions, &table, false));

    // Every token is another word, far from the last.
    let ids: Vec<u32> = (0..TOKENS as u32).map(|token| token * 7919 % WORDS as u32).collect();
    let ids = Indices::from(ids);
    for dtype in STORED {
        let table = weight(&[WORDS, sizes.hidden], dtype);
        let name = format!("embedding {}", dtype.as_str());
        time(&mut group, &name, numbers.clone(), || embed(&ids, &table, 1.0, DType::F32));
    }
}
