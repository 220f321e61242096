//! What the tests of fused operations share: random inputs, and comparison with slow references of plain operations.
//!
//! A reference runs in f64 under the tensor library's own autograd; a fused operation must agree with it.

use candle_core::{DType, Device, Tensor, Var};

use crate::random::Stream;

/// Returns independent normal f32 numbers on the CPU. The same name and shape give the same numbers.
pub(crate) fn normal(name: &str, shape: &[usize]) -> Tensor {
    let count = shape.iter().product();
    Tensor::from_vec(Stream::new(7, name).normals(count), shape, &Device::Cpu).unwrap()
}

/// Copies a tensor in f64 as a leaf of an autograd graph.
pub(crate) fn leaf(tensor: &Tensor) -> Var {
    Var::from_tensor(&tensor.to_dtype(DType::F64).unwrap()).unwrap()
}

/// Returns the gradients of Σ output·seed by each of the leaves, in their order.
pub(crate) fn gradients(output: &Tensor, seed: &Tensor, leaves: &[&Var]) -> Vec<Tensor> {
    let loss = (output * seed.to_dtype(DType::F64).unwrap()).unwrap().sum_all().unwrap();
    let mut store = loss.backward().unwrap();
    leaves.iter().map(|leaf| store.remove(leaf).unwrap()).collect()
}

/// Returns all numbers of a tensor in order, converted to f64.
pub(crate) fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Asserts that two tensors have one shape and that no number of `fused` is further off than `tolerance` times the
/// largest magnitude in `reference`, or 0.001 if that is smaller. `what` stands in the message.
pub(crate) fn close(what: &str, fused: &Tensor, reference: &Tensor, tolerance: f64) {
    assert_eq!(fused.dims(), reference.dims(), "{what}: shape");
    let (fused, reference) = (numbers(fused), numbers(reference));
    let scale = reference.iter().fold(1e-3f64, |most, number| most.max(number.abs()));
    for (index, (a, b)) in fused.iter().zip(&reference).enumerate() {
        assert!((a - b).abs() <= tolerance * scale, "{what}[{index}]: {a}, the reference has {b}");
    }
}

/// Returns the bits of all numbers of an f32 tensor, for comparison without tolerance.
pub(crate) fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().iter().map(|number| number.to_bits()).collect()
}

/// Runs `work` on a pool of one thread and on one of two, and asserts that both give the same bits.
pub(crate) fn same_on_two_threads(work: impl Fn() -> Vec<Tensor> + Sync) {
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| work().iter().map(bits).collect::<Vec<_>>())
    };
    assert_eq!(on(1), on(2), "the bits depend on the number of threads");
}
