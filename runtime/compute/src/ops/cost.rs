//! The cost of operations: the table of formulas, and the estimate that each operation makes before it computes.
//!
//! Costs count units of work, not time, so that a limit means the same on every machine and in every version of the
//! tensor library. A change of a number in the table raises [`VERSION`].

use candle_core::{DType, Tensor};

use super::graph::Value;
use super::{Meter, Output, check};
use crate::budget::Reservation;
use crate::error::Result;

/// The version of the cost table. With another version, the same limits may stop a run at another operation.
pub const VERSION: u32 = 2;

/// A kind of operation: all of one kind are charged by one formula.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Views, which share the memory of their operand.
    #[default]
    View,
    /// New tensors without operands: constants, lists, random numbers.
    Create,
    /// Functions of each number, such as `exp`.
    Elementwise,
    /// Functions of each number and a scalar argument, such as `scale`.
    Scalar,
    /// Conversion to another element type.
    Cast,
    /// Tests whether numbers are finite.
    Finite,
    /// Arithmetic on two tensors, broadcast.
    Pairwise,
    /// Selection between two tensors by a condition.
    Where,
    /// Comparisons and logic.
    Compare,
    /// Products of matrices and vectors.
    Product,
    /// Sums, means, norms and variances along an axis.
    Reduce,
    /// The largest or smallest number along an axis, or its index.
    Extreme,
    /// Reductions of truth values along an axis: `any`, `all`, `count`.
    Truth,
    /// Sums and means under a mask.
    Masked,
    /// Running sums and softmax.
    Scan,
    /// Sorted numbers.
    Sort,
    /// Sorted indices, and quantiles.
    Order,
    /// Reads at the indices in another tensor.
    Gather,
    /// Additions at the indices in another tensor.
    Scatter,
    /// Several tensors joined into one.
    Join,
    /// Numbers copied to other positions: `roll`, `flip`, `reshape` with a copy.
    Move,
    /// The backward pass through a graph.
    Gradient,
}

/// How operations of one kind are charged. Every number read from an operand or written to the result is one unit of
/// work. Each backward pass through the operation is charged twice its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formula {
    /// Temporaries as large as the operands and the result together; at most this many are alive at once.
    pub copies: u64,
    /// Further units of work for each unit of `measure`.
    pub work: u64,
    /// Further numbers in temporaries for each unit of `measure`.
    pub scratch: u64,
    /// The quantity that `work` and `scratch` are multiplied by, such as multiply-adds; empty if there is none.
    pub measure: &'static str,
}

/// A formula that charges only the numbers read and written. At most `copies` temporaries of that size are alive at
/// once.
const fn plain(copies: u64) -> Formula {
    Formula { copies, work: 0, scratch: 0, measure: "" }
}

/// The formula of sorting and running sums: besides the numbers read and written, charges each number once for each
/// doubling from 1 to the length of its lane, about log₂ of that length. At most `copies` temporaries are alive at
/// once.
const fn sorted(copies: u64) -> Formula {
    Formula { copies, work: 1, scratch: 0, measure: "numbers times the doublings of a lane" }
}

impl Kind {
    /// The formula by which operations of this kind are charged.
    #[must_use]
    pub const fn formula(self) -> Formula {
        match self {
            Self::View => plain(0),
            Self::Create | Self::Compare | Self::Gather | Self::Join => plain(2),
            Self::Cast | Self::Truth | Self::Scatter => plain(3),
            Self::Scalar | Self::Finite | Self::Pairwise | Self::Where => plain(4),
            Self::Elementwise | Self::Reduce => plain(5),
            Self::Gradient => plain(6),
            Self::Extreme => plain(7),
            Self::Move => plain(2),
            Self::Product => Formula { copies: 2, work: 1, scratch: 0, measure: "multiply-adds" },
            Self::Masked => Formula { copies: 2, work: 2, scratch: 6, measure: "numbers of the common shape" },
            Self::Scan => sorted(4),
            Self::Sort => sorted(6),
            Self::Order => sorted(5),
        }
    }
}

/// What an operation will need, computed before anything is allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// The kind of operation whose formula gave this cost.
    pub kind: Kind,
    /// Bytes that stay reserved as long as the result, or a graph through it, lives.
    pub bytes: u64,
    /// Bytes of temporaries, free again when the operation returns.
    pub scratch: u64,
    /// Units of work: the numbers read and written, and what the formula adds, such as multiply-adds.
    pub work: u64,
    /// How much of the work is not multiply-adds.
    pub numbers: u64,
}

impl Cost {
    /// The cost of a backward pass through an operation that cost `self`: twice the work, as many temporaries, and no
    /// bytes that stay reserved.
    fn backward(self) -> Self {
        let (work, numbers) = (self.work.saturating_mul(2), self.numbers.saturating_mul(2));
        Self { kind: self.kind, work, numbers, scratch: self.scratch, bytes: 0 }
    }

    /// Returns the seconds that the work takes on a slow machine. Time limits are checked against this before an
    /// operation begins, because a running operation cannot be stopped.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let number = match self.kind {
            Kind::Create | Kind::Elementwise | Kind::Reduce | Kind::Extreme => SLOW_NUMBER_SECONDS,
            Kind::Gather | Kind::Scatter | Kind::Sort | Kind::Order => SLOW_NUMBER_SECONDS,
            _ => NUMBER_SECONDS,
        };
        self.numbers as f64 * number + self.work.saturating_sub(self.numbers) as f64 * MULTIPLY_ADD_SECONDS
    }
}

// The three rates are above what was measured of tensors of four million numbers on two cores of a server that other
// processes used at the same time: by a factor of 1.2 above the slowest operation, and of 50 above the fastest.

/// Seconds per multiply-add of a matrix product; 0.06 to 0.11 ns were measured in `f32` and `bf16`, up to 0.18 ns in
/// `f64`.
const MULTIPLY_ADD_SECONDS: f64 = 0.5e-9;

/// Seconds per number of an operation that reads and writes memory in order; 1 to 43 ns were measured in `f32` and
/// `bf16`, up to 12 ns of processor time in `f64`.
const NUMBER_SECONDS: f64 = 50e-9;

/// Seconds per number that is drawn, sorted, read at an index or reduced; 10 to 79 ns were measured in `f32` and
/// `bf16`, 151 ns for normal numbers, up to 64 ns of processor time in `f64`.
const SLOW_NUMBER_SECONDS: f64 = 200e-9;

/// The parts of a cost estimate: numbers read and written, temporaries, and bytes that the autograd graph keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    kind: Kind,
    /// Elements of the result.
    elements: u64,
    /// The element type of the result.
    dtype: DType,
    /// Elements of all operands together.
    inputs: u64,
    /// Units of the formula's `measure`.
    measure: u64,
    /// Elements of temporaries that the formula does not include.
    scratch: u64,
    /// Whether an operand is in the autograd graph.
    tracked: bool,
    /// Bytes that the graph keeps besides operands and result.
    saved: u64,
}

impl Estimate {
    /// Begins the estimate of an operation that makes a result of shape `dims` and type `dtype` from `operands`. The
    /// operation has a gradient if an operand is in the autograd graph.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for a shape that is not allowed.
    pub(super) fn new(kind: Kind, dims: &[usize], dtype: DType, operands: &[&Tensor]) -> Result<Self> {
        let inputs = operands.iter().map(|operand| operand.elem_count() as u64).sum();
        let tracked = operands.iter().any(|operand| operand.track_op());
        let elements = check::elements(dims)?;
        Ok(Self { kind, elements, dtype, inputs, measure: 0, scratch: 0, tracked, saved: 0 })
    }

    /// Sets the number of units of the `measure` of the kind's [`Formula`], such as multiply-adds.
    pub(super) fn measured(mut self, measure: u64) -> Self {
        self.measure = measure;
        self
    }

    /// Sets the number of elements in temporaries that the formula does not include, as when operands are repeated to a
    /// common shape.
    pub(super) fn scratch(mut self, elements: u64) -> Self {
        self.scratch = elements;
        self
    }

    /// Sets the bytes that the autograd graph keeps for the backward pass besides the operands and the result. They
    /// count only if an operand is in the graph.
    pub(super) fn saved(mut self, bytes: u64) -> Self {
        self.saved = bytes;
        self
    }

    /// Computes the cost by the formula of the kind. The bytes are those of the result, plus the saved ones if an
    /// operand is in the autograd graph. Elements of temporaries count as at least 4 bytes each. Results that overflow
    /// are clamped to the largest `u64`.
    fn cost(&self) -> Cost {
        let formula = self.kind.formula();
        let saved = if self.tracked { self.saved } else { 0 };
        let bytes = self.elements.saturating_mul(self.dtype.size_in_bytes() as u64).saturating_add(saved);
        let touched = self.elements.saturating_add(self.inputs);
        let wide = self.dtype.size_in_bytes().max(4) as u64;
        let temporaries = touched
            .saturating_mul(formula.copies)
            .saturating_add(self.measure.saturating_mul(formula.scratch))
            .saturating_add(self.scratch);
        let work = touched.saturating_add(self.measure.saturating_mul(formula.work));
        Cost {
            kind: self.kind,
            bytes,
            scratch: temporaries.saturating_mul(wide),
            work,
            numbers: if self.kind == Kind::Product { touched } else { work },
        }
    }

    /// Charges the estimated cost to `budget`, runs `make`, and then releases the bytes of temporaries. If `budget`
    /// rejects the cost, returns its error without running `make`. If `make` fails, releases all bytes and returns that
    /// error. The output's backward cost is zero if no operand is in the autograd graph.
    pub(super) fn run_within_budget<V: Into<Value>>(
        self,
        budget: &mut dyn Meter,
        make: impl FnOnce() -> Result<V>,
    ) -> Result<Output> {
        let cost = self.cost();
        let reservation: Reservation = budget.charge(cost)?;
        let Value { tensor, grad_fn } = make()?.into();
        let backward = if self.tracked { cost.backward() } else { Cost::default() };
        Ok(Output { tensor, reservation: Some(reservation.shrunk_to(cost.bytes)), backward, grad_fn })
    }
}

/// The cost of a backward pass through a view: four units of work for each element, twice those of reading and writing
/// it. Zero if the view is in no graph.
pub(super) fn backward_of_view(view: &Tensor) -> Cost {
    if !view.track_op() {
        return Cost::default();
    }
    let work = 2 * view.elem_count() as u64;
    Cost { work, numbers: work, ..Cost::default() }.backward()
}

/// Estimated bytes of a tensor besides its elements: shape, type and links in the graph.
const TENSOR_BYTES: u64 = 512;

/// The cost of a backward pass over a graph of `nodes` tensors whose elements take `bytes` bytes: its temporaries only.
/// `largest` is the most bytes of temporaries of the backward pass through one operation, which can exceed `bytes`
/// where a result is smaller than the operands. The work is charged separately, from [`Output::backward`] of each
/// operation.
pub(super) fn gradient(bytes: u64, nodes: u64, largest: u64) -> Cost {
    let numbers = bytes.saturating_mul(Kind::Gradient.formula().copies).saturating_add(largest);
    let scratch = numbers.saturating_add(nodes.saturating_mul(TENSOR_BYTES));
    Cost { kind: Kind::Gradient, scratch, ..Cost::default() }
}
