//! The sum of two activations.

use candle_core::Tensor;
use rayon::prelude::*;

use super::host::{self, Floats};
use super::lanes::wide;
use crate::error::Result;

/// Numbers of one task.
const TASK_NUMBERS: usize = 1 << 16;

/// `a + b`, two f32 tensors of one shape.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    host::expect(b, "b", a.dims())?;
    let (left, right) = (Floats::of(a, "a")?, Floats::of(b, "b")?);
    let mut result = left.slice().to_vec();
    result.par_chunks_mut(TASK_NUMBERS).zip(right.slice().par_chunks(TASK_NUMBERS)).for_each(|(sum, more)| {
        wide(
            #[inline(always)]
            || sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more),
        );
    });
    host::tensor(result, a.dims())
}

#[cfg(test)]
mod tests {
    use super::super::twin::{close, normal};
    use super::*;

    #[test]
    fn a_sum_agrees_with_the_plain_one() {
        let (a, b) = (normal("a", &[301, 307]), normal("b", &[301, 307]));
        close("sum", &add(&a, &b).unwrap(), &(&a + &b).unwrap(), 0.0);
        assert!(add(&a, &normal("b", &[307, 301])).is_err());
    }
}
