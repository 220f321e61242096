//! Small results again, by plain loops over `f64`.

use tunebox_compute::{DType, Tensor};

use super::request::{ARITHMETIC, COMPARISONS, Request, UNARY};

/// Numbers of the largest tensor that is recomputed.
const SMALL: usize = 256;

/// What a result should hold, and how far each number may be off.
struct Expected {
    numbers: Vec<f64>,
    slack: Vec<f64>,
}

impl Expected {
    fn exactly(numbers: Vec<f64>) -> Self {
        let slack = vec![0.0; numbers.len()];
        Self { numbers, slack }
    }

    /// One rounding or a few of a 32-bit number.
    fn about(numbers: Vec<f64>) -> Self {
        let slack = numbers.iter().map(|number| number.abs() * 2e-6 + 1e-37).collect();
        Self { numbers, slack }
    }
}

/// Compares a result with plain arithmetic where both are small and of 32 or 64 bits.
pub(super) fn compare(request: &Request, table: &[Tensor], output: &Tensor) {
    let wide = matches!(output.dtype(), DType::F32 | DType::F64 | DType::U8 | DType::U32);
    if !wide || output.elem_count() > SMALL {
        return;
    }
    let (Some(expected), Some(found)) = (expected(request, table, output.dims()), numbers(output)) else { return };
    assert_eq!(expected.numbers.len(), found.len(), "{request:?}");
    for ((wanted, slack), found) in expected.numbers.iter().zip(&expected.slack).zip(&found) {
        // What 32 bits make of it, infinite where it does not fit.
        let wanted = if output.dtype() == DType::F32 { f64::from(*wanted as f32) } else { *wanted };
        let same = wanted == *found || (wanted.is_nan() && found.is_nan()) || (wanted - found).abs() <= *slack;
        let border = wanted.abs() > 3.4e38 && found.abs() > 3.4e38 && wanted.signum() == found.signum();
        assert!(same || border, "{request:?}: {found} is not {wanted}");
    }
}

fn numbers(x: &Tensor) -> Option<Vec<f64>> {
    if x.elem_count() > SMALL || matches!(x.dtype(), DType::F16 | DType::BF16) {
        return None;
    }
    x.detach().contiguous().ok()?.flatten_all().ok()?.to_dtype(DType::F64).ok()?.to_vec1().ok()
}

/// The place in a tensor of shape `dims` that a place of the common shape stands for.
fn spread(dims: &[usize], common: &[usize], place: &[usize]) -> usize {
    let skipped = common.len() - dims.len();
    dims.iter()
        .zip(&place[skipped..])
        .fold(0, |at, (length, index)| at * length + if *length == 1 { 0 } else { *index })
}

/// Every place of a shape, in order.
fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let count: usize = dims.iter().product();
    let dims = dims.to_vec();
    (0..count).map(move |mut rest| {
        let mut place = vec![0; dims.len()];
        for (index, length) in place.iter_mut().zip(&dims).rev() {
            *index = rest % length;
            rest /= length;
        }
        place
    })
}

/// A number of each place of a result.
fn each(dims: &[usize], one: impl Fn(&[usize]) -> Option<f64>) -> Option<Vec<f64>> {
    indices(dims).map(|place| one(&place)).collect()
}

fn axis_of(x: &Tensor, axis: i32) -> usize {
    axis.rem_euclid(x.rank().max(1) as i32) as usize
}

fn expected(request: &Request, table: &[Tensor], dims: &[usize]) -> Option<Expected> {
    let at = |place: &usize| &table[*place];
    let on = |x: &Tensor, numbers: &[f64], place: &[usize]| numbers.get(spread(x.dims(), dims, place)).copied();
    match request {
        Request::Elementwise(number, x) => {
            let values: Vec<f64> = numbers(at(x))?.into_iter().map(UNARY[*number].1).collect();
            let slack = values.iter().map(|value| value.abs() * 1e-5 + 1e-6).collect();
            Some(Expected { numbers: values, slack })
        }
        Request::Arithmetic(number, a, b) => {
            let (a, b) = (at(a), at(b));
            let (left, right) = (numbers(a)?, numbers(b)?);
            let one = |place: &[usize]| Some(ARITHMETIC[*number].1(on(a, &left, place)?, on(b, &right, place)?));
            Some(Expected::about(each(dims, one)?))
        }
        Request::Compare(number, a, b) => {
            let (a, b) = (at(a), at(b));
            let (left, right) = (numbers(a)?, numbers(b)?);
            let one = |place: &[usize]| {
                Some(f64::from(u8::from(COMPARISONS[*number].1(on(a, &left, place)?, on(b, &right, place)?))))
            };
            Some(Expected::exactly(each(dims, one)?))
        }
        Request::Where(condition, a, b) => {
            let (condition, a, b) = (at(condition), at(a), at(b));
            let (truth, left, right) = (numbers(condition)?, numbers(a)?, numbers(b)?);
            let one = |place: &[usize]| {
                if on(condition, &truth, place)? == 0.0 { on(b, &right, place) } else { on(a, &left, place) }
            };
            Some(Expected::exactly(each(dims, one)?))
        }
        Request::Reduce(number, x, None, _) if *number < 4 => reduced(*number, numbers(at(x))?),
        Request::Numbers(values, _) => Some(Expected::exactly(values.iter().copied().map(f64::from).collect())),
        Request::Indices(values, _) => Some(Expected::exactly(values.iter().copied().map(f64::from).collect())),
        _ => moved(request, table, dims).map(Expected::exactly),
    }
}

/// Sum, mean, largest, smallest of everything.
fn reduced(number: usize, numbers: Vec<f64>) -> Option<Expected> {
    let size: f64 = numbers.iter().map(|number| number.abs()).sum();
    let poisoned = numbers.iter().any(|number| number.is_nan());
    let value = match number {
        // Partial sums that overflow 32 bits depend on their order.
        0 | 1 if size.is_nan() || size > 1e37 => return None,
        0 => numbers.iter().sum(),
        1 => numbers.iter().sum::<f64>() / numbers.len() as f64,
        _ if poisoned => f64::NAN,
        2 => numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        _ => numbers.iter().copied().fold(f64::INFINITY, f64::min),
    };
    Some(Expected { numbers: vec![value], slack: vec![if number < 2 { size * 1e-5 + 1e-37 } else { 0.0 }] })
}

/// Results that hold numbers of an operand at other places.
fn moved(request: &Request, table: &[Tensor], dims: &[usize]) -> Option<Vec<f64>> {
    let from = |x: &Tensor, axis: usize, map: &dyn Fn(usize) -> Option<usize>| {
        let held = numbers(x)?;
        each(dims, |place| {
            let mut place = place.to_vec();
            *place.get_mut(axis)? = map(place[axis])?;
            held.get(spread(x.dims(), x.dims(), &place)).copied()
        })
    };
    match request {
        Request::Reshape(x, _) | Request::Unsqueeze(x, _) | Request::Squeeze(x, _) | Request::Detach(x) => {
            numbers(&table[*x])
        }
        Request::Expand(x, _) => {
            let (x, held) = (&table[*x], numbers(&table[*x])?);
            each(dims, |place| held.get(spread(x.dims(), dims, place)).copied())
        }
        Request::Slice(x, axis, start, _) => {
            let x = &table[*x];
            from(x, axis_of(x, *axis), &|index| Some(index + *start as usize))
        }
        Request::Flip(x, axis) => {
            let x = &table[*x];
            let axis = axis_of(x, *axis);
            from(x, axis, &|index| Some(x.dims()[axis] - 1 - index))
        }
        Request::Roll(x, axis, shift) => {
            let x = &table[*x];
            let axis = axis_of(x, *axis);
            let length = x.dims()[axis] as i64;
            from(x, axis, &|index| Some((index as i64 - i64::from(*shift)).rem_euclid(length) as usize))
        }
        Request::Select(x, axis, index) => {
            let (x, index) = (&table[*x], numbers(&table[*index])?);
            from(x, axis_of(x, *axis), &|place| index.get(place).map(|index| *index as usize))
        }
        Request::Transpose(x, first, second) => {
            let (x, held) = (&table[*x], numbers(&table[*x])?);
            let (first, second) = (axis_of(x, *first), axis_of(x, *second));
            each(dims, |place| {
                let mut place = place.to_vec();
                place.swap(first, second);
                held.get(spread(x.dims(), x.dims(), &place)).copied()
            })
        }
        Request::Gather(x, axis, index) => {
            let (x, held, index) = (&table[*x], numbers(&table[*x])?, &table[*index]);
            let (axis, chosen) = (axis_of(x, *axis), numbers(index)?);
            each(dims, |place| {
                let mut source = place.to_vec();
                source[axis] = *chosen.get(spread(index.dims(), index.dims(), place))? as usize;
                held.get(spread(x.dims(), x.dims(), &source)).copied()
            })
        }
        _ => None,
    }
}
