//! What a matrix is, in every format: refused where bytes do not fit, and read alike as a whole and in part.

use super::*;
use crate::fused::reference::{bits, normal};
use crate::parity::on_each_device;

/// Numbers that lie as a file has them.
struct Stored<N>(Vec<N>);

impl<N: bytemuck::Pod> AsRef<[u8]> for Stored<N> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

fn stored<N: bytemuck::Pod + Send + Sync>(numbers: Vec<N>, format: Format, rows: usize) -> Weight {
    let (columns, length) = (numbers.len() / rows, size_of_val(numbers.as_slice()));
    let bytes = Bytes::new(Arc::new(Stored(numbers)), 0..length).unwrap();
    Weight::Packed(Packed::new(bytes, format, rows, columns).unwrap().into())
}

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
    let turned = packed.permute_rows(&[2, 0, 1]).unwrap();
    assert_eq!((turned.raw()[0], turned.raw()[34], turned.raw()[68]), (68, 0, 34));
    assert!(packed.permute_rows(&[3]).is_err());
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

on_each_device! {
    /// Plain numbers become the nearest ones of the type that products take; on the CPU they stay what they are.
    fn plain_matrices_have_one_type_on_a_device(on) tolerance(0.0, 0.0) {
        let tensor = normal("w", &[70, 33]);
        let numbers: Vec<f32> = tensor.flatten_all().unwrap().to_vec1().unwrap();
        let weights = [
            stored(numbers.clone(), Format::F32, 70),
            stored(numbers.iter().map(|number| f16::from_f32(*number)).collect(), Format::F16, 70),
            stored(numbers.iter().map(|number| bf16::from_f32(*number)).collect(), Format::BF16, 70),
        ];
        let single = |tensor: &Tensor| bits(&tensor.to_dtype(DType::F32).unwrap());
        for packed in weights {
            let whole = packed.to_tensor().unwrap();
            for weight in [packed, whole.clone().into()] {
                let placed = weight.to_device(&on.device, on.dtype).unwrap();
                let dtype = if on.device.is_cpu() { whole.dtype() } else { on.dtype };
                let (found, wanted) = (placed.to_tensor().unwrap(), whole.to_dtype(dtype).unwrap());
                assert_eq!((found.dtype(), found.dims()), (dtype, whole.dims()));
                assert_eq!(single(&found), single(&wanted), "{:?}", whole.dtype());
                assert_eq!(bits(&placed.rows(3, 5).unwrap()), single(&wanted.narrow(0, 3, 5).unwrap()));
            }
        }
    }

    /// Norms and biases are f32 everywhere, whatever they were stored in.
    fn vectors_are_read_in_f32(on) tolerance(0.0, 0.0) {
        for stored in [DType::F32, DType::BF16, DType::F16] {
            let tensor = normal("v", &[301]).to_dtype(stored).unwrap();
            let placed = Weight::from(tensor.clone()).to_device(&on.device, DType::F32).unwrap();
            let found = Weight::from(placed.vector().unwrap()).to_tensor().unwrap();
            assert_eq!(bits(&found), bits(&tensor.to_dtype(DType::F32).unwrap()), "{stored:?}");
        }
    }
}
