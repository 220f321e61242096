//! The sum of two activations.

use candle_core::Tensor;
use rayon::prelude::*;

use super::backend::accelerator_of;
use super::device::expect_type;
use super::host::{self, Floats};
use super::simd::vectorize;
use crate::accelerator::{arguments, kernel};
use crate::error::Result;

/// Numbers of one task.
const TASK_NUMBERS: usize = 1 << 16;

/// Computes `a + b` of two tensors of one shape and type.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    host::expect(b, "b", a.dims())?;
    if let Some(device) = accelerator_of([(a, "a"), (b, "b")])? {
        let (act, numbers) = (expect_type(a, "a")?, a.elem_count());
        return device.compute(&kernel::ADD, act, device.flat(numbers), a.dims(), &arguments![a, b, numbers as u64]);
    }
    let mut result = Floats::activations(a, "a")?.to_vec();
    let right = Floats::activations(b, "b")?;
    result.par_chunks_mut(TASK_NUMBERS).zip(right.par_chunks(TASK_NUMBERS)).for_each(|(sum, more)| {
        vectorize!(sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more));
    });
    host::tensor_in(a.dtype(), result, a.dims())
}

#[cfg(test)]
mod tests {
    use super::super::reference::normal;
    use super::*;
    use crate::parity::on_each_device;

    on_each_device! {
        // In bf16 the sum is rounded once.
        fn a_sum_agrees_with_the_plain_one(on) tolerance(1e-7, 4e-3) {
            let (a, b) = (on.normal("a", &[301, 307]), on.normal("b", &[301, 307]));
            let plain = (on.leaf(&a).as_tensor() + on.leaf(&b).as_tensor()).unwrap();
            on.close("sum", &add(&a, &b).unwrap(), &plain);
            assert!(add(&a, &on.normal("b", &[307, 301])).is_err());
        }
    }

    #[test]
    fn a_sum_has_the_bits_of_the_plain_one() {
        let (a, b) = (normal("a", &[301, 307]), normal("b", &[301, 307]));
        super::super::reference::close("sum", &add(&a, &b).unwrap(), &(&a + &b).unwrap(), 0.0);
    }
}
