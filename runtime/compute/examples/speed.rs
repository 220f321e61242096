//! How fast the fused operations are on this machine: `cargo run --release -p tunebox-compute --example speed`.
//!
//! Each line is the best of several runs, in billions of multiplications and additions a second for products and in
//! milliseconds for the rest. Sides are those of a model of half a billion parameters.
#![expect(clippy::print_stdout, reason = "a table for a person")]

use std::error::Error;
use std::time::Instant;

use tunebox_compute::fused::*;
use tunebox_compute::random::Stream;
use tunebox_compute::{DType, Device, Tensor};

const TOKENS: usize = 1024;
const HIDDEN: usize = 896;
const WIDE: usize = 4864;
const WORDS: usize = 32_768;

fn normal(shape: &[usize]) -> Result<Tensor, Box<dyn Error>> {
    let count = shape.iter().product();
    Ok(Tensor::from_vec(Stream::new(0, "speed").normals(count), shape, &Device::Cpu)?)
}

/// The best of several runs, in seconds.
fn best<T>(work: impl Fn() -> tunebox_compute::Result<T>) -> tunebox_compute::Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..runs() {
        let start = Instant::now();
        work()?;
        least = least.min(start.elapsed().as_secs_f64());
    }
    Ok(least)
}

/// How often each operation runs: the first argument, or 15.
fn runs() -> usize {
    std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(15)
}

fn product(name: &str, operations: usize, seconds: f64) {
    println!("{name:<38} {:>8.1} GFLOP/s {:>9.2} ms", operations as f64 / seconds / 1e9, seconds * 1e3);
}

fn other(name: &str, seconds: f64) {
    println!("{name:<38} {:>27.2} ms", seconds * 1e3);
}

fn products() -> Result<(), Box<dyn Error>> {
    let (x, dy, weight) = (normal(&[TOKENS, HIDDEN])?, normal(&[TOKENS, WIDE])?, normal(&[WIDE, HIDDEN])?);
    let low = LowRank { a: normal(&[16, HIDDEN])?, b: normal(&[WIDE, 16])?, scale: 2.0 };
    let operations = 2 * TOKENS * HIDDEN * WIDE;
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let weight = weight.to_dtype(dtype)?;
        let name = dtype.as_str();
        product(&format!("linear {name}"), operations, best(|| linear(&x, &weight, None))?);
        product(&format!("linear, input gradient {name}"), operations, best(|| linear_input_gradient(&dy, &weight))?);
        product(&format!("linear down {name}"), operations, {
            let down = weight.t()?.contiguous()?;
            best(|| linear(&dy, &down, None))?
        });
        product(
            &format!("adapted linear, rank 16 {name}"),
            operations,
            best(|| adapted_linear(&x, &weight, None, &low))?,
        );
        let (_, xa) = adapted_linear(&x, &weight, None, &low)?;
        let back = best(|| adapted_linear_backward(&dy, &x, &xa, &weight, &low, true))?;
        product(&format!("adapted linear, gradients {name}"), operations, back);
        let one = x.narrow(0, 0, 1)?;
        let bytes = WIDE * HIDDEN * dtype.size_in_bytes();
        let seconds = best(|| linear(&one, &weight, None))?;
        println!(
            "{:<38} {:>8.1} GB/s    {:>9.3} ms",
            format!("linear, one token {name}"),
            bytes as f64 / seconds / 1e9,
            seconds * 1e3
        );
    }
    product("linear, weight gradient", operations, best(|| linear_weight_gradient(&dy, &x))?);
    Ok(())
}

fn attentions() -> Result<(), Box<dyn Error>> {
    let shape = AttentionShape { heads: 14, kv_heads: 2, head_dim: 64, scale: 0.125, window: None, soft_cap: None };
    for lengths in [&[256usize; 4][..], &[1024], &[4096]] {
        let segments = Segments::new(lengths);
        let tokens = segments.tokens();
        let (q, k, v) = (normal(&[tokens, HIDDEN])?, normal(&[tokens, 128])?, normal(&[tokens, 128])?);
        let pairs: usize = lengths.iter().map(|length| length * (length + 1) / 2).sum();
        let operations = 4 * pairs * HIDDEN;
        let (out, lse) = attention(&q, &k, &v, &segments, &shape)?;
        let name = format!("{} × {}", lengths.len(), lengths[0]);
        product(&format!("attention {name}"), operations, best(|| attention(&q, &k, &v, &segments, &shape))?);
        let back = best(|| attention_backward(&out, &q, &k, &v, &out, &lse, &segments, &shape))?;
        product(&format!("attention, gradients {name}"), operations * 5 / 2, back);
    }
    Ok(())
}

fn heads() -> Result<(), Box<dyn Error>> {
    let (hidden, weight) = (normal(&[TOKENS, HIDDEN])?, (normal(&[WORDS, HIDDEN])? * 0.02)?.to_dtype(DType::BF16)?);
    let (targets, seed) = (vec![7; TOKENS], vec![1.0; TOKENS]);
    let options = HeadOptions::default();
    let operations = 2 * TOKENS * HIDDEN * WORDS;
    product("head taps bf16", operations, best(|| head_taps(&hidden, &weight, &targets, &options))?);
    let slopes = best(|| head_taps_and_slopes(&hidden, &weight, &targets, &options))?;
    product("head taps and slopes bf16", 2 * operations, slopes);
    let taps = head_taps(&hidden, &weight, &targets, &options)?;
    let seeds = HeadSeeds { logprob: Some(&seed), ..HeadSeeds::default() };
    let back = best(|| head_taps_backward(&hidden, &weight, &targets, &options, &taps, seeds, false))?;
    product("head taps, gradients bf16", 2 * operations, back);
    Ok(())
}

fn rows() -> Result<(), Box<dyn Error>> {
    let (x, gate, up) = (normal(&[TOKENS, HIDDEN])?, normal(&[TOKENS, WIDE])?, normal(&[TOKENS, WIDE])?);
    let weight = normal(&[HIDDEN])?;
    other("rms norm", best(|| rms_norm(&x, &weight, 1e-6, false))?);
    let (_, rates) = rms_norm(&x, &weight, 1e-6, false)?;
    other("rms norm, gradient", best(|| rms_norm_backward(&x, &x, &weight, &rates, false))?);
    for activation in [Activation::Silu, Activation::GeluTanh] {
        other(&format!("gated {activation:?}"), best(|| gated(&gate, &up, activation))?);
        other(&format!("gated, gradients {activation:?}"), best(|| gated_backward(&up, &gate, &up, activation))?);
    }
    let table = RopeTable::from_frequencies(&[0.1; 32], TOKENS, 1.0);
    let positions: Vec<u32> = (0..TOKENS as u32).collect();
    other("rope", best(|| rope(&x, 14, &positions, &table, false))?);
    other("residual", best(|| add(&x, &x))?);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{} threads, best of {} runs", rayon::current_num_threads(), runs());
    products()?;
    attentions()?;
    heads()?;
    rows()
}
