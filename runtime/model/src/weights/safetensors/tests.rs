//! Tests of broken safetensors files and of all stored formats.

use half::{bf16, f16};
use tunebox_compute::DType;

use super::*;

fn file(folder: &Path, head: &str, data: &[u8]) -> PathBuf {
    let path = folder.join(SINGLE);
    let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
    bytes.extend(head.as_bytes());
    bytes.extend(data);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn locate_one(head: &str, data: &[u8]) -> Result<BTreeMap<String, Location>> {
    let folder = tempfile::tempdir().unwrap();
    locate(&[file(folder.path(), head, data)])
}

const TWO: &str = r#"{"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}"#;

#[test]
fn a_file_that_ends_early_names_the_tensor_and_both_lengths() {
    let error = locate_one(TWO, &[0; 7]).unwrap_err();
    let end = 8 + TWO.len();
    let expected = format!("tensor `t` ends at byte {}, the file has {}", end + 8, end + 7);
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_head_longer_than_the_file_is_refused_before_it_is_allocated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(SINGLE);
    std::fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
    assert!(matches!(locate(&[path]), Err(Error::Broken { .. })));
}

#[test]
fn a_size_that_overflows_is_refused() {
    let head = r#"{"t": {"dtype": "F32", "shape": [4294967296, 4294967296, 2], "data_offsets": [0, 8]}}"#;
    assert!(matches!(locate_one(head, &[0; 8]), Err(Error::Broken { .. })));
}

#[test]
fn offsets_that_run_backwards_are_refused() {
    let head = r#"{"t": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}"#;
    assert!(matches!(locate_one(head, &[0; 8]), Err(Error::Broken { .. })));
}

#[test]
fn a_name_that_stands_twice_in_a_file_or_in_two_is_refused() {
    let other = r#""t": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}"#;
    let head = TWO.replace("}}", &format!("}}, {other}"));
    let error = locate_one(&head, &[0; 8]).unwrap_err().to_string();
    assert!(error.contains("`t` occurs in it twice"), "{error}");

    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = [&first, &second].map(|folder| file(folder.path(), TWO, &[0; 8]));
    let error = locate(&files).unwrap_err().to_string();
    assert_eq!(error, format!("tensor `t` is in `{}` as well", files[0].display()));
}

#[test]
fn bf16_f16_and_f32_stay_as_they_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let head = r#"{"b": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
        "h": {"dtype": "F16", "shape": [2], "data_offsets": [4, 8]},
        "f": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}"#;
    let mut data = Vec::new();
    for value in [1.5f32, -2.0] {
        data.extend(bf16::from_f32(value).to_le_bytes());
    }
    for value in [1.5f32, -2.0] {
        data.extend(f16::from_f32(value).to_le_bytes());
    }
    for value in [1.5f32, -2.0] {
        data.extend(value.to_le_bytes());
    }
    let found = locate(&[file(folder.path(), head, &data)]).unwrap();
    for (name, dtype) in [("b", DType::BF16), ("h", DType::F16), ("f", DType::F32)] {
        let tensor = found[name].read().unwrap();
        assert_eq!(tensor.dtype(), dtype);
        let values = tensor.to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(values, [1.5, -2.0]);
    }
}

#[test]
fn a_quantized_checkpoint_names_its_format() {
    let head = r#"{"t": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}"#;
    let found = locate_one(head, &[0; 8]).unwrap();
    let error = found["t"].format().unwrap_err();
    assert_eq!(error.to_string(), "tensor `t` is stored as `F8_E4M3`");
}
