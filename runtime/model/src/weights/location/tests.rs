//! Tests that each format is read as candle reads it, across the boundaries of parallel tasks.

use candle_core::quantized::QTensor;
use tunebox_compute::Tensor;

use super::*;

const SHAPE: [usize; 2] = [5, 32_768];

/// A file with one tensor after 64 bytes of other data. Returns the file, the values that candle reads, and the file's
/// length in bytes.
fn stored(format: GgmlDType) -> (tempfile::NamedTempFile, Vec<f32>, u64) {
    let values: Vec<f32> = (0..SHAPE[0] * SHAPE[1]).map(|at| (at as f32 * 0.37).sin()).collect();
    let tensor = QTensor::quantize(&Tensor::from_vec(values, &SHAPE, &Device::Cpu).unwrap(), format).unwrap();
    let mut bytes = vec![7; 64];
    bytes.extend(tensor.data().unwrap().iter());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    let wanted = tensor.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    (file, wanted, bytes.len() as u64)
}

/// Reads a tensor of a GGUF file of `length` bytes.
fn read(file: &tempfile::NamedTempFile, shape: &[usize], format: u32, offset: u64, length: u64) -> Result<Vec<f32>> {
    let location = Location::of_gguf(file.path(), "t", shape.to_vec(), format, offset)?;
    location.check_end(length)?;
    location.read_f32()
}

#[test]
fn every_format_is_read_as_the_tensor_library_reads_it() {
    const { assert!(SHAPE[0] * SHAPE[1] > TASK, "the tensor has to take more than one task") };
    let formats = [
        (0, GgmlDType::F32),
        (1, GgmlDType::F16),
        (2, GgmlDType::Q4_0),
        (3, GgmlDType::Q4_1),
        (6, GgmlDType::Q5_0),
        (7, GgmlDType::Q5_1),
        (8, GgmlDType::Q8_0),
        (10, GgmlDType::Q2K),
        (11, GgmlDType::Q3K),
        (12, GgmlDType::Q4K),
        (13, GgmlDType::Q5K),
        (14, GgmlDType::Q6K),
        (30, GgmlDType::BF16),
    ];
    for (number, format) in formats {
        let (file, wanted, length) = stored(format);
        assert_eq!(read(&file, &SHAPE, number, 64, length).unwrap(), wanted, "{format:?}");
    }
}

#[test]
fn a_tensor_that_ends_beyond_the_file_is_refused_before_it_is_allocated() {
    let (file, _, length) = stored(GgmlDType::Q8_0);
    assert!(matches!(read(&file, &SHAPE, 8, 65, length), Err(Error::Broken { .. })));
    assert!(matches!(read(&file, &[1 << 40, 1 << 22], 8, 64, length), Err(Error::Broken { .. })));
}

#[test]
fn rows_that_are_not_whole_blocks_are_refused() {
    let (file, _, length) = stored(GgmlDType::Q8_0);
    assert!(matches!(read(&file, &[32, 33], 8, 64, length), Err(Error::Broken { .. })));
}

#[test]
fn a_format_that_is_not_read_is_named_by_its_number() {
    let (file, _, length) = stored(GgmlDType::Q8_0);
    let error = read(&file, &SHAPE, 16, 64, length).unwrap_err();
    assert_eq!(error.to_string(), "tensor `t` is stored as `GGML type 16`");
}
