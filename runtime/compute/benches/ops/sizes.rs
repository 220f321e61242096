//! The sizes of two models, made-up numbers of any shape, and one line of a benchmark.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Throughput};
use tunebox_compute::fused::Activation;
use tunebox_compute::random::Stream;
use tunebox_compute::{DType, Device, Result, Tensor};

/// Tokens of a training step.
pub(crate) const TOKENS: usize = 1024;

/// How weights may be stored.
pub(crate) const STORED: [DType; 2] = [DType::F32, DType::BF16];

/// What the operations of a model's block are measured with.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// The model.
    pub(crate) name: &'static str,
    /// Features of the stream.
    pub(crate) hidden: usize,
    /// Features between the products of the feed-forward part.
    pub(crate) intermediate: usize,
    /// Query heads.
    pub(crate) heads: usize,
    /// Key-value heads.
    pub(crate) kv_heads: usize,
    /// Features of a head.
    pub(crate) head_dim: usize,
    /// What gates the feed-forward part.
    pub(crate) activation: Activation,
    /// Whether norms multiply by 1 + their weight.
    pub(crate) unit_offset: bool,
}

/// Qwen2.5-0.5B.
pub(crate) const QWEN: Sizes = Sizes {
    name: "qwen2.5-0.5b",
    hidden: 896,
    intermediate: 4864,
    heads: 14,
    kv_heads: 2,
    head_dim: 64,
    activation: Activation::Silu,
    unit_offset: false,
};

/// Gemma-3-270M.
pub(crate) const GEMMA: Sizes = Sizes {
    name: "gemma-3-270m",
    hidden: 640,
    intermediate: 2048,
    heads: 4,
    kv_heads: 1,
    head_dim: 256,
    activation: Activation::GeluTanh,
    unit_offset: true,
};

impl Sizes {
    /// Returns name and weight shape `[out, in]` of three linear layers of a block: the query projection, and the gate
    /// and down projections of the feed-forward part.
    pub(crate) fn maps(&self) -> [(&'static str, [usize; 2]); 3] {
        let query = [self.heads * self.head_dim, self.hidden];
        [("query", query), ("gate", [self.intermediate, self.hidden]), ("down", [self.hidden, self.intermediate])]
    }
}

/// Returns a CPU tensor of standard normal f32 numbers. A shape gets the same numbers on every call.
pub(crate) fn normal(shape: &[usize]) -> Tensor {
    let numbers = Stream::new(0, "ops").normals(shape.iter().product());
    Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap()
}

/// Returns normal numbers times 0.02, of the magnitude of a trained weight, in type `dtype`. A shape gets the same
/// numbers on every call.
pub(crate) fn weight(shape: &[usize], dtype: DType) -> Tensor {
    (normal(shape) * 0.02).unwrap().to_dtype(dtype).unwrap()
}

/// Benchmarks `work` under `name` in a group. `throughput` is the amount that one call processes. Panics if `work`
/// fails.
pub(crate) fn time<T>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    throughput: Throughput,
    work: impl Fn() -> Result<T>,
) {
    group.throughput(throughput).bench_function(name, |bencher| bencher.iter(|| work().unwrap()));
}

/// Returns the floating-point operations of a product of `[rows, inputs]` with a weight `[outputs, inputs]`: 2 · rows ·
/// outputs · inputs.
pub(crate) fn product(rows: usize, [outputs, inputs]: [usize; 2]) -> Throughput {
    elements(2 * rows * outputs * inputs)
}

/// Returns a throughput of `count` elements per call.
pub(crate) fn elements(count: usize) -> Throughput {
    Throughput::Elements(count as u64)
}
