//! What every operation answers, told from shapes, types and arguments alone. Written from the text of
//! `wit/tensor.wit`; shares nothing with the code that it is held against.

use tunebox_compute::DType;

use super::request::{Kind, REDUCTIONS, Request};

/// What the model knows of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TensorInfo {
    pub(super) dims: Vec<u64>,
    pub(super) dtype: DType,
    /// The largest entry of a small tensor of indices.
    pub(super) largest: Option<u64>,
}

/// What must come of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// A refusal that is no matter of budgets.
    Refused,
    /// A refusal, by the budget or for an index out of range.
    RefusedLate,
    /// So many tensors of this shape and type, or a refusal by the budget.
    Tensors(usize, Vec<u64>, DType),
    /// As that, or a refusal for an index whose value is not known here.
    Perhaps(Vec<u64>, DType),
    /// No tensor.
    Nothing,
}

/// What must come of a request, given the tensors in the slots.
pub(super) fn answer(request: &Request, table: &[TensorInfo]) -> Answer {
    predict_success(request, table).unwrap_or(Answer::Refused)
}

/// The number of elements of a shape that is allowed.
fn size(dims: &[u64]) -> Option<u64> {
    let count = dims.iter().try_fold(1_u64, |count, length| count.checked_mul(*length))?;
    (dims.len() <= 8 && (1..=0x7fff_ffff).contains(&count)).then_some(count)
}

fn one(dims: Vec<u64>, dtype: DType) -> Option<Answer> {
    size(&dims)?;
    Some(Answer::Tensors(1, dims, dtype))
}

fn float(info: &TensorInfo) -> Option<&TensorInfo> {
    matches!(info.dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64).then_some(info)
}

fn of(info: &TensorInfo, dtype: DType) -> Option<&TensorInfo> {
    (info.dtype == dtype).then_some(info)
}

fn alike(a: &TensorInfo, b: &TensorInfo) -> Option<()> {
    (a.dtype == b.dtype).then_some(())
}

/// The place that an axis counts.
fn axis_index(rank: usize, axis: i32) -> Option<usize> {
    let rank = rank as i64;
    let axis = i64::from(axis);
    (-rank..rank).contains(&axis).then(|| axis.rem_euclid(rank) as usize)
}

fn outside(shape: &[u32]) -> Vec<u64> {
    shape.iter().map(|length| u64::from(*length)).collect()
}

/// The common shape of two, ends aligned.
fn common(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let rank = a.len().max(b.len());
    let padded = |dims: &[u64]| [vec![1; rank - dims.len()], dims.to_vec()].concat();
    let pairs = padded(a).into_iter().zip(padded(b));
    let dims: Option<Vec<u64>> = pairs.map(|(a, b)| (a == b || a == 1 || b == 1).then_some(a.max(b))).collect();
    dims.filter(|dims| size(dims).is_some())
}

fn reduced(dims: &[u64], axis: Option<i32>, keep: bool) -> Option<Vec<u64>> {
    let places = match axis {
        None => 0..dims.len(),
        Some(axis) => axis_index(dims.len(), axis).map(|place| place..place + 1)?,
    };
    let kept = |(number, length): (usize, &u64)| match (places.contains(&number), keep) {
        (false, _) => Some(*length),
        (true, true) => Some(1),
        (true, false) => None,
    };
    Some(dims.iter().enumerate().filter_map(kept).collect())
}

fn with(dims: &[u64], place: usize, length: u64) -> Vec<u64> {
    let mut dims = dims.to_vec();
    dims[place] = length;
    dims
}

/// A result that needs every index below `bound`.
fn indexed(index: &TensorInfo, bound: u64, dims: Vec<u64>, dtype: DType) -> Option<Answer> {
    size(&dims)?;
    Some(match index.largest {
        Some(largest) if largest < bound => Answer::Tensors(1, dims, dtype),
        Some(_) => Answer::RefusedLate,
        None => Answer::Perhaps(dims, dtype),
    })
}

/// The indices as a list.
fn listed(index: &TensorInfo) -> Option<u64> {
    match (index.dtype, index.dims.as_slice()) {
        (DType::U32, [count]) => Some(*count),
        _ => None,
    }
}

fn predict_success(request: &Request, table: &[TensorInfo]) -> Option<Answer> {
    let at = |place: &usize| &table[*place];
    match request {
        Request::Elementwise(_, x) | Request::Chain(_, x, _) => float(at(x)).and_then(|x| one(x.dims.clone(), x.dtype)),
        Request::Scalar(_, x, value) => {
            value.is_finite().then(|| float(at(x)))?.and_then(|x| one(x.dims.clone(), x.dtype))
        }
        Request::Clamp(x, low, high) => {
            let finite = low.iter().chain(high).all(|bound| bound.is_finite());
            let ordered = low.zip(*high).is_none_or(|(low, high)| low <= high);
            (finite && ordered).then(|| float(at(x)))?.and_then(|x| one(x.dims.clone(), x.dtype))
        }
        Request::IsFinite(x) => one(at(x).dims.clone(), DType::U8),
        Request::Not(x) => of(at(x), DType::U8).and_then(|x| one(x.dims.clone(), x.dtype)),
        Request::Detach(x) | Request::Leaf(x) => one(at(x).dims.clone(), at(x).dtype),
        Request::Cast(x, dtype) => one(at(x).dims.clone(), *dtype),
        Request::Reduce(number, x, axis, keep) => one(reduced(&at(x).dims, *axis, *keep)?, kept(*number, at(x))?),
        Request::Masked(_, x, mask, axis, keep) => {
            let (x, mask) = (float(at(x))?, at(mask));
            of(mask, DType::U8).map(|_| ()).or_else(|| alike(x, mask))?;
            one(reduced(&common(&x.dims, &mask.dims)?, *axis, *keep)?, x.dtype)
        }
        Request::Scan(_, x, axis) => {
            let x = float(at(x))?;
            axis_index(x.dims.len(), *axis)?;
            one(x.dims.clone(), x.dtype)
        }
        Request::Sort(..) | Request::Argsort(..) | Request::Topk(..) | Request::Quantile(..) => ordered(request, table),
        Request::Gather(..) | Request::Select(..) | Request::AddAt(..) | Request::Segments(..) => {
            picked(request, table)
        }
        Request::Arithmetic(_, a, b) => {
            alike(float(at(a))?, at(b))?;
            one(common(&at(a).dims, &at(b).dims)?, at(a).dtype)
        }
        Request::Compare(_, a, b) => {
            alike(at(a), at(b))?;
            one(common(&at(a).dims, &at(b).dims)?, DType::U8)
        }
        Request::Logic(_, a, b) => {
            let (a, b) = (of(at(a), DType::U8)?, of(at(b), DType::U8)?);
            one(common(&a.dims, &b.dims)?, DType::U8)
        }
        Request::Where(condition, a, b) => {
            alike(at(a), at(b))?;
            let condition = of(at(condition), DType::U8)?;
            one(common(&condition.dims, &common(&at(a).dims, &at(b).dims)?)?, at(a).dtype)
        }
        Request::Matmul(..) | Request::Outer(..) | Request::Dot(..) => product(request, table),
        Request::Concat(..) | Request::Stack(..) => joined(request, table),
        Request::Gradient(loss, _) => (size(&float(at(loss))?.dims)? == 1).then_some(Answer::Nothing),
        Request::Drop(_) => Some(Answer::Nothing),
        _ => arranged(request, table).or_else(|| fresh(request)),
    }
}

/// The element type of a reduction.
fn kept(number: usize, x: &TensorInfo) -> Option<DType> {
    match REDUCTIONS[number].1 {
        Kind::Float => float(x).map(|x| x.dtype),
        Kind::Any => Some(x.dtype),
        Kind::Places => Some(DType::U32),
        Kind::Count => of(x, DType::U8).map(|_| DType::F32),
        Kind::Truth => of(x, DType::U8).map(|x| x.dtype),
    }
}

fn ordered(request: &Request, table: &[TensorInfo]) -> Option<Answer> {
    match request {
        Request::Sort(x, axis, _) => {
            axis_index(table[*x].dims.len(), *axis).and_then(|_| one(table[*x].dims.clone(), table[*x].dtype))
        }
        Request::Argsort(x, axis, _) => {
            axis_index(table[*x].dims.len(), *axis).and_then(|_| one(table[*x].dims.clone(), DType::U32))
        }
        Request::Topk(x, axis, count) => {
            let place = axis_index(table[*x].dims.len(), *axis)?;
            let count = u64::from(*count);
            (1..=table[*x].dims[place])
                .contains(&count)
                .then(|| one(with(&table[*x].dims, place, count), table[*x].dtype))?
        }
        Request::Quantile(x, q) => {
            float(&table[*x]).filter(|_| (0.0..=1.0).contains(q)).and_then(|x| one(Vec::new(), x.dtype))
        }
        _ => None,
    }
}

fn picked(request: &Request, table: &[TensorInfo]) -> Option<Answer> {
    match request {
        Request::Gather(x, axis, index) => {
            let (x, index) = (&table[*x], of(&table[*index], DType::U32)?);
            let axis = axis_index(x.dims.len(), *axis)?;
            let same = x.dims.len() == index.dims.len() && with(&x.dims, axis, 1) == with(&index.dims, axis, 1);
            same.then(|| indexed(index, x.dims[axis], index.dims.clone(), x.dtype))?
        }
        Request::Select(x, axis, index) => {
            let (x, index) = (&table[*x], &table[*index]);
            let axis = axis_index(x.dims.len(), *axis)?;
            indexed(index, x.dims[axis], with(&x.dims, axis, listed(index)?), x.dtype)
        }
        Request::AddAt(x, axis, index, source) => {
            let (x, index, source) = (float(&table[*x])?, &table[*index], &table[*source]);
            alike(x, source)?;
            let axis = axis_index(x.dims.len(), *axis)?;
            let wanted = with(&x.dims, axis, listed(index)?);
            (source.dims == wanted).then(|| indexed(index, x.dims[axis], x.dims.clone(), x.dtype))?
        }
        Request::Segments(x, segments, count) => {
            let (x, segments) = (float(&table[*x])?, &table[*segments]);
            let fits = x.dims.first() == Some(&listed(segments)?);
            fits.then(|| indexed(segments, u64::from(*count), with(&x.dims, 0, u64::from(*count)), x.dtype))?
        }
        _ => None,
    }
}

fn product(request: &Request, table: &[TensorInfo]) -> Option<Answer> {
    let pair = |a: &usize, b: &usize| {
        let (a, b) = (float(&table[*a])?, &table[*b]);
        alike(a, b).map(|()| (a.dims.as_slice(), b.dims.as_slice(), a.dtype))
    };
    match request {
        Request::Matmul(a, b) => {
            let (a, b, dtype) = pair(a, b)?;
            let ([above_a @ .., rows, inner], [above_b @ .., again, columns]) = (a, b) else { return None };
            let dims = [common(above_a, above_b)?, vec![*rows, *columns]].concat();
            (inner == again).then(|| one(dims, dtype))?
        }
        Request::Outer(a, b) => match pair(a, b)? {
            ([n], [m], dtype) => one(vec![*n, *m], dtype),
            _ => None,
        },
        Request::Dot(a, b) => match pair(a, b)? {
            ([n], [m], dtype) if n == m => one(Vec::new(), dtype),
            _ => None,
        },
        _ => None,
    }
}

fn joined(request: &Request, table: &[TensorInfo]) -> Option<Answer> {
    let (Request::Concat(places, axis) | Request::Stack(places, axis)) = request else { return None };
    let looks: Vec<&TensorInfo> = places.iter().map(|place| &table[*place]).collect();
    let first = looks.first().filter(|_| looks.len() <= 1_024)?;
    looks.iter().all(|info| info.dtype == first.dtype).then_some(())?;
    if matches!(request, Request::Stack(..)) {
        let place = axis_index(first.dims.len() + 1, *axis)?;
        let mut dims = first.dims.clone();
        dims.insert(place, looks.len() as u64);
        return looks.iter().all(|info| info.dims == first.dims).then(|| one(dims, first.dtype))?;
    }
    let place = axis_index(first.dims.len(), *axis)?;
    let rank = |info: &&TensorInfo| info.dims.len() == first.dims.len();
    looks.iter().all(|info| rank(info) && with(&info.dims, place, 1) == with(&first.dims, place, 1)).then_some(())?;
    let total = looks.iter().map(|info| info.dims[place]).sum();
    one(with(&first.dims, place, total), first.dtype)
}

fn arranged(request: &Request, table: &[TensorInfo]) -> Option<Answer> {
    let rank = |x: &usize| table[*x].dims.len();
    let same = |x: &usize, dims: Vec<u64>| one(dims, table[*x].dtype);
    match request {
        Request::Slice(x, axis, start, length) => {
            let place = axis_index(rank(x), *axis)?;
            let (start, length) = (u64::from(*start), u64::from(*length));
            (start + length <= table[*x].dims[place]).then(|| same(x, with(&table[*x].dims, place, length)))?
        }
        Request::Chunk(x, axis, count) => {
            let place = axis_index(rank(x), *axis)?;
            let (count, held) = (u64::from(*count), table[*x].dims[place]);
            let fits = (1..=1_024).contains(&count) && held % count == 0;
            fits.then(|| Answer::Tensors(count as usize, with(&table[*x].dims, place, held / count), table[*x].dtype))
        }
        Request::Reshape(x, shape) => {
            let dims = outside(shape);
            (size(&dims)? == size(&table[*x].dims)?).then(|| same(x, dims))?
        }
        Request::Transpose(x, first, second) => {
            let mut dims = table[*x].dims.clone();
            dims.swap(axis_index(rank(x), *first)?, axis_index(rank(x), *second)?);
            same(x, dims)
        }
        Request::Unsqueeze(x, axis) => {
            let mut dims = table[*x].dims.clone();
            dims.insert(axis_index(rank(x) + 1, *axis)?, 1);
            same(x, dims)
        }
        Request::Squeeze(x, axis) => {
            let place = axis_index(rank(x), *axis)?;
            let mut dims = table[*x].dims.clone();
            (dims.remove(place) == 1).then(|| same(x, dims))?
        }
        Request::Expand(x, shape) => {
            let dims = outside(shape);
            size(&dims)?;
            (common(&table[*x].dims, &dims)? == dims).then(|| same(x, dims))?
        }
        Request::Roll(x, axis, _) | Request::Flip(x, axis) => {
            axis_index(rank(x), *axis).and_then(|_| same(x, table[*x].dims.clone()))
        }
        _ => None,
    }
}

fn fresh(request: &Request) -> Option<Answer> {
    let filled = |held: usize, shape: &[u32]| size(&outside(shape)) == Some(held as u64);
    match request {
        Request::Zeros(shape, dtype) | Request::Ones(shape, dtype) => one(outside(shape), *dtype),
        Request::Full(shape, value) => value.is_finite().then(|| one(outside(shape), DType::F32))?,
        Request::Arange(start, step, count) => {
            let last = f64::from(*start) + f64::from(*step) * f64::from(count.saturating_sub(1));
            let finite = start.is_finite() && step.is_finite() && (last as f32).is_finite();
            finite.then(|| one(vec![u64::from(*count)], DType::F32))?
        }
        Request::Numbers(values, shape) => filled(values.len(), shape).then(|| one(outside(shape), DType::F32))?,
        Request::Indices(values, shape) => filled(values.len(), shape).then(|| one(outside(shape), DType::U32))?,
        Request::Random(_, shape) => one(outside(shape), DType::F32),
        Request::Permutation(count) => one(vec![u64::from(*count)], DType::U32),
        _ => None,
    }
}
