//! Writes a merged model as one GGUF file.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::quantized::GgmlDType;
use tunebox_compute::DType;
use tunebox_compute::precision::Base;

use super::quantization::Quantization;
use super::{is_changed, metadata};
use crate::decoder::site::expert_of;
use crate::error::{Error, Result};
use crate::families::{HEAD, gguf_name};
use crate::merge::{merge_weight, merged_shapes};
use crate::policy::Policy;
use crate::weights::gguf::Header;
use crate::weights::gguf::write::{self, TensorSpec, quantize};
use crate::weights::{Location, Repair};

/// A tensor of the file, and where its values come from.
struct Part {
    spec: TensorSpec,
    source: Values,
}

/// A tensor that holds weights of the model.
struct WeightTensor {
    /// Its name in GGUF files.
    name: String,
    /// The outermost dimension first; `[experts, out, in]` for the matrices of experts.
    shape: Vec<usize>,
    /// The Hugging Face names of its weights, in order: several for the matrices of experts.
    weights: Vec<String>,
}

/// Where the values of a tensor come from.
enum Values {
    /// The merged weights of these Hugging Face names, one after another: several for the matrices of experts.
    Merged(Vec<String>),
    /// The bytes of a tensor of the GGUF file that the model came from, as they are.
    Stored(Location),
    /// These numbers.
    Given(Vec<f32>),
}

/// Writes the policy's model, with adapter and edits merged, to the GGUF file `path`. Metadata and tensors of a model
/// from a GGUF file are kept, but for the weights that changed and those that get another format.
///
/// # Errors
/// When the model comes from a folder and is of a family or has a tokenizer that GGUF metadata is not written for; or a
/// file cannot be read or written.
pub(super) fn write(policy: &Policy, path: &Path, quantization: Quantization) -> Result<()> {
    let model = policy.model();
    let from = model.source().filter(|source| source.is_gguf()).map(|source| source.path());
    let (metadata, stored, extra) = match from {
        Some(from) => (metadata::of_file(from, quantization)?, Header::read(from)?.tensors, Vec::new()),
        None => (metadata::of_model(model, quantization)?, BTreeMap::new(), metadata::tensors(model)),
    };
    let parts = list_parts(policy, quantization, stored, extra)?;
    let list: Vec<TensorSpec> = parts.iter().map(|part| part.spec.clone()).collect();
    write::write(path, &metadata, &list, |number| tensor_bytes(policy, &parts[number]))
}

/// Lists the tensors of the file: the weights of the family, then the remaining tensors of the file that the model came
/// from (`stored`), then those in `extra`, which hold factors of the rotation. A weight keeps its bytes in `stored` if
/// they have the wanted format, the weight is not changed and the model is not NF4; else it is merged and converted.
/// Errors: GGUF files have no name for a weight, or the format of a stored tensor is not read.
fn list_parts(
    policy: &Policy,
    quantization: Quantization,
    mut stored: BTreeMap<String, Location>,
    extra: Vec<(String, Vec<f32>)>,
) -> Result<Vec<Part>> {
    let model = policy.model();
    let layers = model.configuration.layers;
    // Quantized while it was read, the model computes with other numbers than those of its file.
    let is_as_stored = model.weights.precision().base() == Base::Stored;
    let mut parts = Vec::new();
    let (tensors, is_tied) = weight_tensors(policy)?;
    for WeightTensor { name, shape, weights } in tensors {
        let dtype = quantization.dtype(&name, &shape, layers, is_tied);
        let same = stored.remove(&name).filter(|location| location.dtype().is_ok_and(|found| found == dtype));
        let source = match same.filter(|_| is_as_stored && !weights.iter().any(|weight| is_changed(policy, weight))) {
            Some(location) => Values::Stored(location),
            None => Values::Merged(weights),
        };
        parts.push(Part { spec: TensorSpec { name, shape, dtype }, source });
    }
    for (name, location) in stored {
        let spec = TensorSpec { name, shape: location.shape.clone(), dtype: location.dtype()? };
        parts.push(Part { spec, source: Values::Stored(location) });
    }
    for (name, values) in extra {
        let spec = TensorSpec { name, shape: vec![values.len()], dtype: GgmlDType::F32 };
        parts.push(Part { spec, source: Values::Given(values) });
    }
    Ok(parts)
}

/// Lists the tensors that hold a merged model's weights, and says whether its head is the embedding. The matrices of a
/// block's experts share one tensor; every other weight is a tensor of its own. Errors: GGUF files have no name for a
/// weight.
fn weight_tensors(policy: &Policy) -> Result<(Vec<WeightTensor>, bool)> {
    let configuration = &policy.model().configuration;
    let experts = configuration.experts.map_or(1, |experts| experts.count);
    let (mut list, mut is_tied): (Vec<WeightTensor>, bool) = (Vec::new(), true);
    for (weight, mut shape) in merged_shapes(policy) {
        let unknown = || Error::Unsupported(format!("GGUF files have no name for the weight `{weight}`"));
        let name = gguf_name(&weight, configuration).ok_or_else(unknown)?;
        is_tied &= weight != HEAD;
        if expert_of(&weight).is_some() {
            if let Some(shared) = list.iter_mut().rev().find(|tensor| tensor.name == name) {
                shared.weights.push(weight);
                continue;
            }
            shape.insert(0, experts);
        }
        list.push(WeightTensor { name, shape, weights: vec![weight] });
    }
    Ok((list, is_tied))
}

/// Computes or reads the bytes of a tensor of the file, in the tensor's format. A merged weight gets the changes that
/// GGUF writers make to weights of this family. Errors: the format of a stored tensor has changed, or a file cannot be
/// read.
fn tensor_bytes(policy: &Policy, part: &Part) -> Result<Vec<u8>> {
    let (model, TensorSpec { dtype, shape, .. }) = (policy.model(), &part.spec);
    match &part.source {
        Values::Stored(location) => {
            let changed = || Error::broken(&location.path, format!("tensor `{}` changed its format", location.name));
            location.read_stored(*dtype)?.ok_or_else(changed)
        }
        Values::Given(values) => quantize(values, *dtype),
        Values::Merged(names) => {
            let matrix = &shape[shape.len().saturating_sub(2)..];
            let mut bytes = Vec::new();
            for name in names {
                let weight = merge_weight(model, policy.adapter(), policy.edits(), name)?.to_dtype(DType::F32)?;
                let values = weight.flatten_all()?.to_vec1::<f32>()?;
                let values = Repair::of(name, &model.configuration).make(values, matrix);
                bytes.extend(quantize(&values, *dtype)?);
            }
            Ok(bytes)
        }
    }
}
