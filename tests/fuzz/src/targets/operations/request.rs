//! What an input may ask for: every function of `wit/tensor.wit`, with its arguments.

use tunebox_compute::error::Result;
use tunebox_compute::ops::{self, Meter, Output};
use tunebox_compute::{DType, Tensor};

/// The place of a tensor on the table.
pub(super) type Index = usize;
/// A function of one tensor.
type Unary = fn(&mut dyn Meter, &Tensor) -> Result<Output>;
/// A function of one tensor and a number.
type Scalar = fn(&mut dyn Meter, &Tensor, f64) -> Result<Output>;
/// A reduction.
type Reduction = fn(&mut dyn Meter, &Tensor, Option<i32>, bool) -> Result<Output>;
/// A function of two tensors.
type Pair = fn(&mut dyn Meter, &Tensor, &Tensor) -> Result<Output>;
/// A function along an axis.
type Scan = fn(&mut dyn Meter, &Tensor, i32) -> Result<Output>;

/// The same in plain arithmetic.
type Plain = fn(f64) -> f64;
type PlainPair = fn(f64, f64) -> f64;
type PlainTest = fn(f64, f64) -> bool;

/// Functions of one number, with the same in plain arithmetic.
pub(super) const UNARY: [(Unary, Plain); 18] = [
    (ops::negate, |x| -x),
    (ops::abs, f64::abs),
    (ops::square, |x| x * x),
    (ops::sqrt, f64::sqrt),
    (ops::exp, f64::exp),
    (ops::log, f64::ln),
    (ops::log1p, f64::ln_1p),
    (ops::expm1, f64::exp_m1),
    (ops::reciprocal, f64::recip),
    (ops::sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
    (ops::log_sigmoid, |x| -soft(-x)),
    (ops::softplus, soft),
    (ops::relu, |x| if x <= 0.0 { 0.0 } else { x }),
    (ops::tanh, f64::tanh),
    (ops::sin, f64::sin),
    (ops::cos, f64::cos),
    (ops::sign, |x| f64::from(i8::from(x > 0.0) - i8::from(x < 0.0))),
    (ops::round, f64::round_ties_even),
];

fn soft(x: f64) -> f64 {
    if x.is_nan() { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() }
}

pub(super) const SCALAR: [Scalar; 4] = [ops::add_scalar, ops::scale, ops::power, ops::replace_non_finite];

/// Which element types a reduction takes, and gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Floating-point, the same again.
    Float,
    /// Any, the same again.
    Any,
    /// Any, then places.
    Places,
    /// Truth values, then numbers.
    Count,
    /// Truth values, the same again.
    Truth,
}

pub(super) const REDUCTIONS: [(Reduction, Kind); 15] = [
    (ops::sum, Kind::Float),
    (ops::mean, Kind::Float),
    (ops::max, Kind::Any),
    (ops::min, Kind::Any),
    (ops::logsumexp, Kind::Float),
    (ops::norm, Kind::Float),
    (ops::nansum, Kind::Float),
    (ops::nanmean, Kind::Float),
    (|budget, x, axis, keep| ops::var(budget, x, axis, keep, 1), Kind::Float),
    (|budget, x, axis, keep| ops::std(budget, x, axis, keep, u32::MAX), Kind::Float),
    (|budget, x, axis, keep| ops::nanstd(budget, x, axis, keep, 0), Kind::Float),
    (ops::argmax, Kind::Places),
    (ops::count, Kind::Count),
    (ops::any, Kind::Truth),
    (ops::all, Kind::Truth),
];

pub(super) const SCANS: [Scan; 3] = [ops::cumsum, ops::softmax, ops::log_softmax];

pub(super) const ARITHMETIC: [(Pair, PlainPair); 6] = [
    (ops::add, |a, b| a + b),
    (ops::subtract, |a, b| a - b),
    (ops::multiply, |a, b| a * b),
    (ops::divide, |a, b| a / b),
    (ops::minimum, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }),
    (ops::maximum, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }),
];

pub(super) const COMPARISONS: [(Pair, PlainTest); 6] = [
    (ops::equal, |a, b| a == b),
    (ops::not_equal, |a, b| a != b),
    (ops::less, |a, b| a < b),
    (ops::less_equal, |a, b| a <= b),
    (ops::greater, |a, b| a > b),
    (ops::greater_equal, |a, b| a >= b),
];

pub(super) const LOGIC: [Pair; 2] = [ops::logical_and, ops::logical_or];

/// One call.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Elementwise(usize, Index),
    Scalar(usize, Index, f64),
    Clamp(Index, Option<f64>, Option<f64>),
    IsFinite(Index),
    Not(Index),
    Detach(Index),
    Cast(Index, DType),
    Reduce(usize, Index, Option<i32>, bool),
    Masked(bool, Index, Index, Option<i32>, bool),
    Scan(usize, Index, i32),
    Sort(Index, i32, bool),
    Argsort(Index, i32, bool),
    Topk(Index, i32, u32),
    Quantile(Index, f64),
    Gather(Index, i32, Index),
    Select(Index, i32, Index),
    AddAt(Index, i32, Index, Index),
    Segments(Index, Index, u32),
    Slice(Index, i32, u32, u32),
    Chunk(Index, i32, u32),
    Reshape(Index, Vec<u32>),
    Transpose(Index, i32, i32),
    Unsqueeze(Index, i32),
    Squeeze(Index, i32),
    Expand(Index, Vec<u32>),
    Roll(Index, i32, i32),
    Flip(Index, i32),
    Arithmetic(usize, Index, Index),
    Compare(usize, Index, Index),
    Logic(usize, Index, Index),
    Where(Index, Index, Index),
    Matmul(Index, Index),
    Outer(Index, Index),
    Dot(Index, Index),
    Concat(Vec<Index>, i32),
    Stack(Vec<Index>, i32),
    Zeros(Vec<u32>, DType),
    Ones(Vec<u32>, DType),
    Full(Vec<u32>, f32),
    Arange(f32, f32, u32),
    Numbers(Vec<f32>, Vec<u32>),
    Indices(Vec<u32>, Vec<u32>),
    Random(bool, Vec<u32>),
    Permutation(u32),
    /// A leaf variable in the place of a tensor, as a score is.
    Leaf(Index),
    /// The gradient of the first with respect to the second.
    Gradient(Index, Index),
    /// A function of one number, many times over.
    Chain(usize, Index, u16),
    Drop(Index),
}
