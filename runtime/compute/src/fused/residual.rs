//! The sum of two activations.

mod device;

use candle_core::Tensor;
use rayon::prelude::*;

use super::backend::Backend;
use super::host::{self, Floats};
use super::simd::vectorize;
use crate::error::Result;

/// Numbers of one task.
const TASK_NUMBERS: usize = 1 << 16;

/// `a + b`, two tensors of one shape and type.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    host::expect(b, "b", a.dims())?;
    match Backend::of([(a, "a"), (b, "b")])? {
        Backend::Cpu => add_on_cpu(a, b),
        Backend::Device(device) => device::add(&device, a, b),
    }
}

/// [`add`] on the CPU.
fn add_on_cpu(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (left, right) = (Floats::of(a, "a")?, Floats::of(b, "b")?);
    let mut result = left.slice().to_vec();
    result.par_chunks_mut(TASK_NUMBERS).zip(right.slice().par_chunks(TASK_NUMBERS)).for_each(|(sum, more)| {
        vectorize!(sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more));
    });
    host::tensor(result, a.dims())
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
