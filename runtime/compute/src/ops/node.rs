//! The nodes of the autograd graph: tensors with their reserved memory, and the backward pass through them.
//!
//! The backward pass and the release of nodes are loops, not recursion, so that a long graph cannot overflow the stack.
//! The caller can stop the backward pass between two nodes.

use std::collections::HashSet;
use std::sync::Arc;

use candle_core::Tensor;

use super::graph::{GradFn, Gradients};
use super::{Cost, Meter, check, cost};
use crate::budget::Reservation;
use crate::error::{Error, Result, ensure};

/// A tensor, and, if it is in a graph, the nodes that it was computed from.
#[derive(Debug)]
pub struct Node {
    /// The tensor itself. Dropped before `operands`, whose memory it shares if it is a view.
    pub tensor: Tensor,
    /// The reservation for the elements, shared by all views of them.
    pub bytes: Arc<Reservation>,
    /// The reservation for all memory of the tensor besides its elements.
    _own: Reservation,
    /// The number of operations on the longest path from this tensor back to a node without operands.
    pub depth: u32,
    /// The cost of one backward pass through the operation that made this tensor.
    pub backward: Cost,
    grad_fn: Option<GradFn>,
    operands: Operands,
}

impl Node {
    /// Creates a node that no operation made: a tensor outside the graph, or a leaf of it. `bytes` is the reservation
    /// for its elements, `own` the one for all its other memory.
    #[must_use]
    pub fn new(tensor: Tensor, bytes: Arc<Reservation>, own: Reservation) -> Self {
        let operands = Operands(Vec::new());
        Self { tensor, bytes, _own: own, depth: 0, backward: Cost::default(), grad_fn: None, operands }
    }

    /// Connects the node to the operands from which its tensor was computed, and keeps them alive as long as it lives.
    /// Sets its depth to one more than that of the deepest operand. `grad_fn` passes a gradient to the operands, at the
    /// cost `backward`; `None` if the operation has no gradient.
    #[must_use]
    pub fn with_operands(self, operands: Vec<Arc<Self>>, grad_fn: Option<GradFn>, backward: Cost) -> Self {
        let depth = 1 + depth_of(&operands);
        Self { depth, backward, grad_fn, operands: Operands(operands), ..self }
    }

    /// Whether this tensor is a leaf of the graph: it gets a gradient and passes it to no other tensor.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.tensor.track_op() && self.grad_fn.is_none()
    }

    /// The number of direct operands.
    #[must_use]
    pub fn operand_count(&self) -> usize {
        self.operands.0.len()
    }

    /// The operands that a gradient is passed to.
    fn tracked(&self) -> impl Iterator<Item = &Self> {
        self.operands.0.iter().map(Arc::as_ref).filter(|operand| operand.tensor.track_op())
    }

    /// Lists this node and every node that a backward pass from it reaches, each before its operands. The order is
    /// always the same (a depth-first search, reversed), so that sums of several gradients have the same bits each
    /// time.
    #[must_use]
    pub fn order(&self) -> Vec<&Self> {
        let (mut order, mut seen) = (Vec::new(), HashSet::from([std::ptr::from_ref(self)]));
        let mut path = vec![(self, self.tracked())];
        while let Some((node, left)) = path.last_mut() {
            match left.find(|operand| seen.insert(std::ptr::from_ref(*operand))) {
                Some(operand) => path.push((operand, operand.tracked())),
                None => {
                    order.push(*node);
                    path.pop();
                }
            }
        }
        order.reverse();
        order
    }
}

/// Returns the depth of the deepest of these nodes, 0 for none.
#[must_use]
pub fn depth_of(nodes: &[Arc<Node>]) -> u32 {
    nodes.iter().map(|node| node.depth).max().unwrap_or(0)
}

/// Computes the gradients of a loss (one element) with respect to leaves, in the order of `leaves`; `None` for a leaf
/// that the loss does not depend on, and where a leaf is listed again. `order` is what [`Node::order`] of the loss
/// returned. If `order` is empty or the loss is in no graph, all gradients are `None`.
///
/// Gradients are outside the graph, in shape and type of their leaf. Reserves six times the bytes of the graph in
/// `budget` during the pass, and the temporaries of its largest operation. Charges no work: the caller must have
/// charged the sum of [`Node::backward`] over the graph. [`Meter::continue_gradient`] can stop the pass before each
/// operation.
///
/// # Errors
/// [`Error::Shape`] if the loss has more than one element, [`Error::Dtype`] if it is not floating-point, the error of
/// `budget` if the pass exceeds a memory or time limit, and failures of the device.
pub fn gradients(budget: &mut dyn Meter, order: &[&Node], leaves: &[&Tensor]) -> Result<Vec<Option<Tensor>>> {
    let Some(Node { tensor, .. }) = order.first() else { return Ok(vec![None; leaves.len()]) };
    check::expect_float(tensor)?;
    let several = || Error::shape(format!("a loss has one element, not the shape {:?}", tensor.dims()));
    ensure(tensor.elem_count() == 1, several)?;
    if !tensor.track_op() {
        return Ok(vec![None; leaves.len()]);
    }
    // Several nodes may stand for one leaf.
    let mut seen = HashSet::new();
    let counted = order.iter().map(|node| &node.tensor).filter(|tensor| seen.insert(tensor.id()));
    let bytes = counted.map(|tensor| tensor.elem_count() as u64 * tensor.dtype().size_in_bytes() as u64).sum();
    let largest = order.iter().map(|node| node.backward.scratch).max().unwrap_or(0);
    let _scratch = budget.charge(cost::gradient(bytes, order.len() as u64, largest))?;
    let mut sums = Gradients::default();
    sums.add(tensor, &tensor.ones_like()?)?;
    for node in order {
        let Some(grad_fn) = &node.grad_fn else { continue };
        let Some(gradient) = sums.take(&node.tensor) else { continue };
        budget.continue_gradient(&node.backward)?;
        grad_fn.apply(&node.tensor, &gradient, &mut sums)?;
    }
    Ok(leaves.iter().map(|leaf| sums.take(leaf)).collect())
}

/// The nodes from which a tensor was computed.
#[derive(Debug)]
struct Operands(Vec<Arc<Node>>);

impl Drop for Operands {
    /// Frees the nodes that nothing else holds, and the operands of those, in a loop instead of by recursion.
    fn drop(&mut self) {
        let mut waiting = std::mem::take(&mut self.0);
        while let Some(node) = waiting.pop() {
            if let Some(mut last) = Arc::into_inner(node) {
                waiting.append(&mut last.operands.0);
            }
        }
    }
}
