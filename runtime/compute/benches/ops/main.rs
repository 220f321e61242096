//! How fast the fused operations are on this machine: `cargo bench --workspace --bench ops`.
//!
//! The sizes are those of Qwen2.5-0.5B and Gemma-3-270M. Where a line speaks of elements a second, an element is a
//! floating-point operation for products and attention (so that `Gelem/s` is GFLOP/s; `square` is what plain products
//! reach here) and a number for the rest; products of a few tokens, which wait for memory, are in bytes of weights.
//! `-- --quick` is a glance, `-- bf16` the benchmarks with `bf16` in their names.
#![expect(clippy::unwrap_used, reason = "a measurement may stop at the first surprise")]

mod parts;
mod products;
mod sizes;

use std::time::Duration;

use criterion::Criterion;

/// Runs the square product once and all other benchmarks for both models, then prints Criterion's summary. Options of
/// the command line override the number of samples and the times set here.
fn main() {
    let mut criterion = Criterion::default()
        .without_plots()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    products::square(&mut criterion);
    for sizes in [&sizes::QWEN, &sizes::GEMMA] {
        products::whole(&mut criterion, sizes);
        products::adapted(&mut criterion, sizes);
        products::decoding(&mut criterion, sizes);
        parts::attention(&mut criterion, sizes);
        parts::head(&mut criterion, sizes);
        parts::rows(&mut criterion, sizes);
    }
    criterion.final_summary();
}
