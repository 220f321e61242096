//! Tensors of a method as the nodes of their graph: what each one takes, and what a gradient through it costs.
//!
//! candle keeps a graph of its own inside the tensors and frees it by recursion. The nodes hold every tensor of that
//! graph, so that freeing it is a loop over the nodes, however long the graph is.

use std::collections::HashSet;
use std::sync::Arc;

use tunebox_compute::Tensor;
use tunebox_compute::budget::Reservation;
use tunebox_compute::ops::Cost;

/// A tensor of the method, and, if it is in a graph, the nodes that it was computed from.
#[derive(Debug)]
pub(crate) struct Node {
    /// The numbers. Freed before the operands are, which candle's graph refers to.
    pub(crate) tensor: Tensor,
    /// The reserved bytes of the numbers, shared by all views of them.
    pub(crate) bytes: Arc<Reservation>,
    /// What the tensor takes beside its numbers.
    _own: Reservation,
    /// The longest chain of operations below this tensor that a gradient would walk.
    pub(crate) depth: u32,
    /// What passing a gradient back through the operation that made this tensor costs.
    backward: Cost,
    operands: Operands,
}

impl Node {
    /// Joins a tensor with the reserved bytes of its numbers (`bytes`) and of all else that it takes (`own`). It is in no
    /// graph.
    pub(crate) fn new(tensor: Tensor, bytes: Arc<Reservation>, own: Reservation) -> Self {
        Self { tensor, bytes, _own: own, depth: 0, backward: Cost::default(), operands: Operands(Vec::new()) }
    }

    /// Puts the tensor into the graph of its operands, which live as long as it does. `backward` is what passing a
    /// gradient to them costs.
    pub(crate) fn with_operands(self, operands: Vec<Arc<Self>>, backward: Cost) -> Self {
        let depth = 1 + depth_of(&operands);
        Self { depth, backward, operands: Operands(operands), ..self }
    }

    /// Calls `visit` for this node and every one that its gradient reaches, each once, with the cost of passing the
    /// gradient on from there and the number of operands. Stops at the first error and returns it.
    pub(crate) fn visit<E>(&self, mut visit: impl FnMut(&Cost, usize) -> Result<(), E>) -> Result<(), E> {
        let (mut seen, mut waiting) = (HashSet::new(), vec![self]);
        while let Some(node) = waiting.pop() {
            visit(&node.backward, node.operands.0.len())?;
            let operands = node.operands.0.iter().filter(|operand| operand.tensor.track_op());
            waiting.extend(operands.map(Arc::as_ref).filter(|operand| seen.insert(std::ptr::from_ref(*operand))));
        }
        Ok(())
    }
}

/// Returns the depth of the deepest of these nodes, 0 for none.
pub(crate) fn depth_of(nodes: &[Arc<Node>]) -> u32 {
    nodes.iter().map(|node| node.depth).max().unwrap_or(0)
}

/// The nodes that a tensor was computed from.
#[derive(Debug)]
struct Operands(Vec<Arc<Node>>);

impl Drop for Operands {
    /// Frees the nodes that nothing else holds, and those behind them, one after another instead of by recursion.
    fn drop(&mut self) {
        let mut waiting = std::mem::take(&mut self.0);
        while let Some(node) = waiting.pop() {
            if let Some(mut last) = Arc::into_inner(node) {
                waiting.append(&mut last.operands.0);
            }
        }
    }
}
