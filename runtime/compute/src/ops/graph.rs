//! Backward functions of operations: one [`GradFn`] each, written beside the operation and called by
//! [`super::gradients`].
//!
//! [`derive`] puts a value that was computed outside the graph into the graph, with its backward function. One
//! operation is one node, whatever it computed inside; no temporaries stay alive.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use candle_core::{DType, Tensor, TensorId, Var};

use crate::error::Result;

/// A result with candle's error, such as a failure of the device. Operations check their arguments first, so candle
/// should not reject shapes or types.
pub(super) type CandleResult<T> = candle_core::Result<T>;

/// Returns a contiguous tensor of the same numbers outside the autograd graph; f16 and bf16 are widened to f32, other
/// types stay.
pub(super) fn wide(tensor: &Tensor) -> CandleResult<Tensor> {
    let tensor = tensor.detach().contiguous()?;
    match tensor.dtype() {
        DType::F16 | DType::BF16 => tensor.to_dtype(DType::F32),
        _ => Ok(tensor),
    }
}

/// The result of an operation, and its backward function if an operand is in the autograd graph.
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

/// A backward function: from the operands, the result and the gradient of the result, adds the gradients of the
/// operands to the sums.
type BackwardFn = dyn Fn(&[Tensor], &Tensor, &Tensor, &mut Gradients) -> CandleResult<()> + Send + Sync;

/// The operands of one operation and its backward function.
pub struct GradFn {
    operands: Vec<Tensor>,
    backward: Box<BackwardFn>,
}

impl GradFn {
    /// Creates the backward function of an operation on `operands`. `backward` gets the operands, the result and the
    /// gradient of the result, and adds the gradients of the operands to the sums.
    pub(super) fn new(
        operands: &[&Tensor],
        backward: impl Fn(&[Tensor], &Tensor, &Tensor, &mut Gradients) -> CandleResult<()> + Send + Sync + 'static,
    ) -> Self {
        Self { operands: operands.iter().map(|operand| (*operand).clone()).collect(), backward: Box::new(backward) }
    }

    /// The operands of the operation, in the order of its arguments.
    pub fn operands(&self) -> &[Tensor] {
        &self.operands
    }

    /// Adds the gradients of the operands to `sums`, from the result `y` and its gradient.
    pub(super) fn apply(&self, y: &Tensor, gradient: &Tensor, sums: &mut Gradients) -> CandleResult<()> {
        (self.backward)(&self.operands, y, gradient, sums)
    }
}

impl fmt::Debug for GradFn {
    /// Prints the number of operands only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GradFn").field("operands", &self.operands.len()).finish_non_exhaustive()
    }
}

/// The gradients that a backward pass has computed so far, summed for each tensor. No sum shares memory with another
/// tensor.
#[derive(Default)]
pub(super) struct Gradients(HashMap<TensorId, Tensor>);

impl Gradients {
    /// Adds `gradient`, in shape and type of `tensor`, to the sum of `tensor`. The first gradient of a tensor is
    /// copied. Does nothing for a tensor in no graph.
    pub(super) fn add(&mut self, tensor: &Tensor, gradient: &Tensor) -> CandleResult<()> {
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

    /// Adds `gradient` in place to the slice of the sum of `tensor` that begins at `start` on `axis` and is as long as
    /// `gradient` there. Creates a sum of zeros first if `tensor` has none. Does not check that `tensor` is in a graph.
    fn add_to_slice(&mut self, tensor: &Tensor, axis: usize, start: usize, gradient: &Tensor) -> CandleResult<()> {
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

/// Creates the backward function of a view of `x`. `gradient_of(x, grad)` returns the gradient of `x` from that of the
/// view.
pub(super) fn view_backward(
    x: &Tensor,
    gradient_of: impl Fn(&Tensor, &Tensor) -> CandleResult<Tensor> + Send + Sync + 'static,
) -> GradFn {
    GradFn::new(&[x], move |operands, _, grad, sums| {
        operands.iter().try_for_each(|x| sums.add(x, &gradient_of(x, grad)?))
    })
}

/// Creates the backward function of the slice of `x` that begins at `start` on `axis`. It adds to that slice of the
/// gradient of `x` only, so that many slices of a large tensor cost no more than their lengths.
pub(super) fn slice_backward(x: &Tensor, axis: usize, start: usize) -> GradFn {
    GradFn::new(&[x], move |operands, _, grad, sums| {
        operands.iter().try_for_each(|x| sums.add_to_slice(x, axis, start, grad))
    })
}

/// Copies a value, as `dtype`, into a new candle variable. candle reports a variable as tracked (`track_op`), by which
/// this crate knows that it is in the graph, but records no operation that made it.
fn to_variable(value: &Tensor, dtype: DType) -> CandleResult<Tensor> {
    Ok(Var::from_tensor(&value.to_dtype(dtype)?)?.into_inner())
}

/// Puts `value`, which was computed from `x` outside the autograd graph, into the graph as one node, rounded to
/// `dtype`.
///
/// `gradient_of(x, y, grad)` returns the gradient of `x` from the operand, the result and the gradient of the result;
/// all three are outside the graph and in at least 32 bits. If `x` is not in a graph, neither is the result, and
/// `gradient_of` is dropped.
pub(super) fn derive<F>(x: &Tensor, dtype: DType, value: &Tensor, gradient_of: F) -> Result<Value>
where
    F: Fn(&Tensor, &Tensor, &Tensor) -> CandleResult<Tensor> + Send + Sync + 'static,
{
    if !x.track_op() {
        return Ok(value.to_dtype(dtype)?.into());
    }
    let grad_fn = GradFn::new(&[x], move |operands, y, grad, sums| {
        let (y, grad) = (wide(y)?, wide(grad)?);
        operands.iter().try_for_each(|x| sums.add(x, &gradient_of(&wide(x)?, &y, &grad)?.to_dtype(x.dtype())?))
    });
    Ok(Value { tensor: to_variable(value, dtype)?, grad_fn: Some(grad_fn) })
}

/// The arguments of a backward function of an operation with two operands: in at least 32 bits, outside the graph.
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

/// Two functions that compute the gradient of the first and of the second operand, both in the shape of the result;
/// the caller sums them to the operands' shapes.
pub(super) type OperandGradients = (fn(&Pair) -> CandleResult<Tensor>, fn(&Pair) -> CandleResult<Tensor>);

/// Puts `value`, which was computed from `a` and `b` outside the autograd graph, into the graph as one node, rounded to
/// `dtype`. `gradients` compute the gradients of `a` and of `b` in the shape of the result; these are summed back to
/// the shapes of broadcast operands. The function of an operand that is in no graph is not called. If neither operand
/// is in a graph, neither is the result.
pub(super) fn derive_pair<A, B>(
    a: &Tensor,
    b: &Tensor,
    dtype: DType,
    value: &Tensor,
    gradients: (A, B),
) -> Result<Value>
where
    A: Fn(&Pair) -> CandleResult<Tensor> + Send + Sync + 'static,
    B: Fn(&Pair) -> CandleResult<Tensor> + Send + Sync + 'static,
{
    if !a.track_op() && !b.track_op() {
        return Ok(value.to_dtype(dtype)?.into());
    }
    let grad_fn = GradFn::new(&[a, b], move |operands, y, grad, sums| {
        let [a, b] = operands else { return Ok(()) };
        let (wide_a, wide_b) = (wide(a)?, wide(b)?);
        let pair = Pair { a: &wide_a, b: &wide_b, y: &wide(y)?, grad: &wide(grad)? };
        let gradient = |operand: &Tensor, gradient_of: &dyn Fn(&Pair) -> CandleResult<Tensor>| {
            sum_to(&gradient_of(&pair)?, operand.dims())?.to_dtype(operand.dtype())
        };
        if a.track_op() {
            sums.add(a, &gradient(a, &gradients.0)?)?;
        }
        if b.track_op() {
            sums.add(b, &gradient(b, &gradients.1)?)?;
        }
        Ok(())
    });
    Ok(Value { tensor: to_variable(value, dtype)?, grad_fn: Some(grad_fn) })
}

/// Sums a gradient over the axes that broadcasting added or repeated, so that the result has the shape `dims`. Returns
/// the gradient itself if it has that shape. `dims` must be broadcastable to the gradient's shape.
pub(super) fn sum_to(gradient: &Tensor, dims: &[usize]) -> CandleResult<Tensor> {
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
