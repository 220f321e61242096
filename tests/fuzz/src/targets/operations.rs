//! Sequences of tensor operations, as a hostile method would ask for them, against a pure model.
//!
//! An input is a list of wishes. The model (`model`) says from shapes, types and arguments alone whether
//! a wish must be refused and what its result looks like; `values` recomputes small results by plain
//! loops. The purse is the one that the sandbox has: a ledger of bytes and a count of work.

mod ask;
mod model;
mod perform;
mod values;
mod wish;

use std::sync::Arc;

use arbitrary::Unstructured;
use tunebox_compute::budget::{Budget, Reservation};
use tunebox_compute::ops::{self, Admit, Cost, Made};
use tunebox_compute::{DType, Error, Tensor};

use self::model::{Answer, Look};
use self::wish::Wish;
use crate::Target;

pub(super) const TARGET: Target = Target { name: "operations", run, words: &[], longest: 1 << 10, quick: 3_000 };

/// Wishes of one input.
const WISHES: usize = 200;
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
    look: Look,
    depth: u32,
    /// What pays for it: views share it.
    _paid: Option<Arc<Reservation>>,
}

/// The accounts of a session, with what was last asked of them.
struct Purse {
    ledger: Budget,
    work: u64,
    spent: u64,
    asked: Cost,
}

impl Admit for Purse {
    fn admit(&mut self, cost: Cost) -> tunebox_compute::Result<Reservation> {
        self.asked = cost;
        self.spent = self.spent.saturating_add(cost.work);
        if self.spent > self.work {
            return Err(Error::OutOfWork { work: cost.work, limit: self.work });
        }
        self.ledger.reserve(cost.bytes.saturating_add(cost.scratch))
    }
}

/// Everything that an input plays with.
struct Table {
    slots: Vec<Slot>,
    purse: Purse,
    /// What graphs hold beyond the handles: paid for until the end.
    graphs: Vec<Arc<Reservation>>,
}

fn run(input: &[u8]) {
    let mut bytes = Unstructured::new(input);
    let limit = 1_u64 << (12 + bytes.int_in_range(0..=10).unwrap_or(0));
    let work = 1_u64 << (10 + bytes.int_in_range(0..=16).unwrap_or(0));
    let purse = Purse { ledger: Budget::new(limit), work, spent: 0, asked: Cost::default() };
    let mut table = Table { slots: Vec::new(), purse, graphs: Vec::new() };
    for _ in 0..WISHES {
        if bytes.is_empty() {
            break;
        }
        let Ok(wish) = ask::wish(&mut bytes, table.slots.len()) else { break };
        table.grant(wish);
        let ledger = &table.purse.ledger;
        assert!(ledger.held() <= limit && ledger.peak() <= limit, "{} of {limit} bytes", ledger.peak());
    }
    let Table { slots, purse, graphs } = table;
    // A long graph is dropped by recursion: on the stack that the runtime drops it on.
    if slots.iter().any(|slot| slot.depth > SHALLOW) {
        assert!(ops::on_deep_stack(move || drop(slots)).is_ok(), "dropping a graph failed");
    } else {
        drop(slots);
    }
    drop(graphs);
    assert_eq!(purse.ledger.held(), 0, "bytes are held by nobody");
}

impl Table {
    /// Does what a wish asks for and holds it against the model.
    fn grant(&mut self, wish: Wish) {
        match wish {
            Wish::Drop(place) => drop(self.slots.remove(place)),
            Wish::Leaf(place) => self.leaf(place),
            Wish::Gradient(loss, leaf) => self.gradient(loss, leaf),
            Wish::Chain(number, place, times) => {
                // Each link takes the place of the one before, so that only the graph grows.
                let mut place = place;
                for _ in 0..u32::from(times) % DEPTH {
                    let before = self.slots.len();
                    self.operation(&Wish::Elementwise(number, place));
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
            wish => self.operation(&wish),
        }
        let many = self.slots.len().saturating_sub(HELD);
        drop(self.slots.drain(..many));
    }

    fn operation(&mut self, wish: &Wish) {
        let looks: Vec<Look> = self.slots.iter().map(|slot| slot.look.clone()).collect();
        let tensors: Vec<Tensor> = self.slots.iter().map(|slot| slot.tensor.clone()).collect();
        let answer = model::answer(wish, &looks);
        let held = self.purse.ledger.held();
        let outcome = perform::perform(wish, &tensors, &mut self.purse);
        match (answer, outcome) {
            (Answer::Refused, Err(error)) => assert!(!budget(&error), "{wish:?}: {error} for a wrong argument"),
            (Answer::RefusedLate | Answer::Perhaps(..), Err(error)) => {
                assert!(budget(&error) || matches!(error, Error::Argument(_)), "{wish:?}: {error}");
            }
            (Answer::Made(..), Err(error)) => assert!(self.poor(&error, held), "{wish:?} of {looks:?}: {error}"),
            (Answer::Made(count, dims, dtype), Ok(made)) => {
                assert_eq!(count, made.len(), "{wish:?}");
                made.into_iter().for_each(|made| self.keep(wish, &tensors, made, &dims, dtype));
                return;
            }
            (Answer::Perhaps(dims, dtype), Ok(made)) => {
                made.into_iter().for_each(|made| self.keep(wish, &tensors, made, &dims, dtype));
                return;
            }
            (answer, outcome) => panic!("{wish:?} of {looks:?} gave {outcome:?}, not {answer:?}"),
        }
        assert_eq!(self.purse.ledger.held(), held, "{wish:?} was refused and took bytes");
    }

    /// Whether a refusal by the budget was right.
    fn poor(&self, error: &Error, held: u64) -> bool {
        let Purse { ledger, work, spent, asked, .. } = &self.purse;
        match error {
            Error::OutOfMemory { .. } => {
                asked.bytes.saturating_add(asked.scratch).saturating_add(held) > ledger.limit()
            }
            Error::OutOfWork { .. } => spent > work,
            _ => false,
        }
    }

    /// Checks what was made, and puts it on the table.
    fn keep(&mut self, wish: &Wish, tensors: &[Tensor], made: Made, dims: &[u64], dtype: DType) {
        let found: Vec<u64> = made.tensor.dims().iter().map(|length| *length as u64).collect();
        assert_eq!((found.as_slice(), made.tensor.dtype()), (dims, dtype), "{wish:?}");
        let bytes = made.tensor.elem_count() as u64 * dtype.size_in_bytes() as u64;
        let paid = made.reservation.map(Arc::new);
        assert!(paid.as_ref().is_none_or(|paid| paid.bytes() >= bytes), "{wish:?}: {bytes} bytes for nothing");
        values::compare(wish, tensors, &made.tensor);
        let tracked = made.tensor.track_op();
        let depth = if tracked { 1 + self.slots.iter().map(|slot| slot.depth).max().unwrap_or(0) } else { 0 };
        if depth > DEPTH {
            return;
        }
        if tracked {
            self.graphs.extend(paid.clone());
        }
        let largest = largest(&made.tensor);
        let look = Look { dims: dims.to_vec(), dtype, largest };
        self.slots.push(Slot { tensor: made.tensor, look, depth, _paid: paid });
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
        let looks: Vec<Look> = self.slots.iter().map(|slot| slot.look.clone()).collect();
        let answer = model::answer(&Wish::Gradient(loss, leaf), &looks);
        let (loss, leaf) = (self.slots[loss].tensor.clone(), self.slots[leaf].tensor.clone());
        let held = self.purse.ledger.held();
        match (answer, ops::gradients(&mut self.purse, &loss, &[&leaf])) {
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
        assert_eq!(self.purse.ledger.held(), held, "the walk back kept bytes");
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
