//! Gradients of our own in candle's graph, and the walk back on a stack that is deep enough.
//!
//! [`derive`] gives a value that was computed off the graph a place in it, with the gradient written
//! beside the operation. One operation is one node, whatever it computed inside; no temporaries stay alive.
//! candle walks a graph, and frees it, by recursion: both happen on a stack of their own.

use std::sync::{Mutex, PoisonError};

use candle_core::{CpuStorage, CustomOp1, CustomOp2, DType, Layout, Shape, Storage, Tensor, bail};

use super::{Admit, cost};
use crate::error::{Error, Result, ensure};

/// candle's own result, as its traits want it.
pub(super) type Raw<T> = candle_core::Result<T>;

/// Stack of a walk through a graph: candle needs well below 2 KiB a node, a graph has at most 60,000.
const STACK_BYTES: usize = 256 << 20;

/// Returns a contiguous tensor of the same numbers outside the autograd graph; f16 and bf16 are widened to f32.
pub(super) fn wide(tensor: &Tensor) -> Raw<Tensor> {
    let tensor = tensor.detach().contiguous()?;
    match tensor.dtype() {
        DType::F16 | DType::BF16 => tensor.to_dtype(DType::F32),
        _ => Ok(tensor),
    }
}

/// A value computed off the graph, which candle asks for once. A method's tensors are on the CPU, so there is no way for
/// another device.
struct Value(Mutex<Option<(CpuStorage, Shape)>>);

impl Value {
    /// Rounds the value to `dtype` and copies its numbers out of its storage. Fails unless it is on the CPU.
    fn new(value: &Tensor, dtype: DType) -> Raw<Self> {
        let value = value.to_dtype(dtype)?;
        let whole = value.is_contiguous() && value.layout().start_offset() == 0;
        let value = if whole { value } else { value.force_contiguous()? };
        let (storage, layout) = value.storage_and_layout();
        match &*storage {
            Storage::Cpu(storage) => Ok(Self(Mutex::new(Some((storage.clone(), layout.shape().clone()))))),
            _ => bail!("the value and the operand are on different devices"),
        }
    }

    /// Returns the value and its shape, and leaves nothing. Fails at the second call.
    fn take(&self) -> Raw<(CpuStorage, Shape)> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take().ok_or_else(|| candle_core::Error::Msg("a derived value was asked for twice".into()))
    }
}

struct Derived<F> {
    value: Value,
    pull: F,
}

impl<F: Fn(&Tensor, &Tensor, &Tensor) -> Raw<Tensor>> CustomOp1 for Derived<F> {
    fn name(&self) -> &'static str {
        "derived"
    }

    /// Returns the value that was computed before; the operand is not read. Fails at the second call.
    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Raw<(CpuStorage, Shape)> {
        self.value.take()
    }

    /// Returns the gradient of `x`, computed by `pull` in at least 32 bits and rounded to the type of `x`.
    fn bwd(&self, x: &Tensor, y: &Tensor, grad: &Tensor) -> Raw<Option<Tensor>> {
        let grad = (self.pull)(&wide(x)?, &wide(y)?, &wide(grad)?)?;
        Ok(Some(grad.to_dtype(x.dtype())?))
    }
}

/// Puts `value`, which was computed from `x` outside the autograd graph, into the graph as one node, rounded to
/// `dtype`.
///
/// `pull(x, y, grad)` returns the gradient of `x` from the operand, the result and the gradient of the result; all
/// three are outside the graph and in at least 32 bits. If `x` is not in a graph, neither is the result, and `pull` is
/// dropped.
pub(super) fn derive<F>(x: &Tensor, dtype: DType, value: &Tensor, pull: F) -> Result<Tensor>
where
    F: Fn(&Tensor, &Tensor, &Tensor) -> Raw<Tensor> + Send + Sync + 'static,
{
    if !x.track_op() {
        return Ok(value.to_dtype(dtype)?);
    }
    Ok(x.apply_op1(Derived { value: Value::new(value, dtype)?, pull })?)
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

struct DerivedPair<A, B> {
    value: Value,
    pull_a: A,
    pull_b: B,
}

impl<A, B> CustomOp2 for DerivedPair<A, B>
where
    A: Fn(&Pair) -> Raw<Tensor>,
    B: Fn(&Pair) -> Raw<Tensor>,
{
    fn name(&self) -> &'static str {
        "derived-pair"
    }

    /// Returns the value that was computed before; the operands are not read. Fails at the second call.
    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Raw<(CpuStorage, Shape)> {
        self.value.take()
    }

    /// Returns the gradients of `a` and `b`, computed in at least 32 bits, summed to the shape of the operand and
    /// rounded to its type. `None` for an operand that is not in a graph.
    fn bwd(&self, a: &Tensor, b: &Tensor, y: &Tensor, grad: &Tensor) -> Raw<(Option<Tensor>, Option<Tensor>)> {
        let (wide_a, wide_b) = (wide(a)?, wide(b)?);
        let pair = Pair { a: &wide_a, b: &wide_b, y: &wide(y)?, grad: &wide(grad)? };
        let gradient = |operand: &Tensor, pull: &dyn Fn(&Pair) -> Raw<Tensor>| {
            if !operand.track_op() {
                return Ok(None);
            }
            sum_to(&pull(&pair)?, operand.dims())?.to_dtype(operand.dtype()).map(Some)
        };
        Ok((gradient(a, &self.pull_a)?, gradient(b, &self.pull_b)?))
    }
}

/// Puts `value`, which was computed from `a` and `b` outside the autograd graph, into the graph as one node, rounded to
/// `dtype`. `pulls` are the gradients of `a` and of `b` in the shape of the result; they are summed back to the shapes
/// of broadcast operands. If neither operand is in a graph, neither is the result.
pub(super) fn derive_pair<A, B>(a: &Tensor, b: &Tensor, dtype: DType, value: &Tensor, pulls: (A, B)) -> Result<Tensor>
where
    A: Fn(&Pair) -> Raw<Tensor> + Send + Sync + 'static,
    B: Fn(&Pair) -> Raw<Tensor> + Send + Sync + 'static,
{
    if !a.track_op() && !b.track_op() {
        return Ok(value.to_dtype(dtype)?);
    }
    let op = DerivedPair { value: Value::new(value, dtype)?, pull_a: pulls.0, pull_b: pulls.1 };
    Ok(a.apply_op2(b, op)?)
}

/// Sums a gradient over the axes that broadcasting repeated, so that the result has the shape `dims`.
fn sum_to(gradient: &Tensor, dims: &[usize]) -> Raw<Tensor> {
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

/// Computes the gradients of a loss (one element) with respect to leaf variables, in the order of `leaves`; `None` for
/// a leaf that the loss does not depend on.
///
/// Gradients are outside the graph, in shape and type of their leaf. While it works, reserves six times the bytes of
/// the graph in `budget`. Charges no work: the caller sums [`super::Made::backward`] over the graph before. Runs on a
/// thread of its own with a deep stack.
///
/// # Errors
/// [`Error::Shape`] if the loss has more than one element, [`Error::Dtype`] if it is not floating-point,
/// what `budget` refuses, and failures of the device.
pub fn gradients(budget: &mut dyn Admit, loss: &Tensor, leaves: &[&Tensor]) -> Result<Vec<Option<Tensor>>> {
    super::check::float(loss)?;
    let several = || Error::shape(format!("a loss has one element, not the shape {:?}", loss.dims()));
    ensure(loss.elem_count() == 1, several)?;
    if !loss.track_op() {
        return Ok(vec![None; leaves.len()]);
    }
    let node_bytes = |node: &&Tensor| node.elem_count() as u64 * node.dtype().size_in_bytes() as u64;
    let (bytes, nodes) = on_deep_stack(|| {
        let nodes = loss.sorted_nodes();
        (nodes.iter().map(node_bytes).sum::<u64>(), nodes.len() as u64)
    })?;
    let _scratch = budget.admit(cost::gradient(bytes, nodes))?;
    on_deep_stack(|| {
        let mut store = loss.backward()?;
        leaves.iter().map(|leaf| store.remove(leaf).map(|gradient| Ok(gradient.detach())).transpose()).collect()
    })?
}

/// Runs `work` on a new thread whose stack is large enough to walk through the deepest graph allowed, and returns its
/// result.
///
/// # Errors
/// [`Error::Candle`] if no thread can be started or the work panics.
pub fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    let failed = |what: &str| Error::Candle(candle_core::Error::Msg(what.to_owned()));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("tunebox-gradient".into())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work);
        let thread = thread.map_err(|error| failed(&format!("no thread for the gradient: {error}")))?;
        thread.join().map_err(|_| failed("the gradient could not be computed"))
    })
}
