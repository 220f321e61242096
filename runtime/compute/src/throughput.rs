//! Measures the matrix-product throughput of a device, to which benchmarks are compared.

use std::time::Instant;

use candle_core::{DType, Device, Tensor};

use crate::accelerator::{Accelerator, MatrixView};
use crate::error::Result;
use crate::fused;
use crate::random::Stream;

/// Rows and columns of the matrices on the CPU: enough that memory bandwidth does not matter, few enough for a tenth of
/// a second, and not a power of two, because such rows would compete for the same cache lines.
const SIDE: usize = 1984;
/// Rows and columns of the matrices on an accelerator, in units of [`SIDE`].
const TIMES: usize = 4;
/// How many products, or batches of products, are timed; the fastest counts.
const PRODUCTS: usize = 8;
/// Products in one timed batch on an accelerator, because waiting for a result can take longer than one product.
const TOGETHER: usize = 10;
/// Seconds: an accelerator that takes longer for one product of side [`SIDE`] is measured by that product alone.
const SLOW: f64 = 0.01;

/// Measures the matrix-product throughput of a device in floating-point operations per second. On the CPU: the fastest
/// of 8 products of random `[1984, 1984]` matrices in `dtype`, on all cores that this program uses. On an accelerator:
/// the fastest of 8 batches of 10 products of `[7936, 7936]` matrices, or a single smaller product if the device is
/// slow.
///
/// # Errors
/// When the device has too little memory, cannot multiply matrices of `dtype` (f32 or bf16 on the CPU), fails, or was
/// not opened by [`crate::device::parse`].
pub fn matmul_flops(device: &Device, dtype: DType) -> Result<f64> {
    match Accelerator::of(device)? {
        None => measure_cpu(dtype),
        Some(accelerator) => measure_accelerator(&accelerator, dtype),
    }
}

/// Measures the CPU: operations per second of the fastest of [`PRODUCTS`] products of side [`SIDE`] in `dtype`, f32 or
/// bf16.
fn measure_cpu(dtype: DType) -> Result<f64> {
    let square = |name| Tensor::from_vec(random_matrix(name), (SIDE, SIDE), &Device::Cpu)?.to_dtype(dtype);
    let (a, b) = (square("pace/a")?, square("pace/b")?);
    let least = fastest_seconds(PRODUCTS, || fused::linear(&a, &b, None).map(drop))?;
    Ok(operations(SIDE) / least)
}

/// Measures an accelerator: operations per second of the fastest of [`PRODUCTS`] batches of [`TOGETHER`] products in
/// `dtype` of side [`TIMES`] · [`SIDE`]. First times two single products of side [`SIDE`]; if the faster takes more
/// than [`SLOW`] seconds, returns its operations per second instead.
fn measure_accelerator(accelerator: &Accelerator, dtype: DType) -> Result<f64> {
    // Two rounds: the first product of a process also loads the library of products.
    let small = fastest_batch_seconds(accelerator, dtype, [1, 1, 2])?;
    if small > SLOW {
        return Ok(operations(SIDE) / small);
    }
    let together = fastest_batch_seconds(accelerator, dtype, [TIMES, TOGETHER, PRODUCTS])?;
    Ok(operations(TIMES * SIDE) * TOGETHER as f64 / together)
}

/// Measures batches of products of square matrices with the side `times` · [`SIDE`]: returns the seconds of the fastest
/// of `rounds` batches of `together` products each, including the wait for the result of the batch.
fn fastest_batch_seconds(
    accelerator: &Accelerator,
    dtype: DType,
    [times, together, rounds]: [usize; 3],
) -> Result<f64> {
    let side = times * SIDE;
    let square = |name| {
        let numbers = random_matrix(name).repeat(times * times);
        accelerator.cast(&accelerator.upload(&numbers, &[side, side])?, dtype)
    };
    let (a, b, product) = (square("pace/a")?, square("pace/b")?, accelerator.empty(&[side, side], dtype)?);
    fastest_seconds(rounds, || {
        for _ in 0..together {
            accelerator.multiply(&product, MatrixView::plain(&a), MatrixView::plain(&b), 1.0, false)?;
        }
        // Reading one number waits until all products are computed.
        let first = accelerator.cast(&product.narrow(0, 0, 1)?.narrow(1, 0, 1)?, DType::F32)?;
        accelerator.download::<f32>(&first).map(drop)
    })
}

/// The number of floating-point operations of a product of square matrices, 2 · side³.
fn operations(side: usize) -> f64 {
    2.0 * (side as f64).powi(3)
}

/// Normal numbers for one matrix with the side [`SIDE`], seeded by `name`.
fn random_matrix(name: &str) -> Vec<f32> {
    Stream::new(0, name).normals(SIDE * SIDE)
}

/// Calls `work` `rounds` times and returns the seconds of the fastest call; infinity for 0 rounds. Stops at the first
/// error.
fn fastest_seconds(rounds: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..rounds {
        let begun = Instant::now();
        work()?;
        least = least.min(begun.elapsed().as_secs_f64());
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_multiplies_faster_than_a_person() {
        for dtype in [DType::F32, DType::BF16] {
            let rate = matmul_flops(&Device::Cpu, dtype).unwrap();
            assert!(rate > 1e8 && rate < 1e16, "{rate} in {dtype:?}");
        }
    }
}
