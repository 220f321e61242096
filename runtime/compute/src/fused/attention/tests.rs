//! Attention against whole score matrices in f64.

use candle_core::{D, DType, Device, Var};

use super::super::twin::{bits, close, gradients, leaf, normal, numbers, same_on_two_threads};
use super::*;

/// Lengths that no tile divides; the long one spans several tiles of keys and two blocks of the gradients.
const LENGTHS: [usize; 4] = [37, 0, 1, 530];

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

fn inputs(shape: &AttentionShape, tokens: usize) -> [Tensor; 4] {
    let (wide, narrow) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let named = |name: &str, width| normal(name, &[tokens, width]);
    [named("q", wide), named("k", narrow), named("v", narrow), named("dout", wide)]
}

/// The output of one sequence, with its scores as one matrix a head.
fn twin(q: &Tensor, k: &Tensor, v: &Tensor, shape: &AttentionShape) -> (Tensor, Tensor) {
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

/// The twin of a packed batch.
fn packed_twin(leaves: [&Var; 3], segments: &Segments, shape: &AttentionShape) -> (Tensor, Tensor) {
    let ranges = segments.ranges().filter(|range| !range.is_empty());
    let (outs, logs): (Vec<_>, Vec<_>) = ranges
        .map(|range| {
            let [q, k, v] = leaves.map(|leaf| leaf.narrow(0, range.start, range.len()).unwrap());
            twin(&q, &k, &v, shape)
        })
        .unzip();
    (Tensor::cat(&outs, 0).unwrap(), Tensor::cat(&logs, 0).unwrap())
}

#[test]
fn output_and_gradients_agree_with_autograd_for_every_shape() {
    let segments = Segments::new(&LENGTHS);
    for shape in shapes() {
        let [q, k, v, dout] = inputs(&shape, segments.tokens());
        let (q64, k64, v64) = (leaf(&q), leaf(&k), leaf(&v));
        let (expected, logs) = packed_twin([&q64, &k64, &v64], &segments, &shape);
        let twins = gradients(&expected, &dout, &[&q64, &k64, &v64]);
        let (out, lse) = attention(&q, &k, &v, &segments, &shape).unwrap();
        close("out", &out, &expected, 2e-6);
        close("lse", &lse, &logs, 1e-6);
        let (dq, dk, dv) = attention_backward(&dout, &q, &k, &v, &out, &lse, &segments, &shape).unwrap();
        close("dq", &dq, &twins[0], 5e-6);
        close("dk", &dk, &twins[1], 5e-6);
        close("dv", &dv, &twins[2], 5e-6);
    }
}

/// What rows begin with is there once: a beginning of all, one of the first three within it, and a row of its own.
/// Lengths that no tile divides, on both sides of a block of keys; one row ends where what it shares ends.
fn branching() -> Segments {
    let pieces = [(37, None), (250, Some(0)), (1, Some(1)), (300, Some(1)), (0, Some(1)), (70, Some(0)), (19, None)];
    Segments::branching(&pieces).unwrap()
}

/// The rows of the packed batch that each whole sequence is made of.
fn lines(segments: &Segments) -> Vec<Vec<u32>> {
    let rows = |number| segments.path(number).into_iter().flat_map(|one| one.rows.start as u32..one.rows.end as u32);
    [2, 3, 4, 5, 6].into_iter().map(|number| rows(number).collect()).collect()
}

#[test]
fn a_shared_beginning_changes_no_bit() {
    let segments = branching();
    for shape in shapes().into_iter().chain(wide_shapes()) {
        let [q, k, v, _] = inputs(&shape, segments.tokens());
        let (out, lse) = attention(&q, &k, &v, &segments, &shape).unwrap();
        for line in lines(&segments) {
            let rows = Tensor::new(line.as_slice(), &Device::Cpu).unwrap();
            let pick = |x: &Tensor| x.index_select(&rows, 0).unwrap();
            let alone = attention(&pick(&q), &pick(&k), &pick(&v), &Segments::new(&[line.len()]), &shape).unwrap();
            assert_eq!(bits(&alone.0), bits(&pick(&out)), "output of {} tokens, {shape:?}", line.len());
            assert_eq!(bits(&alone.1), bits(&pick(&lse)), "log Σ exp of {} tokens, {shape:?}", line.len());
        }
    }
}

/// Heads as large models have them.
fn wide_shapes() -> [AttentionShape; 3] {
    let qwen = AttentionShape { heads: 14, kv_heads: 2, head_dim: 64, scale: 0.125, window: None, soft_cap: None };
    [
        qwen,
        AttentionShape { heads: 4, kv_heads: 1, head_dim: 256, scale: 0.0625, window: Some(100), ..qwen },
        AttentionShape { heads: 8, kv_heads: 8, head_dim: 128, scale: 0.09, ..qwen },
    ]
}

#[test]
fn gradients_of_a_shared_beginning_are_the_sums_of_all_that_go_on_from_it() {
    let segments = branching();
    for shape in shapes() {
        let [q, k, v, dout] = inputs(&shape, segments.tokens());
        let (q64, k64, v64) = (leaf(&q), leaf(&k), leaf(&v));
        let (out, lse) = attention(&q, &k, &v, &segments, &shape).unwrap();
        // A token counts once for every sequence that it is part of; here all seeds but those of one stand at 0.
        let mut seen = vec![false; segments.tokens()];
        let (mut expected, mut seeds) = (Vec::new(), Vec::new());
        for line in lines(&segments) {
            let rows = Tensor::new(line.as_slice(), &Device::Cpu).unwrap();
            let pick = |x: &Tensor| x.index_select(&rows, 0).unwrap();
            expected.push(twin(&pick(&q64), &pick(&k64), &pick(&v64), &shape).0);
            let mask: Vec<f32> = line
                .iter()
                .map(|row| if std::mem::replace(&mut seen[*row as usize], true) { 0.0 } else { 1.0 })
                .collect();
            let mask = Tensor::from_vec(mask, (line.len(), 1), &Device::Cpu).unwrap();
            seeds.push(pick(&dout).broadcast_mul(&mask).unwrap());
        }
        assert!(seen.iter().all(|seen| *seen));
        let twins =
            gradients(&Tensor::cat(&expected, 0).unwrap(), &Tensor::cat(&seeds, 0).unwrap(), &[&q64, &k64, &v64]);
        let (dq, dk, dv) = attention_backward(&dout, &q, &k, &v, &out, &lse, &segments, &shape).unwrap();
        close("dq", &dq, &twins[0], 5e-6);
        close("dk", &dk, &twins[1], 5e-6);
        close("dv", &dv, &twins[2], 5e-6);
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

#[test]
fn a_cached_step_gives_the_last_row_of_the_whole() {
    let lengths = [41, 7, 1];
    let segments = Segments::new(&lengths);
    for shape in shapes() {
        let [q, k, v, _] = inputs(&shape, segments.tokens());
        let (whole, _) = attention(&q, &k, &v, &segments, &shape).unwrap();
        let last: Vec<u32> = segments.ranges().map(|range| range.end as u32 - 1).collect();
        let last = Tensor::new(last, &Device::Cpu).unwrap();
        let (keys, values): (Vec<f32>, Vec<f32>) =
            (k.flatten_all().unwrap().to_vec1().unwrap(), v.flatten_all().unwrap().to_vec1().unwrap());
        let width = shape.kv_heads * shape.head_dim;
        let cut = |numbers: &'static [f32]| -> Vec<&'static [f32]> {
            segments.ranges().map(|range| &numbers[range.start * width..range.end * width]).collect()
        };
        let (keys, values) = (cut(keys.leak()), cut(values.leak()));
        let found = attention_cached(&q.index_select(&last, 0).unwrap(), &keys, &values, &shape).unwrap();
        close("step", &found, &whole.index_select(&last, 0).unwrap(), 2e-6);
    }
}

#[test]
fn scores_far_apart_do_not_overflow() {
    let shape = AttentionShape { heads: 1, kv_heads: 1, head_dim: 6, scale: 40.0, window: None, soft_cap: None };
    let segments = Segments::new(&[300]);
    let [q, k, v, dout] = inputs(&shape, 300);
    let (out, lse) = attention(&q, &k, &v, &segments, &shape).unwrap();
    let (dq, dk, dv) = attention_backward(&dout, &q, &k, &v, &out, &lse, &segments, &shape).unwrap();
    for result in [out, lse, dq, dk, dv] {
        assert!(result.flatten_all().unwrap().to_vec1::<f32>().unwrap().iter().all(|number| number.is_finite()));
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
fn a_sequence_does_not_depend_on_its_neighbours() {
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
