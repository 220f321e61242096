//! What the machine can do at best: the yardstick of every benchmark.

use std::time::Instant;

use candle_core::{DType, Device, Tensor};

use crate::error::Result;
use crate::random::Stream;

/// The side of the matrices: large enough that memory does not matter, small enough for a tenth of a second.
const SIDE: usize = 2048;
/// Products that are timed; the fastest counts.
const PRODUCTS: usize = 8;

/// Floating-point operations a second of the fastest of some products of square `f32` matrices, 2n³ operations each, on
/// all the cores that this program uses.
///
/// # Errors
/// When the device has no room.
pub fn product_rate(device: &Device) -> Result<f64> {
    let square = |name: &str| {
        let numbers = Stream::new(0, name).normals(SIDE * SIDE);
        Tensor::from_vec(numbers, (SIDE, SIDE), device)?.to_dtype(DType::F32)
    };
    let (a, b) = (square("pace/a")?, square("pace/b")?);
    let mut least = f64::INFINITY;
    for _ in 0..PRODUCTS {
        let begun = Instant::now();
        // Reading one number makes a device wait until it is done.
        a.matmul(&b)?.narrow(0, 0, 1)?.sum_all()?.to_scalar::<f32>()?;
        least = least.min(begun.elapsed().as_secs_f64());
    }
    Ok(2.0 * (SIDE as f64).powi(3) / least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_multiplies_faster_than_a_person() {
        let rate = product_rate(&Device::Cpu).unwrap();
        assert!(rate > 1e8 && rate < 1e16, "{rate}");
    }
}
