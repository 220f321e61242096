//! The way of a gradient back through operations: one [`GradFn`] each, written beside the operation, walked by [`Node`].
//!
//! [`derive`] marks a value that was computed off the graph as part of it, with the gradient written beside the
//! operation. One operation is one node, whatever it computed inside; no temporaries stay alive.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use candle_core::{DType, Tensor, TensorId, Var};

use crate::error::Result;

/// candle's own result, as its traits want it.
pub(super) type Raw<T> = candle_core::Result<T>;

/// Returns a contiguous tensor of the same numbers outside the autograd graph; f16 and bf16 are widened to f32.
pub(super) fn wide(tensor: &Tensor) -> Raw<Tensor> {
    let tensor = tensor.detach().contiguous()?;
    match tensor.dtype() {
        DType::F16 | DType::BF16 => tensor.to_dtype(DType::F32),
        _ => Ok(tensor),
    }
}

/// What an operation returns: its value, and the way back through it if an operand is in a graph.
pub(super) struct Value {
    pub(super) tensor: Tensor,
    pub(super) grad_fn: Option<GradFn>,
}

impl From<Tensor> for Value {
    /// A value that is in no graph.
    fn from(tensor: Tensor) -> Self {
        Self { tensor, grad_fn: None }
    }
}

/// Adds the gradients of the operands to their sums, from the operands, the result and its gradient.
type Way = dyn Fn(&[Tensor], &Tensor, &Tensor, &mut Gradients) -> Raw<()> + Send + Sync;

/// The way of a gradient back through one operation.
pub struct GradFn {
    operands: Vec<Tensor>,
    way: Box<Way>,
}

impl GradFn {
    /// Wraps the way back to these operands.
    pub(super) fn new(
        operands: &[&Tensor],
        way: impl Fn(&[Tensor], &Tensor, &Tensor, &mut Gradients) -> Raw<()> + Send + Sync + 'static,
    ) -> Self {
        Self { operands: operands.iter().map(|operand| (*operand).clone()).collect(), way: Box::new(way) }
    }

    /// The tensors that the operation was given, in its own order.
    pub fn operands(&self) -> &[Tensor] {
        &self.operands
    }

    /// Adds the gradients of the operands to `sums`, from the result `y` and its gradient.
    pub(super) fn apply(&self, y: &Tensor, gradient: &Tensor, sums: &mut Gradients) -> Raw<()> {
        (self.way)(&self.operands, y, gradient, sums)
    }
}

impl fmt::Debug for GradFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GradFn").field("operands", &self.operands.len()).finish_non_exhaustive()
    }
}

/// Gradients on their way back, summed for each tensor. Every sum has numbers of its own, which nothing else shares.
#[derive(Default)]
pub(super) struct Gradients(HashMap<TensorId, Tensor>);

impl Gradients {
    /// Adds `gradient`, in shape and type of `tensor`, to the sum of `tensor`. Does nothing for a tensor in no graph.
    pub(super) fn add(&mut self, tensor: &Tensor, gradient: &Tensor) -> Raw<()> {
        if !tensor.track_op() {
            return Ok(());
        }
        let gradient = gradient.detach();
        match self.0.entry(tensor.id()) {
            // 0 + −0 is 0: the sum is the same as one that began with zeros.
            Entry::Vacant(entry) => _ = entry.insert(gradient.affine(1., 0.)?),
            Entry::Occupied(mut entry) => *entry.get_mut() = entry.get().add(&gradient)?,
        }
        Ok(())
    }

    /// Adds `gradient` in place to the entries of the sum of `tensor` from `start` on along an axis.
    fn add_to_slice(&mut self, tensor: &Tensor, axis: usize, start: usize, gradient: &Tensor) -> Raw<()> {
        let sum = match self.0.entry(tensor.id()) {
            Entry::Vacant(entry) => entry.insert(tensor.zeros_like()?),
            Entry::Occupied(entry) => entry.into_mut(),
        };
        let part = sum.narrow(axis, start, gradient.dim(axis)?)?.add(&gradient.detach())?;
        sum.slice_set(&part, axis, start)
    }

    /// Removes and returns the sum of a tensor; `None` if nothing was added to it.
    pub(super) fn take(&mut self, tensor: &Tensor) -> Option<Tensor> {
        self.0.remove(&tensor.id())
    }
}

/// The way back through a view of `x`, from the gradient of the view to that of `x`.
pub(super) fn pull_view(x: &Tensor, pull: impl Fn(&Tensor, &Tensor) -> Raw<Tensor> + Send + Sync + 'static) -> GradFn {
    GradFn::new(&[x], move |operands, _, grad, sums| operands.iter().try_for_each(|x| sums.add(x, &pull(x, grad)?)))
}

/// The way back through the entries of `x` from `start` on along an axis: only these are touched, so that many slices of
/// a large tensor cost what they are long.
pub(super) fn pull_slice(x: &Tensor, axis: usize, start: usize) -> GradFn {
    GradFn::new(&[x], move |operands, _, grad, sums| {
        operands.iter().try_for_each(|x| sums.add_to_slice(x, axis, start, grad))
    })
}

/// Copies a value into a tensor that candle takes for a variable, which marks it as part of a graph. candle keeps no graph
/// of its own behind it.
fn mark(value: &Tensor, dtype: DType) -> Raw<Tensor> {
    Ok(Var::from_tensor(&value.to_dtype(dtype)?)?.into_inner())
}

/// Puts `value`, which was computed from `x` outside the autograd graph, into the graph as one node, rounded to
/// `dtype`.
///
/// `pull(x, y, grad)` returns the gradient of `x` from the operand, the result and the gradient of the result; all
/// three are outside the graph and in at least 32 bits. If `x` is not in a graph, neither is the result, and `pull` is
/// dropped.
pub(super) fn derive<F>(x: &Tensor, dtype: DType, value: &Tensor, pull: F) -> Result<Value>
where
    F: Fn(&Tensor, &Tensor, &Tensor) -> Raw<Tensor> + Send + Sync + 'static,
{
    if !x.track_op() {
        return Ok(value.to_dtype(dtype)?.into());
    }
    let grad_fn = GradFn::new(&[x], move |operands, y, grad, sums| {
        let (y, grad) = (wide(y)?, wide(grad)?);
        operands.iter().try_for_each(|x| sums.add(x, &pull(&wide(x)?, &y, &grad)?.to_dtype(x.dtype())?))
    });
    Ok(Value { tensor: mark(value, dtype)?, grad_fn: Some(grad_fn) })
}

/// What the gradient of an operation with two operands is computed from; all wide, without a graph.
pub(super) struct Pair<'a> {
    /// The first operand.
    pub(super) a: &'a Tensor,
    /// The second operand.
    pub(super) b: &'a Tensor,
    /// The result.
    pub(super) y: &'a Tensor,
    /// The gradient of the result.
    pub(super) grad: &'a Tensor,
}

/// The gradient of one of two operands, before it is summed back to the operand's shape.
pub(super) type Pull = fn(&Pair) -> Raw<Tensor>;

/// Puts `value`, which was computed from `a` and `b` outside the autograd graph, into the graph as one node, rounded to
/// `dtype`. `pulls` are the gradients of `a` and of `b` in the shape of the result; they are summed back to the shapes
/// of broadcast operands. If neither operand is in a graph, neither is the result.
pub(super) fn derive_pair<A, B>(a: &Tensor, b: &Tensor, dtype: DType, value: &Tensor, pulls: (A, B)) -> Result<Value>
where
    A: Fn(&Pair) -> Raw<Tensor> + Send + Sync + 'static,
    B: Fn(&Pair) -> Raw<Tensor> + Send + Sync + 'static,
{
    if !a.track_op() && !b.track_op() {
        return Ok(value.to_dtype(dtype)?.into());
    }
    let grad_fn = GradFn::new(&[a, b], move |operands, y, grad, sums| {
        let [a, b] = operands else { return Ok(()) };
        let (wide_a, wide_b) = (wide(a)?, wide(b)?);
        let pair = Pair { a: &wide_a, b: &wide_b, y: &wide(y)?, grad: &wide(grad)? };
        let gradient = |operand: &Tensor, pull: &dyn Fn(&Pair) -> Raw<Tensor>| {
            sum_to(&pull(&pair)?, operand.dims())?.to_dtype(operand.dtype())
        };
        if a.track_op() {
            sums.add(a, &gradient(a, &pulls.0)?)?;
        }
        if b.track_op() {
            sums.add(b, &gradient(b, &pulls.1)?)?;
        }
        Ok(())
    });
    Ok(Value { tensor: mark(value, dtype)?, grad_fn: Some(grad_fn) })
}

/// Sums a gradient over the axes that broadcasting repeated, so that the result has the shape `dims`.
pub(super) fn sum_to(gradient: &Tensor, dims: &[usize]) -> Raw<Tensor> {
    if gradient.dims() == dims {
        return Ok(gradient.clone());
    }
    let extra = gradient.rank() - dims.len();
    let repeated: Vec<usize> = (0..gradient.rank())
        .filter(|axis| {
            *axis < extra || (super::check::length(dims, axis - extra) == 1 && gradient.dims().get(*axis) != Some(&1))
        })
        .collect();
    gradient.sum_keepdim(repeated)?.reshape(dims)
}
