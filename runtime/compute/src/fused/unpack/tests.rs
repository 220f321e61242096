//! Every format against the tensor library's own reading, on random bytes: all bit patterns of a block count.

use candle_core::quantized::GgmlDType;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::{DType, Device, Tensor};
use half::f16;

use super::formats::half;
use super::*;
use crate::fused::reference::{bits, normal};
use crate::fused::{Indices, embed, linear};
use crate::parity::on_each_device;
use crate::weight::{Packed, Weight};

/// The formats of a file, and what the tensor library calls them.
const FORMATS: [(Format, GgmlDType); 8] = [
    (Format::Q4_0, GgmlDType::Q4_0),
    (Format::Q4_1, GgmlDType::Q4_1),
    (Format::Q5_0, GgmlDType::Q5_0),
    (Format::Q5_1, GgmlDType::Q5_1),
    (Format::Q8_0, GgmlDType::Q8_0),
    (Format::Q4_K, GgmlDType::Q4K),
    (Format::Q5_K, GgmlDType::Q5K),
    (Format::Q6_K, GgmlDType::Q6K),
];

/// Returns the bytes of `count` blocks: random, but with scales that are ordinary numbers.
pub(in crate::fused) fn blocks(format: Format, count: usize) -> Vec<u8> {
    let mut stream = crate::random::Stream::new(7, &format!("{format:?}"));
    let size = format.block_bytes();
    let mut bytes: Vec<u8> = (0..count * size).map(|_| stream.next_u64() as u8).collect();
    for block in bytes.chunks_exact_mut(size) {
        let mut put = |at: usize, value: f32| block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
        let scale = (stream.next_u64() % 2000) as f32 * 1e-5 - 0.01;
        match format {
            Format::Q6_K => put(208, scale),
            Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => put(0, scale),
            _ => {
                put(0, scale);
                put(2, -0.7 * scale);
            }
        }
    }
    bytes
}

#[test]
fn every_format_has_the_bits_that_the_tensor_library_reads() {
    for (format, theirs) in FORMATS {
        assert_eq!((format.block(), format.block_bytes()), (theirs.block_size(), theirs.type_size()), "{format:?}");
        let bytes = blocks(format, 40);
        let mut found = vec![f32::NAN; 40 * format.block()];
        unpack(format, &bytes, &mut found);
        let stored = qtensor_from_ggml(theirs, &bytes, vec![found.len()], &Device::Cpu).unwrap();
        let wanted = stored.dequantize(&Device::Cpu).unwrap().to_vec1::<f32>().unwrap();
        let differ = found.iter().zip(&wanted).position(|(found, wanted)| found.to_bits() != wanted.to_bits());
        assert_eq!(differ.map(|at| (at, found[at], wanted[at])), None, "{format:?}");
    }
}

#[test]
fn every_number_of_sixteen_bits_is_read() {
    for bits in 0..=u16::MAX {
        let [low, high] = bits.to_le_bytes();
        let (found, wanted) = (half(low, high), f16::from_bits(bits).to_f32());
        assert!(found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan()), "{bits:#x}");
    }
}

/// Returns a matrix of 70 rows of 512 numbers in every quantized format. That in NF4 has more than one group of scales.
fn matrices() -> Vec<(Format, Weight)> {
    let (rows, columns) = (70, 512);
    let stored = |(format, _): (Format, GgmlDType)| {
        let bytes = blocks(format, rows * columns / format.block());
        (format, Weight::Packed(Packed::new(bytes.into(), format, rows, columns).unwrap().into()))
    };
    let made = Weight::from(normal("nf4", &[rows, columns])).to_nf4().unwrap();
    FORMATS.into_iter().map(stored).chain([(Format::NF4, made)]).collect()
}

/// Copies a tensor of any device to the CPU.
fn back(tensor: Tensor) -> Tensor {
    Weight::from(tensor).to_tensor().unwrap()
}

on_each_device! {
    /// All rows, some rows, and rows by number times a factor: the bits of the CPU's f32, or the numbers nearest to
    /// them.
    fn blocks_on_a_device_hold_the_numbers_of_the_cpu(on) tolerance(0.0, 0.0) {
        for (format, weight) in matrices() {
            let placed = weight.to_device(&on.device, on.dtype).unwrap();
            assert_eq!(placed.bytes(), weight.bytes(), "{format:?}");
            assert!(placed.device().same_device(&on.device));
            assert_eq!(bits(&placed.to_tensor().unwrap()), bits(&weight.to_tensor().unwrap()), "{format:?}");
            assert_eq!(bits(&placed.rows(7, 20).unwrap()), bits(&weight.rows(7, 20).unwrap()), "{format:?}, some rows");
            assert!(placed.rows(60, 11).is_err());
            let ids = Indices::from(vec![3, 69, 0, 3, 12]);
            for factor in [1.0, 0.3] {
                let found = back(embed(&ids, &placed, factor, on.dtype).unwrap());
                let wanted = embed(&ids, &weight, factor, DType::F32).unwrap().to_dtype(on.dtype).unwrap();
                let single = |tensor: &Tensor| bits(&tensor.to_dtype(DType::F32).unwrap());
                assert_eq!(single(&found), single(&wanted), "{format:?}, rows by number");
            }
        }
    }

    /// A product widens blocks to the numbers that a plain matrix has.
    fn products_with_blocks_are_those_with_their_numbers(on) tolerance(1e-6, 1e-6) {
        let x = on.normal("x", &[9, 512]);
        for (format, weight) in matrices() {
            let plain = Weight::from(weight.to_tensor().unwrap()).to_device(&on.device, on.dtype).unwrap();
            let placed = weight.to_device(&on.device, on.dtype).unwrap();
            let wanted = back(linear(&x, &plain, None).unwrap());
            on.close(&format!("{format:?}"), &linear(&x, &placed, None).unwrap(), &wanted);
        }
    }
}
