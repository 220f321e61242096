//! Q8_0 against candle's quantizer, bit for bit.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};

use crate::random::Stream;
use crate::weight::Weight;

/// Normal numbers, with a block of zeros, one with a single number, one of equal magnitudes, and numbers half way
/// between two multiples.
fn matrix() -> Tensor {
    let mut numbers = Stream::new(3, "q8_0").normals(96 * 1024);
    numbers[32..96].fill(0.0);
    numbers[70] = -3.5;
    numbers[96..128].fill(-0.25);
    (128..160).for_each(|at| numbers[at] = (at as f32 - 143.5) / 8.0);
    numbers[128] = 127.0;
    Tensor::from_vec(numbers, (96, 1024), &Device::Cpu).unwrap()
}

#[test]
fn blocks_are_those_of_candle() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let weight = matrix().to_dtype(dtype).unwrap();
        let wanted = QTensor::quantize(&weight.to_dtype(DType::F32).unwrap(), GgmlDType::Q8_0).unwrap();
        let Weight::Packed(found) = Weight::from(weight).to_q8_0().unwrap() else { panic!("plain numbers") };
        assert!(found.raw() == &*wanted.data().unwrap(), "{dtype:?}");
    }
}

#[test]
fn numbers_come_back_within_half_a_multiple() {
    let weight = matrix();
    let found = Weight::from(weight.clone()).to_q8_0().unwrap().to_tensor().unwrap();
    let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    for (found, wanted) in flat(&found).chunks(32).zip(flat(&weight).chunks(32)) {
        let largest = wanted.iter().fold(0.0_f32, |most, one| most.max(one.abs()));
        // Half of a multiple, and the rounding of the scale to 11 bits on up to 127 of them.
        let most = largest / 127.0 * (0.5 + 127.0 / 2048.0);
        assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() <= most));
    }
}

#[test]
fn what_is_no_number_and_rows_of_other_lengths_are_refused() {
    let quantize = |values: Vec<f32>| {
        let columns = values.len();
        Weight::from(Tensor::from_vec(values, (1, columns), &Device::Cpu).unwrap()).to_q8_0().map(|_| ())
    };
    for wrong in [f32::NAN, f32::INFINITY, 1e9] {
        let mut values = vec![1.0; 64];
        values[40] = wrong;
        assert!(quantize(values).unwrap_err().to_string().contains("cannot be quantized to Q8_0"), "{wrong}");
    }
    assert!(quantize(vec![1.0; 48]).unwrap_err().to_string().contains("whole blocks of 32"));
    assert!(quantize(vec![1.0; 64]).is_ok());
}
