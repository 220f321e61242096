//! Products of matrices and vectors.

use candle_core::Tensor;

use super::graph::{CandleResult, OperandGradients, derive_pair, wide};
use super::{Estimate, Kind, Meter, Output, check};
use crate::error::{Error, Result, ensure};

/// Multiplies matrices over the last two axes, `[…, n, k] · […, k, m]`; the axes before them are broadcast.
///
/// # Errors
/// [`Error::Shape`] for fewer than two axes or shapes that do not fit, [`Error::Dtype`] if the operands are not
/// floating-point of one type, and the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn matmul(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    check::expect_float(a)?;
    check::same_type(a, b)?;
    let (Some((a_batch, [rows, inner])), Some((b_batch, [inner_b, columns]))) = (split_dims(a), split_dims(b)) else {
        return Err(Error::shape(format!("a product of {:?} and {:?}: two axes or more each", a.dims(), b.dims())));
    };
    let (left, right) = (a.dims(), b.dims());
    let differ = || Error::shape(format!("{left:?} · {right:?}: the inner axes differ, {inner} and {inner_b}"));
    ensure(inner == inner_b, differ)?;
    let mut dims = check::broadcast(a_batch, b_batch)?;
    let batch = check::elements(&dims)?;
    dims.extend([rows, columns]);
    let products = check::elements(&dims)?.saturating_mul(inner as u64);
    // Operands that are repeated over the batch are copied for it.
    let repeated = batch.saturating_mul((rows * inner) as u64 + (inner * columns) as u64);
    let estimate = Estimate::new(Kind::Product, &dims, a.dtype(), &[a, b])?.measured(products).scratch(repeated);
    estimate.run_within_budget(budget, || {
        let value = broadcast_matmul(&wide(a)?, &wide(b)?)?;
        let gradients: OperandGradients =
            (|pair| broadcast_matmul(pair.grad, &pair.b.t()?), |pair| broadcast_matmul(&pair.a.t()?, pair.grad));
        derive_pair(a, b, a.dtype(), &value, gradients)
    })
}

/// Splits a shape into (the axes before the last two, the last two). `None` for fewer than two axes.
fn split_dims(x: &Tensor) -> Option<(&[usize], [usize; 2])> {
    x.dims().split_last_chunk::<2>().map(|(batch, last)| (batch, *last))
}

/// Multiplies matrices over the last two axes; the axes before them are broadcast. The caller has checked the shapes
/// and passes tensors outside the graph. Copies both operands to `[batch, rows, columns]` if either has two or more
/// leading axes: candle multiplies any layout with one leading axis, but only some with several.
fn broadcast_matmul(a: &Tensor, b: &Tensor) -> CandleResult<Tensor> {
    let (Some((a_batch, [rows, inner])), Some((b_batch, [_, columns]))) = (split_dims(a), split_dims(b)) else {
        return a.broadcast_matmul(b);
    };
    if a_batch.len() < 2 && b_batch.len() < 2 {
        return a.broadcast_matmul(b);
    }
    let mut dims = check::broadcast(a_batch, b_batch).map_err(candle_core::Error::wrap)?;
    let batch: usize = dims.iter().product();
    let flat = |x: &Tensor, [height, width]: [usize; 2]| {
        let whole = x.broadcast_as([dims.as_slice(), &[height, width]].concat())?;
        whole.contiguous()?.reshape((batch, height, width))
    };
    let value = flat(a, [rows, inner])?.matmul(&flat(b, [inner, columns])?)?;
    dims.extend([rows, columns]);
    value.reshape(dims)
}

/// Returns the outer product `[n, m]` of the vectors a `[n]` and b `[m]`.
///
/// # Errors
/// [`Error::Shape`] unless both have one axis, [`Error::Dtype`] if they are not floating-point of one type, and the
/// error of `budget` if the operation exceeds a memory, work or time limit.
pub fn outer(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    let (n, m) = vector_lengths(a, b)?;
    Estimate::new(Kind::Product, &[n, m], a.dtype(), &[a, b])?.run_within_budget(budget, || {
        let value = wide(a)?.unsqueeze(1)?.matmul(&wide(b)?.unsqueeze(0)?)?;
        let gradients: OperandGradients = (
            |pair| pair.grad.matmul(&pair.b.unsqueeze(1)?)?.squeeze(1),
            |pair| pair.a.unsqueeze(0)?.matmul(pair.grad)?.squeeze(0),
        );
        derive_pair(a, b, a.dtype(), &value, gradients)
    })
}

/// Returns the inner product of the vectors a `[n]` and b `[n]`, as a scalar.
///
/// # Errors
/// [`Error::Shape`] unless both have one axis and one length, [`Error::Dtype`] if they are not floating-point of one
/// type, and the error of `budget` if the operation exceeds a memory, work or time limit.
pub fn dot(budget: &mut dyn Meter, a: &Tensor, b: &Tensor) -> Result<Output> {
    let (n, m) = vector_lengths(a, b)?;
    ensure(n == m, || Error::shape(format!("vectors of {n} and {m} entries")))?;
    Estimate::new(Kind::Product, &[], a.dtype(), &[a, b])?.run_within_budget(budget, || {
        let value = wide(a)?.mul(&wide(b)?)?.sum_all()?;
        let gradients: OperandGradients =
            (|pair| pair.b.broadcast_mul(pair.grad), |pair| pair.a.broadcast_mul(pair.grad));
        derive_pair(a, b, a.dtype(), &value, gradients)
    })
}

/// Returns the lengths of two vectors, a's first. [`Error::Dtype`] unless both are of one floating-point type,
/// [`Error::Shape`] unless both have one axis.
fn vector_lengths(a: &Tensor, b: &Tensor) -> Result<(usize, usize)> {
    check::expect_float(a)?;
    check::same_type(a, b)?;
    match (a.dims(), b.dims()) {
        (&[n], &[m]) => Ok((n, m)),
        (a, b) => Err(Error::shape(format!("{a:?} and {b:?} where vectors are needed"))),
    }
}
