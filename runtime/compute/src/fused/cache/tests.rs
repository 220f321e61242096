//! Cached steps against attention over whole sequences, and sequences that go on from others.

use candle_core::DType;

use super::super::reference::normal;
use super::super::segments::Segments;
use super::*;
use crate::fused::attention;
use crate::parity::{TestDevice, on_each_device};

const SHAPE: AttentionShape =
    AttentionShape { heads: 4, kv_heads: 2, head_dim: 6, scale: 0.4, window: None, soft_cap: None };

/// Shapes with and without heads of multiples of 8, a window, a cap, a group that is no power of two, and features that
/// 16 and 32 lanes of a device share.
fn shapes() -> [AttentionShape; 7] {
    [
        SHAPE,
        AttentionShape { kv_heads: 1, window: Some(9), ..SHAPE },
        AttentionShape { heads: 6, head_dim: 16, window: Some(300), ..SHAPE },
        AttentionShape { soft_cap: Some(1.5), ..SHAPE },
        AttentionShape { heads: 14, head_dim: 64, scale: 0.125, ..SHAPE },
        AttentionShape { head_dim: 128, scale: 0.09, ..SHAPE },
        AttentionShape { heads: 2, kv_heads: 1, head_dim: 136, scale: 0.08, ..SHAPE },
    ]
}

/// Returns q, k and v for `tokens` tokens: normal f32 numbers on the CPU, the same on every call.
fn inputs(shape: &AttentionShape, tokens: usize) -> [Tensor; 3] {
    let (wide, narrow) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    [("q", wide), ("k", narrow), ("v", narrow)].map(|(name, width)| normal(name, &[tokens, width]))
}

/// Gathers rows of a CPU tensor and puts them on the device and in the type of a test.
fn pick(on: &TestDevice, from: &Tensor, rows: &[u32]) -> Tensor {
    let rows = Tensor::new(rows, &Device::Cpu).unwrap();
    on.place(&from.index_select(&rows, 0).unwrap())
}

/// Appends the rows of `k` and `v` that `growth` lists for each slot to layer 0, then attends with the query of each
/// slot's last row. Returns the outputs, one row for each slot.
fn grow(
    on: &TestDevice,
    cache: &mut KvCache,
    growth: &[(usize, &[u32])],
    [q, k, v]: &[Tensor; 3],
    shape: &AttentionShape,
) -> Tensor {
    let pass = cache.begin(growth.iter().map(|(slot, rows)| (*slot, rows.len()))).unwrap();
    let rows: Vec<u32> = growth.iter().flat_map(|(_, rows)| rows.iter().copied()).collect();
    cache.append(&pass, 0, &pick(on, k, &rows), &pick(on, v, &rows), shape).unwrap();
    let lasts: Vec<u32> = growth.iter().map(|(_, rows)| *rows.last().unwrap()).collect();
    cache.attend(&pass, 0, &pick(on, q, &lasts), shape).unwrap()
}

/// Computes attention without a cache over a sequence of these rows and returns its last row, `[1, heads · head_dim]`
/// on the CPU.
fn whole(on: &TestDevice, rows: &[u32], [q, k, v]: &[Tensor; 3], shape: &AttentionShape) -> Tensor {
    let [q, k, v] = [q, k, v].map(|tensor| pick(on, tensor, rows));
    let (out, _) = attention(&q, &k, &v, &Segments::new(&[rows.len()]), shape).unwrap();
    on.back(&out).narrow(0, rows.len() - 1, 1).unwrap()
}

on_each_device! {
    /// One sequence spans several pages and chunks, and comes in passes of unequal lengths.
    fn a_cached_step_gives_the_last_row_of_the_whole(on) tolerance(2e-6, 3e-3) {
        // In bf16 and on a device both sides are off: the whole rounds the weights of the softmax, and neither sums as
        // the other does.
        let times = if on.device.is_cpu() && on.dtype == DType::F32 { 1.0 } else { 3.0 };
        for shape in shapes() {
            let tensors = inputs(&shape, 540);
            let mut cache = KvCache::new(3, 1, &on.device).unwrap();
            let rows: Vec<u32> = (0..540).collect();
            let (long, short) = (&rows[..530], &rows[530..]);
            grow(on, &mut cache, &[(2, &long[..300]), (0, &short[..1])], &tensors, &shape);
            grow(on, &mut cache, &[(1, &short[2..8]), (2, &long[300..529])], &tensors, &shape);
            let found = grow(on, &mut cache, &[(0, &short[1..2]), (2, &long[529..]), (1, &short[8..9])], &tensors, &shape);
            let sequences = [&short[..2], long, &short[2..9]];
            assert_eq!([0, 2, 1].map(|slot| cache.length(slot)), sequences.map(<[u32]>::len));
            let expected = sequences.map(|rows| whole(on, rows, &tensors, &shape));
            on.nearly("step", &found, &Tensor::cat(&expected, 0).unwrap(), times);
        }
    }

    /// A full page and an unfinished one; what grows on one side must not show on the other.
    fn a_sequence_that_goes_on_from_another_is_as_if_alone(on) tolerance(0.0, 0.0) {
        let tensors = inputs(&SHAPE, 300);
        let rows: Vec<u32> = (0..300).collect();
        for beginning in [70, 64, 128, 5] {
            let mut cache = KvCache::new(3, 1, &on.device).unwrap();
            grow(on, &mut cache, &[(0, &rows[..beginning])], &tensors, &SHAPE);
            // What was there before is gone.
            grow(on, &mut cache, &[(2, &rows[200..210])], &tensors, &SHAPE);
            cache.fork(0, 2).unwrap();
            grow(on, &mut cache, &[(0, &rows[220..221]), (2, &rows[230..231])], &tensors, &SHAPE);
            let found = grow(on, &mut cache, &[(0, &rows[221..222]), (2, &rows[231..232])], &tensors, &SHAPE);
            for (row, own) in [220..222, 230..232].into_iter().enumerate() {
                let line = [&rows[..beginning], &rows[own]].concat();
                let mut alone = KvCache::new(1, 1, &on.device).unwrap();
                let expected = grow(on, &mut alone, &[(0, line.as_slice())], &tensors, &SHAPE);
                let found = on.back(&found).narrow(0, row, 1).unwrap();
                on.close("forked", &found, &on.back(&expected));
            }
        }
    }

    /// Pages that were given back hold other numbers when they are given out again.
    fn a_cleared_slot_begins_anew(on) tolerance(0.0, 0.0) {
        let tensors = inputs(&SHAPE, 300);
        let rows: Vec<u32> = (0..300).collect();
        let mut cache = KvCache::new(2, 1, &on.device).unwrap();
        grow(on, &mut cache, &[(0, &rows[..150]), (1, &rows[150..160])], &tensors, &SHAPE);
        cache.clear_slot(0);
        assert_eq!((cache.length(0), cache.length(1)), (0, 10));
        let first = grow(on, &mut cache, &[(1, &rows[160..260])], &tensors, &SHAPE);
        let second = grow(on, &mut cache, &[(0, &rows[..90])], &tensors, &SHAPE);
        for (found, rows) in [(first, &rows[150..260]), (second, &rows[..90])] {
            let mut alone = KvCache::new(1, 1, &on.device).unwrap();
            let expected = grow(on, &mut alone, &[(0, rows)], &tensors, &SHAPE);
            on.close("after others", &found, &on.back(&expected));
        }
    }

    fn slots_and_layers_that_are_not_there_are_refused(on) tolerance(0.0, 0.0) {
        let [q, k, v] = inputs(&SHAPE, 2).map(|tensor| on.place(&tensor));
        let mut cache = KvCache::new(2, 1, &on.device).unwrap();
        assert!(matches!(cache.begin([(2, 1)]), Err(Error::Argument(_))));
        assert!(matches!(cache.begin([(1, 1), (1, 1)]), Err(Error::Argument(_))));
        assert!(matches!(cache.fork(0, 2), Err(Error::Argument(_))));
        let pass = cache.begin([(0, 1), (1, 1)]).unwrap();
        assert!(matches!(cache.append(&pass, 1, &k, &v, &SHAPE), Err(Error::Argument(_))));
        assert!(matches!(cache.append(&pass, 0, &q, &v, &SHAPE), Err(Error::Shape(_))));
        assert!(cache.attend(&pass, 0, &q, &SHAPE).is_err(), "nothing was kept");
        assert_eq!((cache.length(7), cache.length(0)), (0, 1));
    }
}
