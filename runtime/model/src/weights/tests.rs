//! Tests of the memory and the types of weights, as stored and in NF4.

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use tunebox_compute::precision::Compute;

use super::*;
use crate::tiny::{self, wide};

/// A GGUF file whose matrices are all in one format.
fn stored(format: GgmlDType) -> tempfile::NamedTempFile {
    let plain = tiny::model(wide(), 1);
    let tensors: Vec<(String, QTensor)> = weight_shapes(&wide())
        .into_iter()
        .map(|(name, shape)| {
            let format = if shape.len() == 2 { format } else { GgmlDType::F32 };
            let tensor = QTensor::quantize(&plain.weights.get(&name).unwrap(), format).unwrap();
            (gguf_name(&name, &wide()).unwrap(), tensor)
        })
        .collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let architecture = Value::String("llama".into());
    gguf_file::write(&mut file, &[("general.architecture", &architecture)], &tensors).unwrap();
    file
}

fn opened(file: &tempfile::NamedTempFile) -> Weights {
    opened_on(file, &Device::Cpu)
}

fn opened_on(file: &tempfile::NamedTempFile, device: &Device) -> Weights {
    let header = gguf::Header::read(file.path()).unwrap();
    Weights::from_gguf(file.path(), header, &wide(), device).unwrap()
}

#[test]
fn a_base_that_is_quantized_in_its_file_is_refused_before_it_is_read() {
    let formats =
        [(GgmlDType::Q2K, "Q2_K"), (GgmlDType::Q3K, "Q3_K"), (GgmlDType::Q4K, "Q4_K"), (GgmlDType::Q8_0, "Q8_0")];
    for (format, name) in formats {
        let error = opened(&stored(format)).with_precision(Base::Nf4).unwrap_err().to_string();
        assert!(error.contains(&format!("a matrix in {name} is quantized already")), "{error}");
        assert!(error.contains("leave `model.precision`"), "{error}");
        assert!(opened(&stored(format)).bytes_in(Base::Nf4).is_err());
    }
    for format in [GgmlDType::F32, GgmlDType::F16, GgmlDType::BF16] {
        opened(&stored(format)).with_precision(Base::Nf4).unwrap().load().unwrap();
    }
}

#[test]
fn matrices_whose_rows_were_moved_and_vectors_are_in_memory_and_the_rest_is_in_the_file() {
    let file = stored(GgmlDType::Q8_0);
    let weights = opened(&file);
    assert_eq!(weights.bytes_in_memory(), 0);
    weights.load().unwrap();
    let (queries, keys, norms) = (256 * 256, 128 * 256, 2 * 2 * 256 + 256);
    assert_eq!(weights.bytes_in_memory(), (2 * (queries + keys) / 32 * 34 + 4 * norms) as u64);
}

#[test]
fn what_weights_would_take_quantized_is_what_they_take() {
    let file = stored(GgmlDType::BF16);
    for base in [Base::Nf4, Base::Q8_0] {
        let weights = opened(&file);
        let estimate = weights.bytes_in(base).unwrap();
        assert_eq!(weights.bytes_in(Base::Stored).unwrap(), weights.bytes());
        let weights = weights.with_precision(base).unwrap();
        weights.load().unwrap();
        assert_eq!(weights.bytes(), estimate, "{base}");
        let plain = |name: &str| weights.weight(name).unwrap().bytes() as u64;
        assert_eq!(weights.bytes_in_memory(), estimate - plain("model.embed_tokens.weight") - plain("lm_head.weight"));
    }
}

#[test]
fn a_base_quantized_to_q8_0_while_it_is_read_is_the_one_of_a_q8_0_file() {
    let (plain, quantized) = (stored(GgmlDType::F32), stored(GgmlDType::Q8_0));
    let (plain, quantized) = (opened(&plain).with_precision(Base::Q8_0).unwrap(), opened(&quantized));
    for name in plain.names().filter(|name| name.contains("_proj")) {
        assert_eq!(bits(&plain.get(name).unwrap()), bits(&quantized.get(name).unwrap()), "{name}");
    }
}

#[test]
fn the_type_of_weights_is_that_of_their_file_however_they_are_kept() {
    let weights = |base| {
        let plain = tiny::model(wide(), 1);
        let halved = |name: &str| plain.weights.get(name).unwrap().to_dtype(DType::BF16).unwrap();
        let tensors = plain.weights.names().map(|name| (name.to_owned(), halved(name))).collect();
        Weights::from_tensors(tensors, &wide(), &Device::Cpu).unwrap().with_precision(base).unwrap()
    };
    assert_eq!((weights(Base::Stored).dtype(), weights(Base::Nf4).dtype()), (DType::BF16, DType::BF16));
    let entry = |base| weights(base).entries.remove("model.layers.0.mlp.up_proj.weight").unwrap();
    let bytes = |base| entry(base).bytes(Precision::CPU_DEFAULT);
    assert!(bytes(Base::Nf4) < bytes(Base::Stored));
}

#[test]
fn matrices_whose_rows_are_no_whole_blocks_are_counted_as_stored() {
    let odd = Configuration { intermediate: 96, ..wide() };
    let kept = |configuration: &Configuration| {
        let plain = tiny::model(configuration.clone(), 1);
        let weights = Weights::from_tensors(tiny::tensors(&plain), configuration, &Device::Cpu).unwrap();
        weights.with_precision(Base::Nf4).unwrap().linear_as_stored()
    };
    assert_eq!(kept(&wide()), (0, 14));
    // The way back of both feed-forward parts.
    assert_eq!(kept(&odd), (2, 14));
}

#[test]
fn experts_become_nf4_and_their_router_does_not() {
    use crate::configuration::Experts;
    let experts = Experts { count: 4, active: 2, intermediate: 128, normalized: true };
    let configuration = Configuration { experts: Some(experts), ..wide() };
    let plain = tiny::model(configuration.clone(), 1);
    let weights = Weights::from_tensors(tiny::tensors(&plain), &configuration, &Device::Cpu).unwrap();
    let weights = weights.with_precision(Base::Nf4).unwrap();
    // Four maps of the attention and three of each expert, in two blocks.
    assert_eq!(weights.linear_as_stored(), (0, 2 * (4 + 3 * 4)));
    for (name, is_packed) in [("gate", false), ("experts.3.down_proj", true)] {
        let weight = weights.weight(&format!("model.layers.1.mlp.{name}.weight")).unwrap();
        assert_eq!(matches!(weight, tunebox_compute::Weight::Packed(_)), is_packed, "{name}");
    }
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tiny::bits(&tensor.to_dtype(DType::F32).unwrap())
}

/// Checks that a file opened on a device has the same values as on the CPU, there and when they are read back.
fn weights_are_those_of_the_cpu(device: &Device) {
    use GgmlDType::{BF16, F16, F32, Q2K, Q4K, Q6K, Q8_0};
    let as_stored = [F32, F16, BF16, Q2K, Q4K, Q6K, Q8_0].map(|format| (format, Base::Stored));
    for (format, base) in as_stored.into_iter().chain([(F32, Base::Nf4), (BF16, Base::Nf4), (BF16, Base::Q8_0)]) {
        let file = stored(format);
        let asked = PrecisionRequest { base, compute: Compute::F32 };
        let (here, there) =
            (opened_on(&file, device).with_precision(asked).unwrap(), opened(&file).with_precision(asked).unwrap());
        let estimate = here.bytes_in(base).unwrap();
        here.load().unwrap();
        assert_eq!(here.bytes(), estimate, "{format:?}, {base:?}");
        assert_eq!((here.dtype(), here.device().is_cpu()), (there.dtype(), device.is_cpu()));
        for name in there.names() {
            let weight = here.weight(name).unwrap();
            assert!(weight.device().same_device(device), "{name}");
            let (wanted, found) = (there.get(name).unwrap(), here.get(name).unwrap());
            assert_eq!(bits(&weight.to_tensor().unwrap()), bits(&wanted), "{name} in {format:?}, {base:?}");
            assert_eq!((bits(&found), found.dtype()), (bits(&wanted), wanted.dtype()), "{name} read in {format:?}");
        }
    }
}

#[test]
fn cpu_weights_are_those_of_the_cpu() {
    weights_are_those_of_the_cpu(&Device::Cpu);
}

#[test]
#[ignore = "needs cuda"]
fn cuda_weights_are_those_of_the_cpu() {
    weights_are_those_of_the_cpu(&tiny::device("cuda"));
}

#[test]
#[ignore = "needs metal"]
fn metal_weights_are_those_of_the_cpu() {
    weights_are_those_of_the_cpu(&tiny::device("metal"));
}
