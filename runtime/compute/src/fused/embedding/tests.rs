//! The embedding against plain gathering in f64.

use candle_core::{DType, Device};

use super::super::twin::{close, gradients, leaf, normal, same_on_two_threads};
use super::*;

const IDS: [u32; 6] = [3, 0, 3, 10, 7, 3];

#[test]
fn rows_and_gradient_agree_with_autograd() {
    let (weight, dy) = (normal("weight", &[11, 301]), normal("dy", &[6, 301]));
    let w64 = leaf(&weight);
    let ids = Tensor::new(&IDS, &Device::Cpu).unwrap();
    let expected = (w64.index_select(&ids, 0).unwrap() * 1.5).unwrap();
    close("rows", &embed(&IDS, &weight, 1.5).unwrap(), &expected, 1e-7);
    close("dw", &embed_gradient(&IDS, &dy, 1.5, 11).unwrap(), &gradients(&expected, &dy, &[&w64])[0], 1e-6);
}

#[test]
fn rows_of_half_precision_are_widened_exactly() {
    for dtype in [DType::BF16, DType::F16] {
        let weight = normal("weight", &[11, 33]).to_dtype(dtype).unwrap();
        let ids = Tensor::new(&IDS, &Device::Cpu).unwrap();
        let expected = weight.index_select(&ids, 0).unwrap().to_dtype(DType::F32).unwrap();
        close("rows", &embed(&IDS, &weight, 1.0).unwrap(), &expected, 0.0);
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let dy = normal("dy", &[500, 600]);
    let ids: Vec<u32> = (0..500).map(|token| token * token % 13).collect();
    same_on_two_threads(|| vec![embed_gradient(&ids, &dy, 0.7, 13).unwrap()]);
}

#[test]
fn tokens_past_the_vocabulary_are_refused() {
    let weight = normal("weight", &[11, 3]);
    assert!(matches!(embed(&[11], &weight, 1.0), Err(Error::Argument(_))));
    assert!(matches!(embed_gradient(&[11], &normal("dy", &[1, 3]), 1.0, 11), Err(Error::Argument(_))));
    assert_eq!(embed(&[], &weight, 1.0).unwrap().dims(), [0, 3]);
}
