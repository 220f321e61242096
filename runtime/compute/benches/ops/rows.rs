//! What is done to every row or number by itself: norms, gates, rotations, sums, embeddings.

use criterion::Criterion;
use tunebox_compute::DType;
use tunebox_compute::fused::{
    Indices, RopeTable, add, embed, gated, gated_backward, rms_norm, rms_norm_backward, rope,
};

use crate::sizes::{STORED, Sizes, TOKENS, elements, normal, time, weight};

/// What keeps a norm from dividing by 0.
const EPSILON: f64 = 1e-6;
/// Words of the table that embeddings are read from.
const WORDS: usize = 32_768;

/// Benchmarks operations on single rows or numbers, over 1024 tokens: RMS norm, residual sum, gate, rotary positions
/// and embedding. Throughput counts numbers of the result.
pub(crate) fn bench(criterion: &mut Criterion, sizes: &Sizes) {
    let mut group = criterion.benchmark_group(format!("rows/{}", sizes.name));
    let (stream, gates) = (normal(&[TOKENS, sizes.hidden]), normal(&[TOKENS, sizes.intermediate]));
    let numbers = elements(TOKENS * sizes.hidden);
    let (scale, offset) = (normal(&[sizes.hidden]), sizes.unit_offset);
    time(&mut group, "norm forward", numbers.clone(), || rms_norm(&stream, &scale, EPSILON, offset));
    let (_, rates) = rms_norm(&stream, &scale, EPSILON, offset).unwrap();
    time(&mut group, "norm backward", numbers.clone(), || rms_norm_backward(&stream, &stream, &scale, &rates, offset));
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
