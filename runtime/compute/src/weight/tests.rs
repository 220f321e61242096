//! What a matrix is, in every format: refused where bytes do not fit, and read alike as a whole and in part.

use super::*;

#[test]
fn bytes_that_are_not_the_matrix_are_refused() {
    let of = |length: usize, format, rows, columns| Packed::new(vec![0; length].into(), format, rows, columns);
    assert!(of(34 * 6, Format::Q8_0, 3, 64).is_ok());
    assert!(of(34 * 6 - 1, Format::Q8_0, 3, 64).is_err());
    assert!(of(34 * 6, Format::Q8_0, 6, 33).is_err());
    assert!(of(0, Format::Q6_K, usize::MAX, 1 << 40).is_err());
    assert!(Bytes::new(Arc::new(vec![0u8; 4]), 2..5).is_err());
}

#[test]
fn rows_in_another_order_keep_their_bytes() {
    let bytes: Vec<u8> = (0..34 * 3).collect();
    let packed = Packed::new(bytes.into(), Format::Q8_0, 3, 32).unwrap();
    let turned = packed.reordered(&[2, 0, 1]).unwrap();
    assert_eq!((turned.raw()[0], turned.raw()[34], turned.raw()[68]), (68, 0, 34));
    assert!(packed.reordered(&[3]).is_err());
}

#[test]
fn some_rows_are_those_of_the_whole() {
    let bytes: Vec<u8> = (0..34 * 6).map(|byte| byte as u8 & 0x3b).collect();
    let weight = Weight::Packed(Packed::new(bytes.into(), Format::Q8_0, 3, 64).unwrap().into());
    let numbers = |tensor: Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let whole = numbers(weight.to_tensor().unwrap());
    assert_eq!(numbers(weight.rows(1, 2).unwrap()), whole[64..]);
    assert!(weight.rows(2, 2).is_err() && weight.rows(usize::MAX, 2).is_err());
}
