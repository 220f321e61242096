//! The operations of `wit/tensor.wit`. Generated from the contract; `BLESS=1 cargo test` rewrites it.

use super::call::{comparisons, functions, list_functions, methods};
use super::{Dtype, Tensor};

methods! {
    /// −x.
    negate();
    /// |x|; the gradient at 0 is 0.
    abs();
    /// x².
    square();
    /// √x; NaN below 0.
    sqrt();
    /// eˣ.
    exp();
    /// The natural logarithm; NaN below 0.
    log();
    /// log(1 + x), exact near 0.
    log1p();
    /// eˣ − 1, exact near 0.
    expm1();
    /// 1 / x.
    reciprocal();
    /// 1 / (1 + e⁻ˣ).
    sigmoid();
    /// log σ(x), exact for large negative numbers.
    log_sigmoid();
    /// log(1 + eˣ), exact at both ends.
    softplus();
    /// max(x, 0); the gradient at 0 is 0.
    relu();
    /// The hyperbolic tangent.
    tanh();
    /// The sine, in radians.
    sin();
    /// The cosine, in radians.
    cos();
    /// −1, 0 or 1 by the sign of x; 0 for NaN. No gradient.
    sign();
    /// The nearest whole number; halves go to the even one, as 2.5 to 2. No gradient.
    round();
    /// x + `value`. The scalar is finite.
    add_scalar(value: f64);
    /// x · `value`. The scalar is finite.
    scale(value: f64);
    /// x to the power `exponent` (finite); NaN for a negative base with a fractional exponent.
    power(exponent: f64);
    /// Limits x to `low` … `high`; the gradient is 0 outside, 1 inside and at the borders.
    clamp(low: Option<f64>, high: Option<f64>);
    /// Replaces NaN and both infinities by `value`; the gradient there is 0.
    replace_non_finite(value: f64);
    /// 1 where x is neither NaN nor infinite, as `u8`. No gradient.
    is_finite();
    /// 1 where a `u8` is 0, and 0 elsewhere, as `u8`. No gradient.
    logical_not();
    /// The same numbers, outside of the graph. No gradient.
    detach();
    /// Converts to another element type: truncated towards 0 and limited to the range of an integer type, NaN
    /// becomes 0. Gradient between floating-point types only.
    cast(dtype: Dtype);
    /// The sum.
    sum() over();
    /// The mean.
    mean() over();
    /// The largest, NaN if there is one; the first of equals takes the gradient.
    max() over();
    /// The smallest, NaN if there is one; the first of equals takes the gradient.
    min() over();
    /// log Σ eˣ, without overflow.
    logsumexp() over();
    /// √Σ x²; the gradient at 0 is 0.
    norm() over();
    /// The sum of the entries that are not NaN; 0 when there is none.
    nansum() over();
    /// The mean of the entries that are not NaN; NaN when there is none.
    nanmean() over();
    /// The variance with divisor n − `correction`; NaN when that is not positive.
    var() over(correction: u32);
    /// The square root of `var`; the gradient at 0 is 0.
    std() over(correction: u32);
    /// `std` over the entries that are not NaN. No gradient.
    nanstd() over(correction: u32);
    /// How many entries of a `u8` are not 0, as `f32`. No gradient.
    count() over();
    /// 1 if any entry of a `u8` is not 0, as `u8`. No gradient.
    any() over();
    /// 1 if no entry of a `u8` is 0, as `u8`. No gradient.
    all() over();
    /// The index of the largest (of the first NaN if there is one), the first of equals, as `u32`. No gradient.
    argmax() over();
    /// Σ x·m with a mask that is `u8` or of the type of x, broadcast, over one axis or all. A masked entry counts
    /// exactly 0 even if it is NaN. Gradient to the mask as well if it is floating-point.
    masked_sum(mask: &Tensor) over();
    /// `masked_sum` divided by max(Σ m, 1).
    masked_mean(mask: &Tensor) over();
    /// Running sums along an axis.
    cumsum(axis: i32);
    /// Exponentials divided by their sum along an axis.
    softmax(axis: i32);
    /// log of `softmax`, without overflow.
    log_softmax(axis: i32);
    /// The entries along an axis in order, equal ones in their old order. NaN comes last.
    sort(axis: i32, descending: bool);
    /// The indices that sort the entries along an axis, in the order of `sort`, as `u32`. No gradient.
    argsort(axis: i32, descending: bool);
    /// The `count` largest along an axis, largest first.
    topk(axis: i32, count: u32);
    /// The quantile `q` (0 to 1) of all entries, interpolated linearly; one element. NaN if an entry is NaN. No
    /// gradient.
    quantile(q: f64);
    /// Picks entries along `axis`: for axis 0, out\[i\]\[j\] = x\[index\[i\]\[j\]\]\[j\]. `index` is `u32`, as long
    /// as x on every other axis. Errors: `invalid-argument` for an index out of range.
    gather(axis: i32, index: &Tensor);
    /// The entries along an axis at the positions in `index` (`u32`, one axis).
    index_select(axis: i32, index: &Tensor);
    /// x with `source` added along an axis at the positions in `index` (`u32`, one axis). Positions may repeat.
    index_add(axis: i32, index: &Tensor, source: &Tensor);
    /// Sums of the entries of axis 0 that share a segment: `segments` is `u32`, `[n]`; the result has `count`
    /// entries on axis 0, 0 for empty segments.
    segment_sum(segments: &Tensor, count: u32);
    /// `length` entries of an axis from `start` on.
    slice(axis: i32, start: u32, length: u32);
    /// The same elements in another shape.
    reshape(shape: &[u32]);
    /// Swaps two axes.
    transpose(first: i32, second: i32);
    /// Adds an axis of length 1.
    unsqueeze(axis: i32);
    /// Removes an axis of length 1.
    squeeze(axis: i32);
    /// Repeats x to a larger shape by the rules of broadcasting.
    expand(shape: &[u32]);
    /// Shifts the entries of an axis by `shift` positions; those past the end come back at the start.
    roll(axis: i32, shift: i32);
    /// Reverses an axis.
    flip(axis: i32);
}

comparisons! {
    /// The smaller of both, NaN if either is; equal ones share the gradient.
    minimum;
    /// The larger of both, NaN if either is; equal ones share the gradient.
    maximum;
    /// 1 where a = b, as `u8`. No gradient.
    equal;
    /// 1 where a ≠ b, as `u8`. No gradient.
    not_equal;
    /// 1 where a < b, as `u8`. No gradient.
    less;
    /// 1 where a ≤ b, as `u8`. No gradient.
    less_equal;
    /// 1 where a > b, as `u8`. No gradient.
    greater;
    /// 1 where a ≥ b, as `u8`. No gradient.
    greater_equal;
    /// 1 where both `u8` are not 0, as `u8`. No gradient.
    logical_and;
    /// 1 where either `u8` is not 0, as `u8`. No gradient.
    logical_or;
}

functions! {
    /// The matrix product over the last two axes; the axes before them are equal or broadcast.
    matmul(a: &Tensor, b: &Tensor);
    /// The outer product of two vectors, `[n, m]`.
    outer(a: &Tensor, b: &Tensor);
    /// The inner product of two vectors, one element.
    dot(a: &Tensor, b: &Tensor);
    /// All elements 0.
    zeros(shape: &[u32], dtype: Dtype);
    /// All elements 1.
    ones(shape: &[u32], dtype: Dtype);
    /// All elements `value`, as `f32`.
    full(shape: &[u32], value: f32);
    /// `start`, `start` + `step`, … , `count` numbers, as `f32`.
    arange(start: f32, step: f32, count: u32);
    /// The numbers of a list, as `f32`. Errors: `shape-mismatch` if the shape holds another number of elements.
    from_list(values: &[f32], shape: &[u32]);
    /// Indices of a list, as `u32`.
    from_indices(values: &[u32], shape: &[u32]);
    /// Independent standard normal numbers, as `f32`, from the run's seed and the name of a random sequence.
    /// Successive calls on one sequence give new numbers; a resumed run goes on where it was.
    randn(sequence: &str, shape: &[u32]);
    /// Independent uniform numbers in \[0, 1), as `f32`, from a random sequence as in `randn`.
    rand(sequence: &str, shape: &[u32]);
    /// A random permutation of 0 … `count` − 1, as `u32`, from a random sequence as in `randn`.
    randperm(sequence: &str, count: u32);
}

list_functions! {
    /// Concatenates tensors along an axis that exists; at most 1,024.
    concat(axis: i32);
    /// Stacks tensors of one shape along a new axis; at most 1,024.
    stack(axis: i32);
}
