//! The sum of two activations.

use candle_core::Tensor;

use super::backend::accelerator_of;
use super::chunks::map_chunks;
use super::device::expect_type;
use super::host;
use super::simd::vectorize;
use crate::accelerator::{arguments, kernel};
use crate::error::Result;

/// Numbers of one task.
const TASK_NUMBERS: usize = 1 << 12;

/// Computes `a + b` of two tensors of one shape and type, f32 or bf16, in f32, and rounds to that type. Returns an
/// error if shapes or devices differ.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    host::expect_shape(b, "b", a.dims())?;
    if let Some(device) = accelerator_of([(a, "a"), (b, "b")])? {
        let (act, numbers) = (expect_type(a, "a")?, a.elem_count());
        return device.compute(&kernel::ADD, act, device.flat(numbers), a.dims(), &arguments![a, b, numbers as u64]);
    }
    let [sum] = map_chunks([(a, "a"), (b, "b")], TASK_NUMBERS, |_, [a, b], [sum]| {
        vectorize!(sum.iter_mut().zip(a).zip(b).for_each(|((sum, a), b)| *sum = a + b));
    })?;
    sum
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
