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
use tunebox_compute::ops::{self, Admit, Cost, Made};
use tunebox_compute::{DType, Error, Tensor};

use self::model::{Answer, TensorInfo};
use self::request::Request;
use crate::Target;

pub(super) const TARGET: Target = Target { name: "operations", run, words: &[], longest: 1 << 10, quick: 3_000 };

/// Requests in one input.
const REQUESTS: usize = 200;
/// Tensors that are held at once.
const HELD: usize = 24;
/// The longest chain that a gradient may walk, as in a session.
const DEPTH: u32 = 4_096;

/// The longest chain that is dropped on the stack at hand: a thread for each input would cost more than the input.
const SHALLOW: u32 = 256;

/// A tensor that the input may use.
#[derive(Clone)]
struct Slot {
    tensor: Tensor,
    info: TensorInfo,
    depth: u32,
    /// What pays for it: views share it.
    _paid: Option<Arc<Reservation>>,
}

/// The accounts of a session, with what was last asked of them.
struct TestBudget {
    bytes_held: Budget,
    work: u64,
    spent: u64,
    asked: Cost,
}

impl Admit for TestBudget {
    fn admit(&mut self, cost: Cost) -> tunebox_compute::Result<Reservation> {
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
    /// What graphs hold beyond the handles: paid for until the end.
    graphs: Vec<Arc<Reservation>>,
}

fn run(input: &[u8]) {
    let mut bytes = Unstructured::new(input);
    let limit = 1_u64 << (12 + bytes.int_in_range(0..=10).unwrap_or(0));
    let work = 1_u64 << (10 + bytes.int_in_range(0..=16).unwrap_or(0));
    let budget = TestBudget { bytes_held: Budget::new(limit), work, spent: 0, asked: Cost::default() };
    let mut table = Table { slots: Vec::new(), budget, graphs: Vec::new() };
    for _ in 0..REQUESTS {
        if bytes.is_empty() {
            break;
        }
        let Ok(request) = ask::request(&mut bytes, table.slots.len()) else { break };
        table.execute(request);
        let bytes_held = &table.budget.bytes_held;
        assert!(bytes_held.held() <= limit && bytes_held.peak() <= limit, "{} of {limit} bytes", bytes_held.peak());
    }
    let Table { slots, budget, graphs } = table;
    // A long graph is dropped by recursion: on the stack that the runtime drops it on.
    if slots.iter().any(|slot| slot.depth > SHALLOW) {
        assert!(ops::on_deep_stack(move || drop(slots)).is_ok(), "dropping a graph failed");
    } else {
        drop(slots);
    }
    drop(graphs);
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
        let tensors: Vec<Tensor> = self.slots.iter().map(|slot| slot.tensor.clone()).collect();
        let answer = model::answer(request, &looks);
        let held = self.budget.bytes_held.held();
        let outcome = perform::perform(request, &tensors, &mut self.budget);
        match (answer, outcome) {
            (Answer::Refused, Err(error)) => assert!(!budget(&error), "{request:?}: {error} for a wrong argument"),
            (Answer::RefusedLate | Answer::Perhaps(..), Err(error)) => {
                assert!(budget(&error) || matches!(error, Error::Argument(_)), "{request:?}: {error}");
            }
            (Answer::Made(..), Err(error)) => assert!(self.poor(&error, held), "{request:?} of {looks:?}: {error}"),
            (Answer::Made(count, dims, dtype), Ok(made)) => {
                assert_eq!(count, made.len(), "{request:?}");
                made.into_iter().for_each(|made| self.keep(request, &tensors, made, &dims, dtype));
                return;
            }
            (Answer::Perhaps(dims, dtype), Ok(made)) => {
                made.into_iter().for_each(|made| self.keep(request, &tensors, made, &dims, dtype));
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
    fn keep(&mut self, request: &Request, tensors: &[Tensor], made: Made, dims: &[u64], dtype: DType) {
        let found: Vec<u64> = made.tensor.dims().iter().map(|length| *length as u64).collect();
        assert_eq!((found.as_slice(), made.tensor.dtype()), (dims, dtype), "{request:?}");
        let bytes = made.tensor.elem_count() as u64 * dtype.size_in_bytes() as u64;
        let paid = made.reservation.map(Arc::new);
        assert!(paid.as_ref().is_none_or(|paid| paid.bytes() >= bytes), "{request:?}: {bytes} bytes for nothing");
        values::compare(request, tensors, &made.tensor);
        let tracked = made.tensor.track_op();
        let depth = if tracked { 1 + self.slots.iter().map(|slot| slot.depth).max().unwrap_or(0) } else { 0 };
        if depth > DEPTH {
            return;
        }
        if tracked {
            self.graphs.extend(paid.clone());
        }
        let largest = largest(&made.tensor);
        let info = TensorInfo { dims: dims.to_vec(), dtype, largest };
        self.slots.push(Slot { tensor: made.tensor, info, depth, _paid: paid });
    }

    /// A variable with the numbers of a small tensor.
    fn leaf(&mut self, place: usize) {
        let slot = self.slots[place].clone();
        if slot.tensor.elem_count() > 1_024 || !slot.tensor.dtype().is_float() {
            return;
        }
        let copy = slot.tensor.detach().force_contiguous().and_then(|copy| candle_core::Var::from_tensor(&copy));
        let leaf = copy.unwrap_or_else(|error| panic!("a leaf: {error}")).into_inner();
        self.slots.push(Slot { tensor: leaf, depth: 0, ..slot });
    }

    /// The walk back from a loss: a gradient of the leaf's shape, none, or a refusal that the model foresees.
    fn gradient(&mut self, loss: usize, leaf: usize) {
        let looks: Vec<TensorInfo> = self.slots.iter().map(|slot| slot.info.clone()).collect();
        let answer = model::answer(&Request::Gradient(loss, leaf), &looks);
        let (loss, leaf) = (self.slots[loss].tensor.clone(), self.slots[leaf].tensor.clone());
        let held = self.budget.bytes_held.held();
        match (answer, ops::gradients(&mut self.budget, &loss, &[&leaf])) {
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
