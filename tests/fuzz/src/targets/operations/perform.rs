//! Request as calls of the runtime.

use tunebox_compute::error::Result;
use tunebox_compute::ops::{self, Meter, Output};
use tunebox_compute::random::Stream;
use tunebox_compute::{Device, Tensor};

use super::request::{ARITHMETIC, COMPARISONS, LOGIC, REDUCTIONS, Request, SCALAR, SCANS, UNARY};

/// The numbers of a scope-less session: everything lies on the processor.
const HERE: &Device = &Device::Cpu;

/// What the runtime makes of a request; nothing for what is no operation.
pub(super) fn perform(request: &Request, table: &[Tensor], budget: &mut dyn Meter) -> Result<Vec<Output>> {
    if let Request::Chunk(x, axis, count) = request {
        return ops::chunk(&table[*x], *axis, *count);
    }
    let at = |place: &usize| &table[*place];
    let output = match request {
        Request::Elementwise(number, x) => UNARY[*number].0(budget, at(x)),
        Request::Scalar(number, x, value) => SCALAR[*number](budget, at(x), *value),
        Request::Clamp(x, low, high) => ops::clamp(budget, at(x), *low, *high),
        Request::IsFinite(x) => ops::is_finite(budget, at(x)),
        Request::Not(x) => ops::logical_not(budget, at(x)),
        Request::Detach(x) => ops::detach(at(x)),
        Request::Cast(x, dtype) => ops::cast(budget, at(x), *dtype),
        Request::Reduce(number, x, axis, keep) => REDUCTIONS[*number].0(budget, at(x), *axis, *keep),
        Request::Masked(false, x, mask, axis, keep) => ops::masked_sum(budget, at(x), at(mask), *axis, *keep),
        Request::Masked(true, x, mask, axis, keep) => ops::masked_mean(budget, at(x), at(mask), *axis, *keep),
        Request::Scan(number, x, axis) => SCANS[*number](budget, at(x), *axis),
        Request::Sort(x, axis, descending) => ops::sort(budget, at(x), *axis, *descending),
        Request::Argsort(x, axis, descending) => ops::argsort(budget, at(x), *axis, *descending),
        Request::Topk(x, axis, count) => ops::topk(budget, at(x), *axis, *count),
        Request::Quantile(x, q) => ops::quantile(budget, at(x), *q),
        Request::Gather(x, axis, index) => ops::gather(budget, at(x), *axis, at(index)),
        Request::Select(x, axis, index) => ops::index_select(budget, at(x), *axis, at(index)),
        Request::AddAt(x, axis, index, source) => ops::index_add(budget, at(x), *axis, at(index), at(source)),
        Request::Segments(x, segments, count) => ops::segment_sum(budget, at(x), at(segments), *count),
        Request::Arithmetic(number, a, b) => ARITHMETIC[*number].0(budget, at(a), at(b)),
        Request::Compare(number, a, b) => COMPARISONS[*number].0(budget, at(a), at(b)),
        Request::Logic(number, a, b) => LOGIC[*number](budget, at(a), at(b)),
        Request::Where(condition, a, b) => ops::where_(budget, at(condition), at(a), at(b)),
        Request::Matmul(a, b) => ops::matmul(budget, at(a), at(b)),
        Request::Outer(a, b) => ops::outer(budget, at(a), at(b)),
        Request::Dot(a, b) => ops::dot(budget, at(a), at(b)),
        Request::Concat(places, axis) => ops::concat(budget, &places.iter().map(at).collect::<Vec<_>>(), *axis),
        Request::Stack(places, axis) => ops::stack(budget, &places.iter().map(at).collect::<Vec<_>>(), *axis),
        _ => return arrange(request, table, budget).map(|output| output.into_iter().collect()),
    };
    output.map(|output| vec![output])
}

/// The same numbers elsewhere, and new numbers.
fn arrange(request: &Request, table: &[Tensor], budget: &mut dyn Meter) -> Result<Option<Output>> {
    let at = |place: &usize| &table[*place];
    let mut sequence = Stream::new(1, "operations");
    let output = match request {
        Request::Slice(x, axis, start, length) => ops::slice(at(x), *axis, *start, *length),
        Request::Reshape(x, shape) => ops::reshape(budget, at(x), shape),
        Request::Transpose(x, first, second) => ops::transpose(at(x), *first, *second),
        Request::Unsqueeze(x, axis) => ops::unsqueeze(at(x), *axis),
        Request::Squeeze(x, axis) => ops::squeeze(at(x), *axis),
        Request::Expand(x, shape) => ops::expand(at(x), shape),
        Request::Roll(x, axis, shift) => ops::roll(budget, at(x), *axis, *shift),
        Request::Flip(x, axis) => ops::flip(budget, at(x), *axis),
        Request::Zeros(shape, dtype) => ops::zeros(budget, HERE, shape, *dtype),
        Request::Ones(shape, dtype) => ops::ones(budget, HERE, shape, *dtype),
        Request::Full(shape, value) => ops::full(budget, HERE, shape, *value),
        Request::Arange(start, step, count) => ops::arange(budget, HERE, *start, *step, *count),
        Request::Numbers(values, shape) => ops::from_list(budget, HERE, values.clone(), shape),
        Request::Indices(values, shape) => ops::from_indices(budget, HERE, values.clone(), shape),
        Request::Random(false, shape) => ops::randn(budget, HERE, &mut sequence, shape),
        Request::Random(true, shape) => ops::rand(budget, HERE, &mut sequence, shape),
        Request::Permutation(count) => ops::randperm(budget, HERE, &mut sequence, *count),
        _ => return Ok(None),
    };
    output.map(Some)
}
