//! The head over a part of the vocabulary: taps, their gradients, and the logits of decoding.

use criterion::{Criterion, Throughput};
use tunebox_compute::fused::{
    HeadOptions, Tap, TapGradients, TapSet, head_taps, head_taps_backward, head_taps_with_gradient, logits,
};

use crate::sizes::{STORED, Sizes, normal, product, time, weight};

/// Tokens that are scored.
const SCORED: usize = 256;
/// Words that are scored; a vocabulary has many times as many, and takes as many times as long.
const WORDS: usize = 32_768;

/// Benchmarks the head over 32,768 words with f32 and bf16 weights. On 256 rows: taps, taps with the gradient of the
/// log-probability, and the backward pass, in floating-point operations. On 1 and 16 tokens: logits, in bytes of
/// weights.
pub(crate) fn bench(criterion: &mut Criterion, sizes: &Sizes) {
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
