//! Sequences of tensor operations, as a hostile method would ask for them, against a pure model.
//!
//! An input is a list of requests. The model (`model`) says from shapes, types and arguments alone whether
//! a request must be refused and what its result looks like; `values` recomputes small results by plain
//! loops. The budget is the one that the sandbox has: a limit of bytes and a count of work.

mod ask;
mod model;
mod perform;
mod request;
mod values;

use std::sync::Arc;

use arbitrary::Unstructured;
use tunebox_compute::budget::{Budget, Reservation};
use tunebox_compute::ops::{self, Cost, Meter, Node, Output, depth_of};
use tunebox_compute::{DType, Error, Tensor};

use self::model::{Answer, TensorInfo};
use self::request::Request;
use crate::Target;

pub(super) const TARGET: Target = Target { name: "operations", run, longest: 1 << 10, quick: 3_000 };

/// Requests in one input.
const REQUESTS: usize = 200;
/// Tensors that are held at once.
const HELD: usize = 24;
/// The longest chain that a gradient may walk, as in a session.
const DEPTH: u32 = 4_096;

/// A tensor that the input may use.
#[derive(Clone)]
struct Slot {
    node: Arc<Node>,
    info: TensorInfo,
}

/// The accounts of a session, with what was last asked of them.
struct TestBudget {
    bytes_held: Budget,
    work: u64,
    spent: u64,
    asked: Cost,
}

impl Meter for TestBudget {
    fn charge(&mut self, cost: Cost) -> tunebox_compute::Result<Reservation> {
        self.asked = cost;
        self.spent = self.spent.saturating_add(cost.work);
        if self.spent > self.work {
            return Err(Error::OutOfWork { work: cost.work, limit: self.work });
        }
        self.bytes_held.reserve(cost.bytes.saturating_add(cost.scratch))
    }
}

/// Everything that an input plays with.
struct Table {
    slots: Vec<Slot>,
    budget: TestBudget,
}

fn run(input: &[u8]) {
    let mut bytes = Unstructured::new(input);
    let limit = 1_u64 << (12 + bytes.int_in_range(0..=10).unwrap_or(0));
    let work = 1_u64 << (10 + bytes.int_in_range(0..=16).unwrap_or(0));
    let budget = TestBudget { bytes_held: Budget::new(limit), work, spent: 0, asked: Cost::default() };
    let mut table = Table { slots: Vec::new(), budget };
    for _ in 0..REQUESTS {
        if bytes.is_empty() {
            break;
        }
        let Ok(request) = ask::request(&mut bytes, table.slots.len()) else { break };
        table.execute(request);
        let bytes_held = &table.budget.bytes_held;
        assert!(bytes_held.held() <= limit && bytes_held.peak() <= limit, "{} of {limit} bytes", bytes_held.peak());
    }
    let Table { slots, budget } = table;
    drop(slots);
    assert_eq!(budget.bytes_held.held(), 0, "bytes are held that nothing uses");
}

impl Table {
    /// Does what a request asks for and holds it against the model.
    fn execute(&mut self, request: Request) {
        match request {
            Request::Drop(place) => drop(self.slots.remove(place)),
            Request::Leaf(place) => self.leaf(place),
            Request::Gradient(loss, leaf) => self.gradient(loss, leaf),
            Request::Chain(number, place, times) => {
                // Each link takes the place of the one before, so that only the graph grows.
                let mut place = place;
                for _ in 0..u32::from(times) % DEPTH {
                    let before = self.slots.len();
                    self.operation(&Request::Elementwise(number, place));
                    if self.slots.len() == before {
                        break;
                    }
                    place = self.slots.len() - 1;
                    if place > 0 && place == before && before >= HELD {
                        drop(self.slots.remove(0));
                        place -= 1;
                    }
                }
            }
            request => self.operation(&request),
        }
        let many = self.slots.len().saturating_sub(HELD);
        drop(self.slots.drain(..many));
    }

    fn operation(&mut self, request: &Request) {
        let looks: Vec<TensorInfo> = self.slots.iter().map(|slot| slot.info.clone()).collect();
        let tensors: Vec<Tensor> = self.slots.iter().map(|slot| slot.node.tensor.clone()).collect();
        let answer = model::answer(request, &looks);
        let held = self.budget.bytes_held.held();
        let outcome = perform::perform(request, &tensors, &mut self.budget);
        match (answer, outcome) {
            (Answer::Refused, Err(error)) => assert!(!budget(&error), "{request:?}: {error} for a wrong argument"),
            (Answer::RefusedLate | Answer::Perhaps(..), Err(error)) => {
                assert!(budget(&error) || matches!(error, Error::Argument(_)), "{request:?}: {error}");
            }
            (Answer::Tensors(..), Err(error)) => assert!(self.poor(&error, held), "{request:?} of {looks:?}: {error}"),
            (Answer::Tensors(count, dims, dtype), Ok(output)) => {
                assert_eq!(count, output.len(), "{request:?}");
                output.into_iter().for_each(|output| self.keep(request, &tensors, output, &dims, dtype));
                return;
            }
            (Answer::Perhaps(dims, dtype), Ok(output)) => {
                output.into_iter().for_each(|output| self.keep(request, &tensors, output, &dims, dtype));
                return;
            }
            (answer, outcome) => panic!("{request:?} of {looks:?} gave {outcome:?}, not {answer:?}"),
        }
        assert_eq!(self.budget.bytes_held.held(), held, "{request:?} was refused and took bytes");
    }

    /// Whether a refusal by the budget was right.
    fn poor(&self, error: &Error, held: u64) -> bool {
        let TestBudget { bytes_held, work, spent, asked, .. } = &self.budget;
        match error {
            Error::OutOfMemory { .. } => {
                asked.bytes.saturating_add(asked.scratch).saturating_add(held) > bytes_held.limit()
            }
            Error::OutOfWork { .. } => spent > work,
            _ => false,
        }
    }

    /// Checks what was made, and puts it on the table.
    fn keep(&mut self, request: &Request, tensors: &[Tensor], output: Output, dims: &[u64], dtype: DType) {
        let found: Vec<u64> = output.tensor.dims().iter().map(|length| *length as u64).collect();
        assert_eq!((found.as_slice(), output.tensor.dtype()), (dims, dtype), "{request:?}");
        let bytes = output.tensor.elem_count() as u64 * dtype.size_in_bytes() as u64;
        let paid = output.reservation.as_ref().is_none_or(|paid| paid.bytes() >= bytes);
        assert!(paid, "{request:?}: {bytes} bytes for nothing");
        values::compare(request, tensors, &output.tensor);
        let operands: Vec<Arc<Node>> =
            self.slots.iter().filter(|slot| is_operand(&output, slot)).map(node_of).collect();
        if output.grad_fn.is_some() && depth_of(&operands) >= DEPTH {
            return;
        }
        let info = TensorInfo { dims: dims.to_vec(), dtype, largest: largest(&output.tensor) };
        let paid = output.reservation.unwrap_or_else(nothing);
        let mut node = Node::new(output.tensor, Arc::new(paid), nothing());
        if output.grad_fn.is_some() {
            node = node.with_operands(operands, output.grad_fn, output.backward);
        }
        self.slots.push(Slot { node: Arc::new(node), info });
    }

    /// A variable with the numbers of a small tensor.
    fn leaf(&mut self, place: usize) {
        let Slot { node, info } = self.slots[place].clone();
        if node.tensor.elem_count() > 1_024 || !node.tensor.dtype().is_float() {
            return;
        }
        let copy = node.tensor.detach().force_contiguous().and_then(|copy| candle_core::Var::from_tensor(&copy));
        let leaf = copy.unwrap_or_else(|error| panic!("a leaf: {error}")).into_inner();
        self.slots.push(Slot { node: Arc::new(Node::new(leaf, Arc::new(nothing()), nothing())), info });
    }

    /// The walk back from a loss: a gradient of the leaf's shape, none, or a refusal that the model foresees.
    fn gradient(&mut self, loss: usize, leaf: usize) {
        let looks: Vec<TensorInfo> = self.slots.iter().map(|slot| slot.info.clone()).collect();
        let answer = model::answer(&Request::Gradient(loss, leaf), &looks);
        let (loss, leaf) = (Arc::clone(&self.slots[loss].node), self.slots[leaf].node.tensor.clone());
        let held = self.budget.bytes_held.held();
        match (answer, ops::gradients(&mut self.budget, &loss.order(), &[&leaf])) {
            (Answer::Refused, Err(error)) => assert!(!budget(&error), "{error}"),
            (Answer::Nothing, Err(error)) => assert!(self.poor(&error, held), "{error}"),
            (Answer::Nothing, Ok(found)) => {
                assert_eq!(found.len(), 1);
                for gradient in found.into_iter().flatten() {
                    assert_eq!((gradient.dims(), gradient.dtype()), (leaf.dims(), leaf.dtype()));
                    assert!(!gradient.track_op(), "a gradient has a graph");
                }
            }
            (answer, outcome) => panic!("{outcome:?}, not {answer:?}"),
        }
        assert_eq!(self.budget.bytes_held.held(), held, "the walk back kept bytes");
    }
}

/// Whether a result refers to the tensor of a slot.
fn is_operand(output: &Output, slot: &Slot) -> bool {
    let mut operands = output.grad_fn.iter().flat_map(|grad_fn| grad_fn.operands());
    operands.any(|operand| operand.id() == slot.node.tensor.id())
}

fn node_of(slot: &Slot) -> Arc<Node> {
    Arc::clone(&slot.node)
}

/// No bytes.
fn nothing() -> Reservation {
    Budget::new(0).reserve(0).unwrap_or_else(|error| panic!("{error}"))
}

fn budget(error: &Error) -> bool {
    matches!(error, Error::OutOfMemory { .. } | Error::OutOfWork { .. })
}

/// The largest entry of a small tensor of indices.
fn largest(x: &Tensor) -> Option<u64> {
    if x.dtype() != DType::U32 || x.elem_count() > 4_096 {
        return None;
    }
    let numbers = x.contiguous().ok()?.flatten_all().ok()?.to_vec1::<u32>().ok()?;
    numbers.into_iter().max().map(u64::from)
}
