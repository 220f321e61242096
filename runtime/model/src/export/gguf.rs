//! Writes a merged model as one GGUF file.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::quantized::GgmlDType;
use tunebox_compute::DType;
use tunebox_compute::precision::Base;

use super::quantization::Quantization;
use super::{is_changed, metadata};
use crate::error::{Error, Result};
use crate::families::{GgufLayout, HEAD, gguf_layout, gguf_name};
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

/// Where the values of a tensor come from.
enum Values {
    /// The merged weight of this Hugging Face name.
    Merged(String),
    /// The bytes of a tensor of the GGUF file that the model came from, as they are.
    Stored(Location),
    /// These numbers.
    Given(Vec<f32>),
}

/// Writes the policy's model, with adapter and edits merged, to the GGUF file `path`. Metadata and tensors of a model from a
/// GGUF file are kept, but for the weights that changed and those that get another format.
///
/// # Errors
/// When the model comes from a folder and is of a family or has a tokenizer that GGUF metadata is not written for; or a
/// file cannot be read or written.
pub(super) fn write(policy: &Policy, path: &Path, quantization: Quantization) -> Result<()> {
    let model = policy.model();
    let from = model.source().filter(|source| source.is_gguf()).map(|source| source.path());
    let (metadata, stored, given) = match from {
        Some(from) => (metadata::of_file(from, quantization)?, Header::read(from)?.tensors, Vec::new()),
        None => (metadata::of_model(model, quantization)?, BTreeMap::new(), metadata::tensors(model)),
    };
    let parts = parts(policy, quantization, stored, given)?;
    let list: Vec<TensorSpec> = parts.iter().map(|part| part.spec.clone()).collect();
    let layout = gguf_layout(&model.configuration);
    write::write(path, &metadata, &list, |number| bytes(policy, layout, &parts[number]))
}

/// Lists the tensors of the file: those of the family, then the others of the file that the model came from (`stored`) and
/// those in `given`, which hold factors of the rotation.
fn parts(
    policy: &Policy,
    quantization: Quantization,
    mut stored: BTreeMap<String, Location>,
    given: Vec<(String, Vec<f32>)>,
) -> Result<Vec<Part>> {
    let model = policy.model();
    let (configuration, layout) = (&model.configuration, gguf_layout(&model.configuration));
    // Quantized while it was read, the model computes with other numbers than those of its file.
    let is_as_stored = model.weights.precision().base() == Base::Stored;
    let mut parts = Vec::new();
    let shapes = merged_shapes(policy);
    let is_tied = !shapes.iter().any(|(name, _)| name == HEAD);
    for (name, shape) in shapes {
        let unknown = || Error::Unsupported(format!("GGUF files have no name for the weight `{name}`"));
        let known = gguf_name(&name, layout).ok_or_else(unknown)?;
        let dtype = quantization.dtype(&known, &shape, configuration.layers, is_tied);
        let same = stored.remove(&known).filter(|location| location.dtype().is_ok_and(|found| found == dtype));
        let source = match same.filter(|_| is_as_stored && !is_changed(policy, &name)) {
            Some(location) => Values::Stored(location),
            None => Values::Merged(name),
        };
        parts.push(Part { spec: TensorSpec { name: known, shape, dtype }, source });
    }
    for (name, location) in stored {
        let spec = TensorSpec { name, shape: location.shape.clone(), dtype: location.dtype()? };
        parts.push(Part { spec, source: Values::Stored(location) });
    }
    for (name, values) in given {
        let spec = TensorSpec { name, shape: vec![values.len()], dtype: GgmlDType::F32 };
        parts.push(Part { spec, source: Values::Given(values) });
    }
    Ok(parts)
}

/// The bytes of a tensor in its format. A merged weight gets the changes that GGUF writers make to weights of this
/// layout. Errors: the format of a stored tensor has changed, or a file cannot be read.
fn bytes(policy: &Policy, layout: GgufLayout, part: &Part) -> Result<Vec<u8>> {
    let (model, TensorSpec { dtype, shape, .. }) = (policy.model(), &part.spec);
    match &part.source {
        Values::Stored(location) => {
            let changed = || Error::broken(&location.path, format!("tensor `{}` changed its format", location.name));
            location.read_stored(*dtype)?.ok_or_else(changed)
        }
        Values::Given(values) => quantize(values, *dtype),
        Values::Merged(name) => {
            let weight = merge_weight(model, policy.adapter(), policy.edits(), name)?.to_dtype(DType::F32)?;
            let values = weight.flatten_all()?.to_vec1::<f32>()?;
            let values = Repair::of(name, layout, &model.configuration).make(values, shape);
            quantize(&values, *dtype)
        }
    }
}
