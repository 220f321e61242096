//! The linear layer against plain matrix products in f64.

use candle_core::DType;

use super::super::reference::{gradients, normal, same_on_two_threads};
use super::*;
use crate::parity::{TestDevice, on_each_device};
use crate::random::Stream;
use crate::weight::{Format, Packed, Weight};

/// Sides that no tile divides; the second set is the path of few tokens.
const SIDES: [(usize, usize, usize); 3] = [(531, 613, 277), (3, 613, 70), (1, 5, 1)];

/// Returns a random matrix in each quantized format.
fn packed(rows: usize, columns: usize) -> Vec<(Format, Weight)> {
    let mut stream = Stream::new(9, "bytes");
    let of_files = [Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q8_0]
        .into_iter()
        .chain([Format::Q4_K, Format::Q5_K, Format::Q6_K])
        .map(|format| {
            // The upper bits of every pair of bytes stay clear, so that no scale is large or no number.
            let length = format.bytes(rows, columns).unwrap();
            let bytes: Vec<u8> = (0..length).map(|_| stream.next_u64() as u8 & 0x3b).collect();
            (format, Weight::Packed(Packed::new(bytes.into(), format, rows, columns).unwrap().into()))
        });
    let mut all: Vec<(Format, Weight)> = of_files.collect();
    all.push((Format::NF4, Weight::from(normal("weight", &[rows, columns])).to_nf4().unwrap()));
    all
}

/// Converts a tensor to f64.
fn double(tensor: &Tensor) -> Tensor {
    tensor.to_dtype(DType::F64).unwrap()
}

/// Returns a normal weight on the device of a test in type `stored`, rounded to the test's type first.
fn weight(on: &TestDevice, sides: [usize; 2], stored: DType) -> Tensor {
    let numbers = normal("weight", &sides).to_dtype(on.dtype).unwrap();
    on.put(&numbers.to_dtype(stored).unwrap())
}

// In bf16 a result is rounded by 2⁻⁸ of itself at most, before and after the bias.
on_each_device! {
    fn the_product_agrees_with_its_twin_in_every_precision_of_the_weight(on) tolerance(2e-6, 8e-3) {
        for (tokens, inputs, outputs) in SIDES {
            let (x, bias) = (on.normal("x", &[tokens, inputs]), on.single("bias", &[outputs]));
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let weight = weight(on, [outputs, inputs], dtype);
                let reference = on.leaf(&x).matmul(&on.leaf(&weight).t().unwrap()).unwrap();
                let with_bias = reference.broadcast_add(&on.leaf(&bias)).unwrap();
                on.close("y", &linear(&x, &weight, None).unwrap(), &reference);
                on.close("y + b", &linear(&x, &weight, Some(&bias)).unwrap(), &with_bias);
            }
        }
    }

    fn the_gradients_agree_with_autograd(on) tolerance(2e-6, 4e-3) {
        for (tokens, inputs, outputs) in SIDES {
            let (x, dy) = (on.normal("x", &[tokens, inputs]), on.normal("dy", &[tokens, outputs]));
            for dtype in [DType::F32, DType::BF16] {
                let weight = weight(on, [outputs, inputs], dtype);
                let (x64, w64, b64) = (on.leaf(&x), on.leaf(&weight), on.leaf(&normal("bias", &[outputs])));
                let y = x64.matmul(&w64.t().unwrap()).unwrap().broadcast_add(&b64).unwrap();
                let references = gradients(&y, &on.leaf(&dy), &[&x64, &w64, &b64]);
                on.close("dx", &linear_input_gradient(&dy, &weight).unwrap(), &references[0]);
                // Numbers of 16 bits are summed in f32 by units that cut the last bits off.
                let sums = if on.dtype == DType::F32 { 2e-6 } else { 2e-5 };
                on.within("dw", &linear_weight_gradient(1.0, &dy, &x).unwrap(), &references[1], sums);
                on.within("db", &bias_gradient(&dy).unwrap(), &references[2], 2e-6);
            }
        }
    }

    // In bf16 the numbers of the weight are rounded too.
    fn a_packed_weight_gives_the_product_of_its_numbers(on) tolerance(2e-6, 8e-3) {
        for (format, host) in packed(37, 512) {
            let (outputs, inputs) = (37, 512);
            let weight = host.to_device(&on.device, on.dtype).unwrap();
            let numbers = on.leaf(&host.to_tensor().unwrap());
            let (x, dy) = (on.normal("x", &[19, inputs]), on.normal("dy", &[19, outputs]));
            let expected = on.leaf(&x).matmul(&numbers.t().unwrap()).unwrap();
            on.close(&format!("y, {format:?}"), &linear(&x, &weight, None).unwrap(), &expected);
            let expected = on.leaf(&dy).matmul(&numbers).unwrap();
            on.close(&format!("dx, {format:?}"), &linear_input_gradient(&dy, &weight).unwrap(), &expected);
        }
    }

    fn no_tokens_give_an_empty_result_and_gradients_of_zero(on) tolerance(0.0, 0.0) {
        let (x, dy, weight) = (on.normal("x", &[0, 4]), on.normal("dy", &[0, 2]), on.normal("weight", &[2, 4]));
        assert_eq!(linear(&x, &weight, None).unwrap().dims(), [0, 2]);
        assert_eq!(linear_input_gradient(&dy, &weight).unwrap().dims(), [0, 4]);
        let zeros = Tensor::zeros((2, 4), DType::F64, &candle_core::Device::Cpu).unwrap();
        on.close("dw", &linear_weight_gradient(1.0, &dy, &x).unwrap(), &zeros);
        on.close("db", &bias_gradient(&dy).unwrap(), &zeros.get(0).unwrap().narrow(0, 0, 2).unwrap());
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let (x, dy) = (normal("x", &[700, 300]), normal("dy", &[700, 520]));
    let weight = normal("weight", &[520, 300]).to_dtype(DType::BF16).unwrap();
    same_on_two_threads(|| {
        let y = linear(&x, &weight, None).unwrap();
        vec![y, linear_input_gradient(&dy, &weight).unwrap(), linear_weight_gradient(1.0, &dy, &x).unwrap()]
    });
}

#[test]
fn sides_that_do_not_meet_and_foreign_types_are_refused() {
    let (x, weight) = (normal("x", &[3, 4]), normal("weight", &[2, 5]));
    assert!(matches!(linear(&x, &weight, None), Err(Error::Shape(_))));
    assert!(matches!(linear(&x.t().unwrap(), &normal("w", &[2, 3]), None), Err(Error::Shape(_))), "gaps");
    let whole = Tensor::zeros((2, 4), DType::U32, &candle_core::Device::Cpu).unwrap();
    assert!(matches!(linear(&x, &whole, None), Err(Error::Dtype(_))));
    assert!(matches!(linear(&double(&x), &normal("w", &[2, 4]), None), Err(Error::Dtype(_))));
}
