//! Linear maps: whole and adapted, forward and backward, and with the few tokens of decoding.

use std::sync::Arc;

use criterion::{Criterion, Throughput};
use tunebox_compute::fused::{
    LowRank, adapted_input_gradient, adapted_linear, linear, linear_few_tokens, linear_input_gradient,
    linear_weight_gradient, reduced_gradient,
};
use tunebox_compute::weight::{Format, Packed, Weight};
use tunebox_compute::{DType, Error};

use crate::sizes::{STORED, Sizes, TOKENS, normal, product, time, weight};

/// The rank of adapters.
const RANK: usize = 16;

/// Tokens of one step of decoding: one completion, and sixteen side by side.
const DECODED: [usize; 2] = [1, 16];

/// Benchmarks the product of two 2048 × 2048 matrices in f32: the most that products reach on this machine.
pub(crate) fn square(criterion: &mut Criterion) {
    const SIDE: usize = 2048;
    let (a, b) = (normal(&[SIDE, SIDE]), normal(&[SIDE, SIDE]));
    let mut group = criterion.benchmark_group("product");
    time(&mut group, "square", product(SIDE, [SIDE, SIDE]), || a.matmul(&b).map_err(Error::from));
}

/// Benchmarks linear layers without an adapter on 1024 tokens: forward and input gradient with f32 and bf16 weights,
/// and the weight gradient. Throughput counts floating-point operations.
pub(crate) fn whole(criterion: &mut Criterion, sizes: &Sizes) {
    let mut group = criterion.benchmark_group(format!("linear/{}", sizes.name));
    for (name, shape @ [outputs, inputs]) in sizes.maps() {
        let (x, dy) = (normal(&[TOKENS, inputs]), normal(&[TOKENS, outputs]));
        let operations = product(TOKENS, shape);
        for dtype in STORED {
            let (weight, stored) = (weight(&shape, dtype), dtype.as_str());
            time(&mut group, &format!("{name} {stored} forward"), operations.clone(), || linear(&x, &weight, None));
            let back = format!("{name} {stored} input gradient");
            time(&mut group, &back, operations.clone(), || linear_input_gradient(&dy, &weight));
        }
        time(&mut group, &format!("{name} weight gradient"), operations, || linear_weight_gradient(1.0, &dy, &x));
    }
}

/// Benchmarks linear layers with an adapter of rank 16 on 1024 tokens, forward and backward, with f32 and bf16 weights.
/// Throughput counts the floating-point operations of the frozen product and of the adapter's thin products.
pub(crate) fn adapted(criterion: &mut Criterion, sizes: &Sizes) {
    let mut group = criterion.benchmark_group(format!("adapted linear/{}", sizes.name));
    for (name, shape @ [outputs, inputs]) in sizes.maps() {
        let (x, dy) = (normal(&[TOKENS, inputs]), normal(&[TOKENS, outputs]));
        let (a, b) = (weight(&[RANK, inputs], DType::F32), weight(&[outputs, RANK], DType::F32));
        let low = LowRank { a, b, scale: 2.0 };
        let thin = 2 * TOKENS * RANK * (outputs + inputs);
        let frozen = 2 * TOKENS * outputs * inputs;
        for dtype in STORED {
            let (weight, stored) = (weight(&shape, dtype), dtype.as_str());
            let forward = Throughput::Elements((frozen + thin) as u64);
            time(&mut group, &format!("{name} {stored} forward"), forward, || {
                adapted_linear(&x, &weight, None, &low, None)
            });
            let (_, xa) = adapted_linear(&x, &weight, None, &low, None).unwrap();
            // The gradients of input, A and B: one frozen product, and the thin ones twice.
            let backward = Throughput::Elements((frozen + 2 * thin) as u64);
            time(&mut group, &format!("{name} {stored} backward"), backward, || {
                let reduced = reduced_gradient(&dy, &low)?;
                linear_weight_gradient(1.0, &reduced, &x)?;
                linear_weight_gradient(low.scale, &dy, &xa)?;
                adapted_input_gradient(&dy, &reduced, &weight, &low, None, None)
            });
        }
    }
}

/// Benchmarks linear layers on 1 and 16 tokens with f32, bf16 and quantized weights. Throughput counts bytes of
/// weights, since such products wait for memory.
pub(crate) fn decoding(criterion: &mut Criterion, sizes: &Sizes) {
    let mut group = criterion.benchmark_group(format!("decoding linear/{}", sizes.name));
    for (name, shape @ [_, inputs]) in sizes.maps() {
        let stored = STORED.map(|dtype| (dtype.as_str().to_owned(), Weight::from(weight(&shape, dtype))));
        for (format, weight) in stored.into_iter().chain(quantized(shape)) {
            let bytes = Throughput::Bytes(weight.bytes() as u64);
            for tokens in DECODED {
                let x = normal(&[tokens, inputs]);
                time(&mut group, &format!("{name} {format} × {tokens}"), bytes.clone(), || {
                    linear_few_tokens(&x, &weight, None)
                });
            }
        }
    }
}

/// Returns the name of a format and a weight of shape `[outputs, inputs]` in it, for each of Q8_0, Q4_0, Q4_K and Q6_K
/// whose block length divides `inputs`. All bytes are 0x2c, since the values do not matter for timing.
fn quantized([outputs, inputs]: [usize; 2]) -> Vec<(String, Weight)> {
    let formats = [Format::Q8_0, Format::Q4_0, Format::Q4_K, Format::Q6_K];
    let fitting = formats.into_iter().filter(|format| inputs.is_multiple_of(format.block()));
    fitting
        .map(|format| {
            let bytes = vec![0x2c; format.bytes(outputs, inputs).unwrap()];
            let packed = Packed::new(bytes.into(), format, outputs, inputs).unwrap();
            (format!("{format:?}"), Weight::Packed(Arc::new(packed)))
        })
        .collect()
}
