//! Rotary positions against plain operations in f64.

use candle_core::{Device, IndexOp, Var};

use super::super::reference::{close, gradients, normal, same_on_two_threads};
use super::*;
use crate::parity::on_each_device;

const FREQUENCIES: [f64; 3] = [1.0, 0.1, 0.01];
const POSITIONS: [u32; 5] = [0, 1, 2, 0, 9];

fn positions() -> Indices {
    POSITIONS.to_vec().into()
}

/// Rotates the heads by plain operations with matrices of cosines and sines, at [`POSITIONS`].
fn reference(x: &Var, heads: usize, frequencies: &[f64], factor: f64, adjacent: bool) -> Tensor {
    let (tokens, features) = x.dims2().unwrap();
    let half = frequencies.len();
    let angles: Vec<f64> = POSITIONS.iter().flat_map(|p| frequencies.iter().map(|f| f64::from(*p) * f)).collect();
    let angles = Tensor::from_vec(angles, (tokens, 1, half), &Device::Cpu).unwrap();
    let (cos, sin) = ((angles.cos().unwrap() * factor).unwrap(), (angles.sin().unwrap() * factor).unwrap());
    let x = x.reshape((tokens, heads, features / heads)).unwrap();
    let (a, b) = if adjacent {
        let pairs = x.i((.., .., ..2 * half)).unwrap().reshape((tokens, heads, half, 2)).unwrap();
        (pairs.i((.., .., .., 0)).unwrap(), pairs.i((.., .., .., 1)).unwrap())
    } else {
        (x.i((.., .., ..half)).unwrap(), x.i((.., .., half..2 * half)).unwrap())
    };
    let first = (a.broadcast_mul(&cos).unwrap() - b.broadcast_mul(&sin).unwrap()).unwrap();
    let second = (b.broadcast_mul(&cos).unwrap() + a.broadcast_mul(&sin).unwrap()).unwrap();
    let rest = x.i((.., .., 2 * half..)).unwrap();
    let turned = if adjacent {
        Tensor::stack(&[first, second], 3).unwrap().reshape((tokens, heads, 2 * half)).unwrap()
    } else {
        Tensor::cat(&[first, second], 2).unwrap()
    };
    Tensor::cat(&[turned, rest], 2).unwrap().reshape((tokens, features)).unwrap()
}

// In bf16 a result is rounded once, by 2⁻⁸ of itself at most.
on_each_device! {
    fn the_turn_and_its_gradient_agree_with_autograd(on) tolerance(1e-6, 4e-3) {
        // Pairs one by one with a tail that stays, and eight at a time without and with one.
        let eights: Vec<f64> = (0..16).map(|at| 0.5_f64.powi(at)).collect();
        let (some, many) = (&FREQUENCIES[..], &eights[..]);
        let layers = [(3, 6, some, 1.0), (2, 8, some, 1.25), (3, 32, many, 1.0), (2, 40, many, 1.25)];
        let both = layers.into_iter().flat_map(|layer| [(layer, false), (layer, true)]);
        for ((heads, width, frequencies, factor), adjacent) in both {
            let (x, dy) = (on.normal("x", &[5, heads * width]), on.normal("dy", &[5, heads * width]));
            let table = RopeTable::from_frequencies(frequencies, 10, factor).with_adjacent_pairs(adjacent);
            let x64 = on.leaf(&x);
            let expected = reference(&x64, heads, frequencies, factor, adjacent);
            on.close("y", &rope(&x, heads, &positions(), &table, false).unwrap(), &expected);
            let back = rope(&dy, heads, &positions(), &table, true).unwrap();
            on.close("dx", &back, &gradients(&expected, &on.leaf(&dy), &[&x64])[0]);
        }
    }
}

#[test]
fn a_table_goes_on_with_another_of_as_many_angles() {
    let [both, short, long] = [10, 4, 6].map(|rows| RopeTable::from_frequencies(&FREQUENCIES, rows, 1.0));
    let joined = short.followed_by(long).unwrap();
    assert_eq!((joined.positions(), &joined.cos[..12]), (10, &both.cos[..12]));
    assert_eq!(joined.sin[12..], both.sin[..18]);
    assert!(matches!(both.followed_by(RopeTable::from_frequencies(&[1.0], 2, 1.0)), Err(Error::Shape(_))));
}

#[test]
fn turning_back_undoes_the_turn() {
    let x = normal("x", &[5, 12]);
    let table = RopeTable::from_frequencies(&FREQUENCIES, 10, 1.0);
    let turned = rope(&x, 2, &positions(), &table, false).unwrap();
    close("x", &rope(&turned, 2, &positions(), &table, true).unwrap(), &x, 1e-6);
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let x = normal("x", &[900, 96]);
    let positions = Indices::from((0..900).map(|token| token % 10).collect::<Vec<u32>>());
    let table = RopeTable::from_frequencies(&FREQUENCIES, 10, 1.0);
    same_on_two_threads(|| vec![rope(&x, 8, &positions, &table, false).unwrap()]);
}

#[test]
fn positions_past_the_table_and_odd_heads_are_refused() {
    let (x, table) = (normal("x", &[1, 12]), RopeTable::from_frequencies(&FREQUENCIES, 10, 1.0));
    assert!(matches!(rope(&x, 2, &vec![10].into(), &table, false), Err(Error::Argument(_))));
    assert!(matches!(rope(&x, 2, &vec![1, 2].into(), &table, false), Err(Error::Shape(_))));
    assert!(matches!(rope(&x, 5, &vec![1].into(), &table, false), Err(Error::Shape(_))));
    assert!(
        matches!(rope(&x, 4, &vec![1].into(), &table, false), Err(Error::Shape(_))),
        "heads narrower than the turn"
    );
}
