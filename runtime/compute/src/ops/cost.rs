//! What operations cost: the table of formulas, and the estimate that each operation makes before it does anything.
//!
//! The table is a measure of our own, so that a budget means the same on every machine and in every version of the
//! tensor library. Whoever changes a number in it raises [`VERSION`].

use candle_core::{DType, Tensor};

use super::graph::Value;
use super::{Meter, Output, check};
use crate::budget::Reservation;
use crate::error::Result;

/// The version of the table: runs that were bounded by another one may have ended elsewhere.
pub const VERSION: u32 = 2;

/// A kind of operation: all of one kind are charged by one formula.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// The same numbers seen in another way.
    #[default]
    View,
    /// New numbers from none.
    Create,
    /// A function of each number, with its slope.
    Elementwise,
    /// A function of each number and an argument.
    Scalar,
    /// Another element type.
    Cast,
    /// Which numbers are finite.
    Finite,
    /// A function of two numbers, broadcast.
    Pairwise,
    /// One of two numbers, by a third.
    Choose,
    /// Comparisons and logic.
    Compare,
    /// Products of matrices and vectors.
    Product,
    /// Sums, means and norms along an axis.
    Reduce,
    /// The largest or smallest along an axis, and its place.
    Extreme,
    /// Truth values along an axis.
    Truth,
    /// Sums under a mask.
    Masked,
    /// Running sums and softmax.
    Scan,
    /// Numbers in order.
    Sort,
    /// Places in order, and shares of an order.
    Order,
    /// Reading at places.
    Gather,
    /// Adding at places.
    Scatter,
    /// Several tensors in one.
    Join,
    /// Numbers copied to other places.
    Move,
    /// The walk back through a graph.
    Gradient,
}

/// How a kind is charged. Every number that comes in or goes out is one unit of work. A gradient that passes through the
/// result charges twice that, each time it is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formula {
    /// Temporaries as large as operands and result together, at most this many alive at once.
    pub copies: u64,
    /// Units of work for each unit of the measure.
    pub work: u64,
    /// Numbers in temporaries for each unit of the measure.
    pub scratch: u64,
    /// What is measured beside the numbers that come in and go out.
    pub measure: &'static str,
}

/// A formula that charges by the numbers that come in and go out alone. At most `copies` temporaries of that size are
/// alive at once.
const fn plain(copies: u64) -> Formula {
    Formula { copies, work: 0, scratch: 0, measure: "" }
}

/// The formula of sorting and running sums: beside the numbers that come in and go out, charges one unit of work for
/// each number and each doubling that makes up the length of a lane.
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
            Self::Scalar | Self::Finite | Self::Pairwise | Self::Choose => plain(4),
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
    /// By which row of the table it was estimated.
    pub kind: Kind,
    /// Bytes that stay reserved as long as the result, or a graph through it, lives.
    pub bytes: u64,
    /// Bytes of temporaries, free again when the operation returns.
    pub scratch: u64,
    /// Numbers read or written, multiply-adds for a product.
    pub work: u64,
    /// How much of the work is not multiply-adds.
    pub numbers: u64,
}

impl Cost {
    /// The cost of passing a gradient back through an operation that cost this: twice the work, the same temporaries.
    fn backward(self) -> Self {
        let (work, numbers) = (self.work.saturating_mul(2), self.numbers.saturating_mul(2));
        Self { kind: self.kind, work, numbers, scratch: self.scratch, bytes: 0 }
    }

    /// Returns how long the work takes on a slow machine, in seconds: the most that an operation is allowed to last is
    /// compared with this before it begins, because nothing stops it on its way.
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

/// Seconds of a multiply-add of a matrix product; 0.06 to 0.11 ns were measured in `f32` and `bf16`, up to 0.18 ns in `f64`.
const MULTIPLY_ADD_SECONDS: f64 = 0.5e-9;

/// Seconds of a number of an operation that reads and writes in order; 1 to 43 ns were measured in `f32` and `bf16`, up to 12 ns
/// of processor time in `f64`.
const NUMBER_SECONDS: f64 = 50e-9;

/// Seconds of a number that is drawn, sorted, looked up at a place or reduced; 10 to 79 ns were measured in `f32` and `bf16`,
/// 151 ns for normal numbers, up to 64 ns of processor time in `f64`.
const SLOW_NUMBER_SECONDS: f64 = 200e-9;

/// An estimate under way: how many numbers come in, how many go out, how many temporaries it takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    kind: Kind,
    elements: u64,
    dtype: DType,
    inputs: u64,
    measure: u64,
    scratch: u64,
    tracked: bool,
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

    /// Sets how many units there are of what the kind's formula measures, such as multiply-adds.
    pub(super) fn measured(mut self, measure: u64) -> Self {
        self.measure = measure;
        self
    }

    /// Sets a number of elements in temporaries that the formula does not know, as when operands are repeated to a
    /// common shape.
    pub(super) fn scratch(mut self, elements: u64) -> Self {
        self.scratch = elements;
        self
    }

    /// Sets the bytes that the graph keeps for the gradient beside the operands and the result. They count only if the
    /// operation has a gradient.
    pub(super) fn saved(mut self, bytes: u64) -> Self {
        self.saved = bytes;
        self
    }

    /// Computes the cost by the formula of the kind. With an operand in the graph, adds the saved bytes.
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

    /// Reserves the estimated cost in `budget`, runs `make`, and releases the bytes of temporaries. If `budget`
    /// refuses, nothing is computed.
    pub(super) fn pay<V: Into<Value>>(
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

/// The cost of passing a gradient back through a view: its elements are read and written. 0 without a graph.
pub(super) fn backward_of_view(view: &Tensor) -> Cost {
    if !view.track_op() {
        return Cost::default();
    }
    let work = 2 * view.elem_count() as u64;
    Cost { work, numbers: work, ..Cost::default() }.backward()
}

/// Bytes of a tensor without its numbers: shape, type and place in a graph.
const TENSOR_BYTES: u64 = 512;

/// The cost of computing gradients over a graph of `nodes` tensors that take `bytes` bytes: temporaries only. `largest` are
/// the bytes of those of one operation, which are many where a result is smaller than what it is computed from. The work
/// is that of the operations that made the tensors, which their [`Output`] names.
pub(super) fn gradient(bytes: u64, nodes: u64, largest: u64) -> Cost {
    let numbers = bytes.saturating_mul(Kind::Gradient.formula().copies).saturating_add(largest);
    let scratch = numbers.saturating_add(nodes.saturating_mul(TENSOR_BYTES));
    Cost { kind: Kind::Gradient, scratch, ..Cost::default() }
}
