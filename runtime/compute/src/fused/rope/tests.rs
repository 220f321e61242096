//! Rotary positions against plain operations in f64.

use candle_core::{Device, IndexOp, Var};

use super::super::twin::{close, gradients, leaf, normal, same_on_two_threads};
use super::*;

const FREQUENCIES: [f64; 3] = [1.0, 0.1, 0.01];
const POSITIONS: [u32; 5] = [0, 1, 2, 0, 9];

/// The turn with cosines and sines as matrices, head by head.
fn twin(x: &Var, heads: usize, factor: f64) -> Tensor {
    let (tokens, features) = x.dims2().unwrap();
    let half = FREQUENCIES.len();
    let angles: Vec<f64> = POSITIONS.iter().flat_map(|p| FREQUENCIES.map(|f| f64::from(*p) * f)).collect();
    let angles = Tensor::from_vec(angles, (tokens, 1, half), &Device::Cpu).unwrap();
    let (cos, sin) = ((angles.cos().unwrap() * factor).unwrap(), (angles.sin().unwrap() * factor).unwrap());
    let x = x.reshape((tokens, heads, features / heads)).unwrap();
    let (a, b) = (x.i((.., .., ..half)).unwrap(), x.i((.., .., half..2 * half)).unwrap());
    let first = (a.broadcast_mul(&cos).unwrap() - b.broadcast_mul(&sin).unwrap()).unwrap();
    let second = (b.broadcast_mul(&cos).unwrap() + a.broadcast_mul(&sin).unwrap()).unwrap();
    let rest = x.i((.., .., 2 * half..)).unwrap();
    Tensor::cat(&[first, second, rest], 2).unwrap().reshape((tokens, features)).unwrap()
}

#[test]
fn the_turn_and_its_gradient_agree_with_autograd() {
    for (heads, width, factor) in [(3, 6, 1.0), (2, 8, 1.25)] {
        let (x, dy) = (normal("x", &[5, heads * width]), normal("dy", &[5, heads * width]));
        let table = RopeTable::from_frequencies(&FREQUENCIES, 10, factor);
        let x64 = leaf(&x);
        let expected = twin(&x64, heads, factor);
        close("y", &rope(&x, heads, &POSITIONS, &table, false).unwrap(), &expected, 1e-6);
        let back = rope(&dy, heads, &POSITIONS, &table, true).unwrap();
        close("dx", &back, &gradients(&expected, &dy, &[&x64])[0], 1e-6);
    }
}

#[test]
fn turning_back_undoes_the_turn() {
    let x = normal("x", &[5, 12]);
    let table = RopeTable::from_frequencies(&FREQUENCIES, 10, 1.0);
    let turned = rope(&x, 2, &POSITIONS, &table, false).unwrap();
    close("x", &rope(&turned, 2, &POSITIONS, &table, true).unwrap(), &x, 1e-6);
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let x = normal("x", &[900, 96]);
    let positions: Vec<u32> = (0..900).map(|token| token % 10).collect();
    let table = RopeTable::from_frequencies(&FREQUENCIES, 10, 1.0);
    same_on_two_threads(|| vec![rope(&x, 8, &positions, &table, false).unwrap()]);
}

#[test]
fn positions_past_the_table_and_odd_heads_are_refused() {
    let (x, table) = (normal("x", &[1, 12]), RopeTable::from_frequencies(&FREQUENCIES, 10, 1.0));
    assert!(matches!(rope(&x, 2, &[10], &table, false), Err(Error::Argument(_))));
    assert!(matches!(rope(&x, 2, &[1, 2], &table, false), Err(Error::Shape(_))));
    assert!(matches!(rope(&x, 5, &[1], &table, false), Err(Error::Shape(_))));
    assert!(matches!(rope(&x, 4, &[1], &table, false), Err(Error::Shape(_))), "heads narrower than the turn");
}
