//! The embedding against plain gathering in f64.

use candle_core::Device;

use super::super::reference::{gradients, normal, same_on_two_threads};
use super::*;
use crate::Error;
use crate::parity::on_each_device;
use crate::weight::{Format, Packed, Weight};

const IDS: [u32; 6] = [3, 0, 3, 10, 7, 3];

fn ids() -> Indices {
    IDS.to_vec().into()
}

// In bf16 a row is rounded once, by 2⁻⁸ of itself at most.
on_each_device! {
    fn rows_and_gradient_agree_with_autograd(on) tolerance(1e-7, 4e-3) {
        let (weight, dy) = (on.single("weight", &[11, 301]), on.normal("dy", &[6, 301]));
        let w64 = on.leaf(&weight);
        let places = Tensor::new(&IDS, &Device::Cpu).unwrap();
        let expected = (w64.index_select(&places, 0).unwrap() * 1.5).unwrap();
        let rows = embed(&ids(), &weight, 1.5, on.dtype).unwrap();
        assert_eq!(rows.dtype(), on.dtype);
        on.close("rows", &rows, &expected);
        let references = gradients(&expected, &on.leaf(&dy), &[&w64]);
        on.within("dw", &embed_gradient(&ids(), &dy, 1.5, 11).unwrap(), &references[0], 1e-6);
    }

    fn rows_of_half_precision_are_widened_exactly(on) tolerance(0.0, 0.0) {
        for dtype in [DType::BF16, DType::F16] {
            // Numbers that bf16 and f16 have both.
            let numbers = normal("weight", &[11, 40]).to_dtype(DType::BF16).unwrap().to_dtype(dtype).unwrap();
            let places = Tensor::new(&IDS, &Device::Cpu).unwrap();
            let expected = numbers.index_select(&places, 0).unwrap().to_dtype(DType::F32).unwrap();
            let weight = on.put(&numbers);
            on.close("rows", &embed(&ids(), &weight, 1.0, on.dtype).unwrap(), &expected);
        }
    }

    fn rows_in_blocks_are_read_by_number(on) tolerance(1e-7, 4e-3) {
        let format = Format::Q8_0;
        let bytes: Vec<u8> = (0..format.bytes(11, 64).unwrap()).map(|at| (at * 37 % 60) as u8).collect();
        let host = Weight::Packed(Packed::new(bytes.into(), format, 11, 64).unwrap().into());
        let places = Tensor::new(&IDS, &Device::Cpu).unwrap();
        let expected = (host.to_tensor().unwrap().index_select(&places, 0).unwrap() * 0.5).unwrap();
        let weight = host.to_device(&on.device, on.dtype).unwrap();
        on.close("rows", &embed(&ids(), &weight, 0.5, on.dtype).unwrap(), &expected);
    }

    fn tokens_past_the_vocabulary_are_refused(on) tolerance(0.0, 0.0) {
        let weight = on.single("weight", &[11, 3]);
        let past = Indices::from(vec![11]);
        assert!(matches!(embed(&past, &weight, 1.0, on.dtype), Err(Error::Argument(_))));
        assert!(matches!(embed_gradient(&past, &on.normal("dy", &[1, 3]), 1.0, 11), Err(Error::Argument(_))));
        assert_eq!(embed(&Indices::default(), &weight, 1.0, on.dtype).unwrap().dims(), [0, 3]);
    }
}

#[test]
fn activations_are_f32_or_bf16() {
    assert!(matches!(embed(&ids(), &normal("weight", &[11, 3]), 1.0, DType::F16), Err(Error::Dtype(_))));
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let dy = normal("dy", &[500, 600]);
    let ids = Indices::from((0..500).map(|token| token * token % 13).collect::<Vec<u32>>());
    same_on_two_threads(|| vec![embed_gradient(&ids, &dy, 0.7, 13).unwrap()]);
}

#[test]
fn places_of_one_number_stand_together_in_their_order() {
    let runs = Runs::of(&[3, 0, 3, 10, 7, 3]).unwrap();
    assert_eq!(runs.order, [1, 0, 2, 5, 4, 3]);
    assert_eq!(runs.starts, [0, 1, 4, 5, 6]);
    assert_eq!(runs.numbers, [0, 3, 7, 10]);
}
