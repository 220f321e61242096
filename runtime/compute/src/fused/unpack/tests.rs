//! Every format against the tensor library's own reading, on random bytes: all bit patterns of a block count.

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use half::f16;

use super::*;

/// Blocks of random bytes whose scales are ordinary numbers.
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
    let pairs = [
        (Format::Q4_0, GgmlDType::Q4_0),
        (Format::Q4_1, GgmlDType::Q4_1),
        (Format::Q5_0, GgmlDType::Q5_0),
        (Format::Q5_1, GgmlDType::Q5_1),
        (Format::Q8_0, GgmlDType::Q8_0),
        (Format::Q4_K, GgmlDType::Q4K),
        (Format::Q5_K, GgmlDType::Q5K),
        (Format::Q6_K, GgmlDType::Q6K),
    ];
    for (format, theirs) in pairs {
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
