//! Wishes as calls of the runtime.

use tunebox_compute::error::Result;
use tunebox_compute::ops::{self, Admit, Made};
use tunebox_compute::random::Stream;
use tunebox_compute::{Device, Tensor};

use super::wish::{ARITHMETIC, COMPARISONS, LOGIC, REDUCTIONS, SCALAR, SCANS, UNARY, Wish};

/// The numbers of a scope-less session: everything lies on the processor.
const HERE: &Device = &Device::Cpu;

/// What the runtime makes of a wish; nothing for what is no operation.
pub(super) fn perform(wish: &Wish, table: &[Tensor], purse: &mut dyn Admit) -> Result<Vec<Made>> {
    if let Wish::Chunk(x, axis, count) = wish {
        return ops::chunk(&table[*x], *axis, *count);
    }
    let at = |place: &usize| &table[*place];
    let made = match wish {
        Wish::Elementwise(number, x) => UNARY[*number].0(purse, at(x)),
        Wish::Scalar(number, x, value) => SCALAR[*number](purse, at(x), *value),
        Wish::Clamp(x, low, high) => ops::clamp(purse, at(x), *low, *high),
        Wish::IsFinite(x) => ops::is_finite(purse, at(x)),
        Wish::Not(x) => ops::logical_not(purse, at(x)),
        Wish::Detach(x) => ops::detach(at(x)),
        Wish::Cast(x, dtype) => ops::cast(purse, at(x), *dtype),
        Wish::Reduce(number, x, axis, keep) => REDUCTIONS[*number].0(purse, at(x), *axis, *keep),
        Wish::Masked(false, x, mask, axis, keep) => ops::masked_sum(purse, at(x), at(mask), *axis, *keep),
        Wish::Masked(true, x, mask, axis, keep) => ops::masked_mean(purse, at(x), at(mask), *axis, *keep),
        Wish::Scan(number, x, axis) => SCANS[*number](purse, at(x), *axis),
        Wish::Sort(x, axis, descending) => ops::sort(purse, at(x), *axis, *descending),
        Wish::Argsort(x, axis, descending) => ops::argsort(purse, at(x), *axis, *descending),
        Wish::Top(x, axis, count) => ops::top(purse, at(x), *axis, *count),
        Wish::Quantile(x, q) => ops::quantile(purse, at(x), *q),
        Wish::Gather(x, axis, index) => ops::gather(purse, at(x), *axis, at(index)),
        Wish::Select(x, axis, index) => ops::index_select(purse, at(x), *axis, at(index)),
        Wish::AddAt(x, axis, index, source) => ops::index_add(purse, at(x), *axis, at(index), at(source)),
        Wish::Segments(x, segments, count) => ops::segment_sum(purse, at(x), at(segments), *count),
        Wish::Arithmetic(number, a, b) => ARITHMETIC[*number].0(purse, at(a), at(b)),
        Wish::Compare(number, a, b) => COMPARISONS[*number].0(purse, at(a), at(b)),
        Wish::Logic(number, a, b) => LOGIC[*number](purse, at(a), at(b)),
        Wish::Choose(condition, a, b) => ops::choose(purse, at(condition), at(a), at(b)),
        Wish::Matmul(a, b) => ops::matmul(purse, at(a), at(b)),
        Wish::Outer(a, b) => ops::outer(purse, at(a), at(b)),
        Wish::Dot(a, b) => ops::dot(purse, at(a), at(b)),
        Wish::Concat(places, axis) => ops::concat(purse, &places.iter().map(at).collect::<Vec<_>>(), *axis),
        Wish::Stack(places, axis) => ops::stack(purse, &places.iter().map(at).collect::<Vec<_>>(), *axis),
        _ => return arrange(wish, table, purse).map(|made| made.into_iter().collect()),
    };
    made.map(|made| vec![made])
}

/// The same numbers elsewhere, and new numbers.
fn arrange(wish: &Wish, table: &[Tensor], purse: &mut dyn Admit) -> Result<Option<Made>> {
    let at = |place: &usize| &table[*place];
    let mut sequence = Stream::new(1, "operations");
    let made = match wish {
        Wish::Slice(x, axis, start, length) => ops::slice(at(x), *axis, *start, *length),
        Wish::Reshape(x, shape) => ops::reshape(purse, at(x), shape),
        Wish::Transpose(x, first, second) => ops::transpose(at(x), *first, *second),
        Wish::Unsqueeze(x, axis) => ops::unsqueeze(at(x), *axis),
        Wish::Squeeze(x, axis) => ops::squeeze(at(x), *axis),
        Wish::Expand(x, shape) => ops::expand(at(x), shape),
        Wish::Roll(x, axis, shift) => ops::roll(purse, at(x), *axis, *shift),
        Wish::Flip(x, axis) => ops::flip(purse, at(x), *axis),
        Wish::Zeros(shape, dtype) => ops::zeros(purse, HERE, shape, *dtype),
        Wish::Ones(shape, dtype) => ops::ones(purse, HERE, shape, *dtype),
        Wish::Full(shape, value) => ops::full(purse, HERE, shape, *value),
        Wish::Sequence(start, step, count) => ops::sequence(purse, HERE, *start, *step, *count),
        Wish::Numbers(values, shape) => ops::from_list(purse, HERE, values.clone(), shape),
        Wish::Indices(values, shape) => ops::from_indices(purse, HERE, values.clone(), shape),
        Wish::Random(false, shape) => ops::random_normal(purse, HERE, &mut sequence, shape),
        Wish::Random(true, shape) => ops::random_uniform(purse, HERE, &mut sequence, shape),
        Wish::Permutation(count) => ops::random_permutation(purse, HERE, &mut sequence, *count),
        _ => return Ok(None),
    };
    made.map(Some)
}
