//! Attention against whole score matrices in f64.

use candle_core::{D, DType, Device, Var};

use super::super::reference::{close, gradients, normal, numbers, same_on_two_threads};
use super::*;
use crate::parity::{TestDevice, on_each_device};

/// Lengths that no tile divides; the long one spans several tiles of keys and two blocks of the gradients.
const LENGTHS: [usize; 4] = [37, 0, 1, 530];

/// Small heads on ordinary cores: plain, grouped, with a narrow and a wide window, and with a soft cap.
fn shapes() -> [AttentionShape; 5] {
    let plain = AttentionShape { heads: 4, kv_heads: 4, head_dim: 6, scale: 0.4, window: None, soft_cap: None };
    [
        plain,
        AttentionShape { kv_heads: 2, ..plain },
        AttentionShape { kv_heads: 1, window: Some(9), ..plain },
        AttentionShape { heads: 6, kv_heads: 2, window: Some(300), ..plain },
        AttentionShape { kv_heads: 2, soft_cap: Some(1.5), ..plain },
    ]
}

/// Head sizes that are multiples of 8, which tensor cores take: sizes with tiles of their own, one that is rounded up,
/// and three whose features two blocks share.
fn even_shapes() -> [AttentionShape; 9] {
    let plain = AttentionShape { heads: 4, kv_heads: 2, head_dim: 64, scale: 0.125, window: None, soft_cap: None };
    [
        AttentionShape { window: Some(150), ..plain },
        AttentionShape { window: Some(70), soft_cap: Some(2.0), ..plain },
        AttentionShape { kv_heads: 1, head_dim: 56, soft_cap: Some(1.5), ..plain },
        AttentionShape { heads: 2, kv_heads: 1, head_dim: 80, scale: 0.11, ..plain },
        AttentionShape { heads: 2, kv_heads: 2, head_dim: 96, scale: 0.1, ..plain },
        AttentionShape { heads: 2, kv_heads: 1, head_dim: 128, scale: 0.09, window: Some(9), ..plain },
        AttentionShape { heads: 1, kv_heads: 1, head_dim: 136, scale: 0.08, ..plain },
        AttentionShape { heads: 1, kv_heads: 1, head_dim: 192, scale: 0.07, ..plain },
        AttentionShape { heads: 2, kv_heads: 2, head_dim: 256, scale: 0.0625, window: Some(100), ..plain },
    ]
}

/// Returns q, k, v and dout for `tokens` tokens: normal f32 numbers on the CPU, the same on every call.
fn inputs(shape: &AttentionShape, tokens: usize) -> [Tensor; 4] {
    let (wide, narrow) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let named = |name: &str, width| normal(name, &[tokens, width]);
    [named("q", wide), named("k", narrow), named("v", narrow), named("dout", wide)]
}

/// Returns the tensors of [`inputs`] on the device and in the type of a test.
fn inputs_on(on: &TestDevice, shape: &AttentionShape, tokens: usize) -> [Tensor; 4] {
    inputs(shape, tokens).map(|tensor| on.place(&tensor))
}

/// Returns the lengths of the sequences: shorter for a device, whose tiles are smaller than those of the CPU.
fn lengths(on: &TestDevice) -> [usize; 4] {
    if on.device.is_cpu() { LENGTHS } else { [37, 0, 1, 190] }
}

/// Returns the factor of the tolerance: 2 on a device, which sums the numbers of a product one after another, else 1.
fn times(on: &TestDevice) -> f64 {
    if on.device.is_cpu() { 1.0 } else { 2.0 }
}

/// Computes attention of one sequence with whole score matrices, in the type of the inputs. Returns the output,
/// `[tokens, heads · head_dim]`, and log Σ exp, `[tokens, heads]`.
fn reference(q: &Tensor, k: &Tensor, v: &Tensor, shape: &AttentionShape) -> (Tensor, Tensor) {
    let length = q.dim(0).unwrap();
    let split = |x: &Tensor, heads: usize| x.reshape((length, heads, shape.head_dim)).unwrap().transpose(0, 1).unwrap();
    let spread = |x: &Tensor| {
        let each = split(x, shape.kv_heads).unsqueeze(1).unwrap();
        let all = each.broadcast_as((shape.kv_heads, shape.group(), length, shape.head_dim)).unwrap();
        all.reshape((shape.heads, length, shape.head_dim)).unwrap()
    };
    let q = split(q, shape.heads).contiguous().unwrap();
    let scores = (q.matmul(&spread(k).t().unwrap()).unwrap() * f64::from(shape.scale)).unwrap();
    let scores = match shape.soft_cap {
        Some(cap) => ((scores / f64::from(cap)).unwrap().tanh().unwrap() * f64::from(cap)).unwrap(),
        None => scores,
    };
    let visible = |i: usize, j: usize| j <= i && shape.window.is_none_or(|window| i - j < window);
    let hidden = |i: usize, j: usize| if visible(i, j) { 0.0 } else { -1e300 };
    let mask: Vec<f64> = (0..length).flat_map(|i| (0..length).map(move |j| hidden(i, j))).collect();
    let mask = Tensor::from_vec(mask, (1, length, length), &Device::Cpu).unwrap();
    let scores = scores.broadcast_add(&mask).unwrap();
    let log = scores.log_sum_exp(D::Minus1).unwrap();
    let weights = scores.broadcast_sub(&log.unsqueeze(2).unwrap()).unwrap().exp().unwrap();
    let out = weights.matmul(&spread(v)).unwrap().transpose(0, 1).unwrap();
    (out.reshape((length, shape.heads * shape.head_dim)).unwrap(), log.t().unwrap())
}

/// Computes [`reference`] for each sequence of a packed batch and joins outputs and log Σ exp. No sequence continues
/// another.
fn packed_twin(leaves: [&Var; 3], segments: &Segments, shape: &AttentionShape) -> (Tensor, Tensor) {
    let ranges = segments.ranges().filter(|range| !range.is_empty());
    let (outs, logs): (Vec<_>, Vec<_>) = ranges
        .map(|range| {
            let [q, k, v] = leaves.map(|leaf| leaf.narrow(0, range.start, range.len()).unwrap());
            reference(&q, &k, &v, shape)
        })
        .unzip();
    (Tensor::cat(&outs, 0).unwrap(), Tensor::cat(&logs, 0).unwrap())
}

/// Asserts that a gradient agrees with its reference. In bf16 it is off by about 2⁻⁹ of itself for each rounding on the
/// way; a token that sees few keys may be off by more, since Σ dout·out is subtracted from a number hardly larger, and
/// `out` was rounded.
fn compare(on: &TestDevice, what: &str, found: &Tensor, reference: &Tensor) {
    if on.dtype == DType::F32 {
        return on.within(what, found, reference, 5e-6 * times(on));
    }
    on.within(what, found, reference, 2e-2);
    let (found, reference) = (numbers(&on.back(found)), numbers(reference));
    let apart: f64 = found.iter().zip(&reference).map(|(found, reference)| (found - reference).powi(2)).sum();
    let share = (apart / reference.iter().map(|reference| reference * reference).sum::<f64>()).sqrt();
    assert!(share < 4e-3, "{what}: off by {share} of its length");
}

// In bf16 weights are rounded before the product with the values on a device, and results everywhere, by up to 2⁻⁸ of
// themselves.
on_each_device! {
    fn output_and_gradients_agree_with_autograd_for_every_shape(on) tolerance(2e-6, 5e-3) {
        let segments = Segments::new(&lengths(on));
        for shape in shapes().into_iter().chain(even_shapes()) {
            let [q, k, v, dout] = inputs_on(on, &shape, segments.tokens());
            let (q64, k64, v64) = (on.leaf(&q), on.leaf(&k), on.leaf(&v));
            let (expected, logs) = packed_twin([&q64, &k64, &v64], &segments, &shape);
            let references = gradients(&expected, &on.leaf(&dout), &[&q64, &k64, &v64]);
            let (out, lse) = attention(&q, &k, &v, &segments, &shape).unwrap();
            assert_eq!((out.dtype(), lse.dtype()), (on.dtype, DType::F32));
            on.nearly("out", &out, &expected, times(on));
            on.within("lse", &lse, &logs, 1e-6 * times(on));
            let (dq, dk, dv) = attention_backward(&dout, &q, &k, &v, &out, &lse, &segments, &shape).unwrap();
            compare(on, "dq", &dq, &references[0]);
            compare(on, "dk", &dk, &references[1]);
            compare(on, "dv", &dv, &references[2]);
        }
    }
}

/// Returns a batch in which sequences continue others: a beginning of all, one of the first three within it, and an
/// unrelated sequence. No tile divides the lengths, which lie on both sides of a block of keys; one sequence adds no
/// token of its own.
fn branching(on: &TestDevice) -> Segments {
    let [second, fourth] = if on.device.is_cpu() { [250, 300] } else { [120, 80] };
    let pieces =
        [(37, None), (second, Some(0)), (1, Some(1)), (fourth, Some(1)), (0, Some(1)), (70, Some(0)), (19, None)];
    Segments::branching(&pieces).unwrap()
}

/// Returns the rows of the packed batch that make up each whole sequence of [`branching`].
fn lines(segments: &Segments) -> Vec<Vec<u32>> {
    let rows = |number| segments.path(number).into_iter().flat_map(|one| one.rows.start as u32..one.rows.end as u32);
    [2, 3, 4, 5, 6].into_iter().map(|number| rows(number).collect()).collect()
}

/// Gathers rows of a CPU tensor by number.
fn pick(tensor: &Tensor, rows: &[u32]) -> Tensor {
    tensor.index_select(&Tensor::new(rows, &Device::Cpu).unwrap(), 0).unwrap()
}

on_each_device! {
    fn a_shared_beginning_changes_no_bit(on) tolerance(0.0, 0.0) {
        let segments = branching(on);
        // The CPU walks large heads fast; a device has tiles of its own for each size.
        let more = if on.device.is_cpu() { wide_shapes().to_vec() } else { even_shapes().to_vec() };
        for shape in shapes().into_iter().chain(more) {
            let all = inputs(&shape, segments.tokens());
            let [q, k, v, _] = all.each_ref().map(|tensor| on.place(tensor));
            let (out, lse) = attention(&q, &k, &v, &segments, &shape).unwrap();
            for line in lines(&segments) {
                let [q, k, v, _] = all.each_ref().map(|tensor| on.place(&pick(tensor, &line)));
                let alone = attention(&q, &k, &v, &Segments::new(&[line.len()]), &shape).unwrap();
                for (what, alone, together) in [("output", &alone.0, &out), ("log Σ exp", &alone.1, &lse)] {
                    let bits = |tensor: &Tensor| numbers(tensor).into_iter().map(f64::to_bits).collect::<Vec<_>>();
                    let together = pick(&on.back(together), &line);
                    assert_eq!(bits(&on.back(alone)), bits(&together), "{what} of {} tokens, {shape:?}", line.len());
                }
            }
        }
    }
}

/// Head sizes of large models.
fn wide_shapes() -> [AttentionShape; 3] {
    let qwen = AttentionShape { heads: 14, kv_heads: 2, head_dim: 64, scale: 0.125, window: None, soft_cap: None };
    [
        qwen,
        AttentionShape { heads: 4, kv_heads: 1, head_dim: 256, scale: 0.0625, window: Some(100), ..qwen },
        AttentionShape { heads: 8, kv_heads: 8, head_dim: 128, scale: 0.09, ..qwen },
    ]
}

on_each_device! {
    fn gradients_of_a_shared_beginning_are_the_sums_of_all_that_go_on_from_it(on) tolerance(0.0, 0.0) {
        let segments = branching(on);
        for shape in shapes().into_iter().chain(even_shapes().into_iter().take(2)) {
            let [q, k, v, dout] = inputs_on(on, &shape, segments.tokens());
            let (q64, k64, v64) = (on.leaf(&q), on.leaf(&k), on.leaf(&v));
            let (out, lse) = attention(&q, &k, &v, &segments, &shape).unwrap();
            // A token counts once for every sequence that it is part of; here all seeds but those of one stand at 0.
            let mut seen = vec![false; segments.tokens()];
            let (mut expected, mut seeds) = (Vec::new(), Vec::new());
            for line in lines(&segments) {
                expected.push(reference(&pick(&q64, &line), &pick(&k64, &line), &pick(&v64, &line), &shape).0);
                let mask: Vec<f64> = line
                    .iter()
                    .map(|row| if std::mem::replace(&mut seen[*row as usize], true) { 0.0 } else { 1.0 })
                    .collect();
                let mask = Tensor::from_vec(mask, (line.len(), 1), &Device::Cpu).unwrap();
                seeds.push(pick(&on.leaf(&dout), &line).broadcast_mul(&mask).unwrap());
            }
            assert!(seen.iter().all(|seen| *seen));
            let seeds = Tensor::cat(&seeds, 0).unwrap().detach();
            let references = gradients(&Tensor::cat(&expected, 0).unwrap(), &seeds, &[&q64, &k64, &v64]);
            let (dq, dk, dv) = attention_backward(&dout, &q, &k, &v, &out, &lse, &segments, &shape).unwrap();
            compare(on, "dq", &dq, &references[0]);
            compare(on, "dk", &dk, &references[1]);
            compare(on, "dv", &dv, &references[2]);
        }
    }
}

#[test]
fn gradients_of_a_shared_beginning_agree_with_differences() {
    let segments = Segments::branching(&[(5, None), (3, Some(0)), (4, Some(0)), (2, Some(2))]).unwrap();
    let shape = AttentionShape { window: Some(6), soft_cap: Some(2.0), ..shapes()[1] };
    let [q, k, v, dout] = inputs(&shape, segments.tokens());
    let (out, lse) = attention(&q, &k, &v, &segments, &shape).unwrap();
    let (dq, dk, dv) = attention_backward(&dout, &q, &k, &v, &out, &lse, &segments, &shape).unwrap();
    let loss = |q: &Tensor, k: &Tensor, v: &Tensor| {
        let out = attention(q, k, v, &segments, &shape).unwrap().0;
        numbers(&out).iter().zip(numbers(&dout)).map(|(out, seed)| out * seed).sum::<f64>()
    };
    for (name, number, gradient) in [("q", 0, &dq), ("k", 1, &dk), ("v", 2, &dv)] {
        let step = normal(name, gradient.dims());
        let moved = |by: f64| {
            let mut all = [q.clone(), k.clone(), v.clone()];
            all[number] = (&all[number] + (&step * by).unwrap()).unwrap();
            loss(&all[0], &all[1], &all[2])
        };
        let found = (moved(1e-2) - moved(-1e-2)) / 2e-2;
        let expected: f64 = numbers(gradient).iter().zip(numbers(&step)).map(|(slope, step)| slope * step).sum();
        assert!((found - expected).abs() < 2e-3 * expected.abs().max(1.0), "d{name}: {found} for {expected}");
    }
}

on_each_device! {
    fn scores_far_apart_do_not_overflow(on) tolerance(0.0, 0.0) {
        for head_dim in [6, 16] {
            let shape = AttentionShape { heads: 1, kv_heads: 1, head_dim, scale: 40.0, window: None, soft_cap: None };
            let segments = Segments::new(&[300]);
            let [q, k, v, dout] = inputs_on(on, &shape, 300);
            let (out, lse) = attention(&q, &k, &v, &segments, &shape).unwrap();
            let (dq, dk, dv) = attention_backward(&dout, &q, &k, &v, &out, &lse, &segments, &shape).unwrap();
            for result in [out, lse, dq, dk, dv] {
                assert!(numbers(&on.back(&result)).iter().all(|number| number.is_finite()));
            }
        }
    }

    fn nothing_but_empty_sequences_gives_nothing(on) tolerance(0.0, 0.0) {
        let (segments, shape) = (Segments::new(&[0, 0]), shapes()[0]);
        let [q, k, v, dout] = inputs_on(on, &shape, 0);
        let (out, lse) = attention(&q, &k, &v, &segments, &shape).unwrap();
        let (dq, dk, _) = attention_backward(&dout, &q, &k, &v, &out, &lse, &segments, &shape).unwrap();
        assert_eq!([out.dims(), dq.dims(), dk.dims()], [q.dims(), q.dims(), k.dims()]);
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let segments = Segments::new(&[600, 75]);
    let shape = AttentionShape { heads: 4, kv_heads: 2, head_dim: 16, scale: 0.25, window: None, soft_cap: None };
    let [q, k, v, dout] = inputs(&shape, segments.tokens());
    same_on_two_threads(|| {
        let (out, lse) = attention(&q, &k, &v, &segments, &shape).unwrap();
        let (dq, dk, dv) = attention_backward(&dout, &q, &k, &v, &out, &lse, &segments, &shape).unwrap();
        vec![out, lse, dq, dk, dv]
    });
}

#[test]
fn a_sequence_does_not_depend_on_its_neighbors() {
    let shape = shapes()[1];
    let [q, k, v, _] = inputs(&shape, 50);
    let (both, _) = attention(&q, &k, &v, &Segments::new(&[20, 30]), &shape).unwrap();
    let [q, k, v] = [q, k, v].map(|x| x.narrow(0, 20, 30).unwrap().copy().unwrap());
    let (alone, _) = attention(&q, &k, &v, &Segments::new(&[30]), &shape).unwrap();
    close("second sequence", &alone, &both.narrow(0, 20, 30).unwrap(), 0.0);
}

#[test]
fn heads_that_cannot_be_shared_and_empty_windows_are_refused() {
    let shape = shapes()[0];
    let [q, k, v, _] = inputs(&shape, 5);
    let try_with = |shape: AttentionShape| attention(&q, &k, &v, &Segments::new(&[5]), &shape);
    assert!(matches!(try_with(AttentionShape { kv_heads: 3, ..shape }), Err(Error::Shape(_))));
    assert!(matches!(try_with(AttentionShape { kv_heads: 0, ..shape }), Err(Error::Shape(_))));
    assert!(matches!(try_with(AttentionShape { window: Some(0), ..shape }), Err(Error::Argument(_))));
    assert!(matches!(attention(&q, &k, &v, &Segments::new(&[4]), &shape), Err(Error::Shape(_))));
    let whole = Tensor::zeros(q.dims(), DType::U32, &Device::Cpu).unwrap();
    assert!(matches!(attention(&whole, &k, &v, &Segments::new(&[5]), &shape), Err(Error::Dtype(_))));
}
