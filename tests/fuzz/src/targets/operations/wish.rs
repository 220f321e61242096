//! What an input may ask for: every function of `wit/tensor.wit`, with its arguments.

use tunebox_compute::error::Result;
use tunebox_compute::ops::{self, Admit, Made};
use tunebox_compute::{DType, Tensor};

/// The place of a tensor on the table.
pub(super) type Place = usize;
/// A function of one tensor.
type Unary = fn(&mut dyn Admit, &Tensor) -> Result<Made>;
/// A function of one tensor and a number.
type Scalar = fn(&mut dyn Admit, &Tensor, f64) -> Result<Made>;
/// A reduction.
type Reduction = fn(&mut dyn Admit, &Tensor, Option<i32>, bool) -> Result<Made>;
/// A function of two tensors.
type Pair = fn(&mut dyn Admit, &Tensor, &Tensor) -> Result<Made>;
/// A function along an axis.
type Scan = fn(&mut dyn Admit, &Tensor, i32) -> Result<Made>;

/// The same in plain arithmetic.
type Plain = fn(f64) -> f64;
type PlainPair = fn(f64, f64) -> f64;
type PlainTest = fn(f64, f64) -> bool;

/// Functions of one number, with the same in plain arithmetic.
pub(super) const UNARY: [(Unary, Plain); 16] = [
    (ops::negate, |x| -x),
    (ops::abs, f64::abs),
    (ops::square, |x| x * x),
    (ops::sqrt, f64::sqrt),
    (ops::exp, f64::exp),
    (ops::log, f64::ln),
    (ops::log_one_plus, f64::ln_1p),
    (ops::exp_minus_one, f64::exp_m1),
    (ops::reciprocal, f64::recip),
    (ops::sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
    (ops::log_sigmoid, |x| -soft(-x)),
    (ops::softplus, soft),
    (ops::relu, |x| if x <= 0.0 { 0.0 } else { x }),
    (ops::tanh, f64::tanh),
    (ops::sin, f64::sin),
    (ops::cos, f64::cos),
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
    (ops::log_sum_exp, Kind::Float),
    (ops::norm, Kind::Float),
    (ops::sum_of_finite, Kind::Float),
    (ops::mean_of_finite, Kind::Float),
    (|purse, x, axis, keep| ops::variance(purse, x, axis, keep, 1), Kind::Float),
    (|purse, x, axis, keep| ops::standard_deviation(purse, x, axis, keep, u32::MAX), Kind::Float),
    (|purse, x, axis, keep| ops::standard_deviation_of_finite(purse, x, axis, keep, 0), Kind::Float),
    (ops::argmax, Kind::Places),
    (ops::count, Kind::Count),
    (ops::any, Kind::Truth),
    (ops::all, Kind::Truth),
];

pub(super) const SCANS: [Scan; 3] = [ops::cumulative_sum, ops::softmax, ops::log_softmax];

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
pub(super) enum Wish {
    Elementwise(usize, Place),
    Scalar(usize, Place, f64),
    Clamp(Place, Option<f64>, Option<f64>),
    IsFinite(Place),
    Not(Place),
    Detach(Place),
    Cast(Place, DType),
    Reduce(usize, Place, Option<i32>, bool),
    Masked(bool, Place, Place, Option<i32>, bool),
    Scan(usize, Place, i32),
    Sort(Place, i32, bool),
    Argsort(Place, i32, bool),
    Top(Place, i32, u32),
    Quantile(Place, f64),
    Gather(Place, i32, Place),
    Select(Place, i32, Place),
    AddAt(Place, i32, Place, Place),
    Segments(Place, Place, u32),
    Slice(Place, i32, u32, u32),
    Chunk(Place, i32, u32),
    Reshape(Place, Vec<u32>),
    Transpose(Place, i32, i32),
    Unsqueeze(Place, i32),
    Squeeze(Place, i32),
    Expand(Place, Vec<u32>),
    Roll(Place, i32, i32),
    Flip(Place, i32),
    Arithmetic(usize, Place, Place),
    Compare(usize, Place, Place),
    Logic(usize, Place, Place),
    Choose(Place, Place, Place),
    Matmul(Place, Place),
    Outer(Place, Place),
    Dot(Place, Place),
    Concat(Vec<Place>, i32),
    Stack(Vec<Place>, i32),
    Zeros(Vec<u32>, DType),
    Ones(Vec<u32>, DType),
    Full(Vec<u32>, f32),
    Sequence(f32, f32, u32),
    Numbers(Vec<f32>, Vec<u32>),
    Indices(Vec<u32>, Vec<u32>),
    Random(bool, Vec<u32>),
    Permutation(u32),
    /// A leaf variable in the place of a tensor, as a score is.
    Leaf(Place),
    /// The gradient of the first with respect to the second.
    Gradient(Place, Place),
    /// A function of one number, many times over.
    Chain(usize, Place, u16),
    Drop(Place),
}
