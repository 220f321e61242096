//! Merges an adapter or trained weights, and edits, into a model's weights and writes them as a model folder. Holds
//! one merged weight in memory at a time, beside the model.

use std::path::Path;

use serde_json::Value;
use tunebox_compute::fused::{self, LowRank};
use tunebox_compute::{DType, Tensor};
use tunebox_foundation::files::create_folder;

use crate::adapter::{Adapter, Module, ModuleFactors};
use crate::chat::TEMPLATE_FILE;
use crate::configuration::Configuration;
use crate::decoder::linear::squared_norms;
use crate::edit::Edits;
use crate::error::{Error, Result};
use crate::files::{self, TensorSpec};
use crate::policy::Policy;
use crate::source::COMPANIONS;
use crate::{Model, families};

/// Writes a model folder with the policy's adapter or trained weights and its edits merged into the weights:
/// `model.safetensors`, `config.json`, and those files of tokenizer, chat template and generation settings that the
/// model has. Ignores active patches. Creates the folder if needed and replaces files in it. `dtype` is that of the
/// written weights: `F32`, `BF16` or `F16`; sums are in `f32` either way.
///
/// # Errors
/// When a file cannot be read or written, or `dtype` is another type than these three.
pub fn merge(policy: &Policy, out: &Path, dtype: DType) -> Result<()> {
    let model = policy.model();
    create_folder(out)?;
    let stored = |(name, shape)| TensorSpec { name, shape, dtype };
    let list: Vec<TensorSpec> = merged_shapes(policy).into_iter().map(stored).collect();
    files::write_tensors(&out.join("model.safetensors"), &list, None, |number| {
        merge_weight(model, policy.adapter(), policy.edits(), &list[number].name)
    })?;
    files::write(&out.join("config.json"), format!("{:#}\n", configuration(policy, dtype)?))?;
    add_companions(model, out)
}

/// The names and shapes of the weights of the merged model: those of the base model, with a head of its own if the
/// adapter separates it from the embedding.
pub(crate) fn merged_shapes(policy: &Policy) -> Vec<(String, Vec<usize>)> {
    let configuration = &policy.model().configuration;
    let tied = configuration.tied && !policy.adapter().separates_head();
    families::weight_shapes(&Configuration { tied, ..configuration.clone() })
}

/// Computes the weight of this name of the merged model, in `f32`, on the CPU: the trained weight if it is trained
/// itself; else the edited weight, or the base weight if it was not edited, with the adapter's module added if there is
/// one on this weight. A DoRA module also scales the rows.
pub(crate) fn merge_weight(model: &Model, adapter: &Adapter, edits: &Edits, name: &str) -> Result<Tensor> {
    let parameters = adapter.parameters();
    if let Some(slot) = parameters.index(name) {
        return Ok(parameters.value_on_cpu(slot)?);
    }
    let base = || model.weights.get(families::base_name(&model.configuration, name));
    let weight = edits.get(name).map_or_else(base, Ok)?;
    let Some(module) = module_of(adapter, name) else {
        return Ok(weight.to_dtype(DType::F32)?);
    };
    let ModuleFactors { a, b, scale, magnitude } = ModuleFactors::of(adapter, module)?;
    let low = LowRank { a, b, scale: scale as f32 };
    let lengths = |magnitude| -> Result<(Tensor, Tensor)> {
        let kept = module.base_squares.as_ref().filter(|squares| squares.device().is_cpu());
        let squares = kept.cloned().map_or_else(|| squared_norms(&weight), Ok)?;
        Ok((magnitude, squares))
    };
    effective(&weight, &low, magnitude.map(lengths).transpose()?.as_ref())
}

/// Whether [`merge_weight`] gives another weight than the base model's: it was trained or edited, or has an adapter
/// module.
pub(crate) fn is_changed(adapter: &Adapter, edits: &Edits, name: &str) -> bool {
    adapter.parameters().index(name).is_some() || edits.get(name).is_some() || module_of(adapter, name).is_some()
}

/// Computes W + s·B·A, `[out, in]`, `f32`, on the CPU. `lengths` is given for DoRA: the magnitude m and ‖W‖² of each
/// row of W, both `[out]`. With it, each row of the sum is multiplied by m / ‖row‖, with the norm of that row of the
/// sum.
pub(crate) fn effective(weight: &Tensor, low: &LowRank, lengths: Option<&(Tensor, Tensor)>) -> Result<Tensor> {
    let added = (low.b.matmul(&low.a)? * f64::from(low.scale))?;
    let sum = (weight.to_dtype(DType::F32)? + added)?;
    match lengths {
        Some((magnitude, base_squares)) => {
            let norm = fused::adapted_row_norms(base_squares, weight, low, DType::F32)?;
            Ok(sum.broadcast_mul(&(magnitude / norm)?.unsqueeze(1)?)?)
        }
        None => Ok(sum),
    }
}

/// The adapter module on the weight of this name; `None` if there is none.
fn module_of<'a>(adapter: &'a Adapter, name: &str) -> Option<&'a Module> {
    let path = name.strip_suffix(".weight")?;
    adapter.modules().iter().find(|module| module.site.path(module.layer) == path)
}

/// Returns the `config.json` to write: that of the model's folder, or, for a GGUF file or a model made from parts, a
/// new one made from its configuration. Sets the key `dtype` to `bfloat16`, `float16` or, for every other type,
/// `float32`, removes `torch_dtype` and `quantization_config`, and sets `tie_word_embeddings` to false if the adapter
/// separates the head from the embedding.
fn configuration(policy: &Policy, dtype: DType) -> Result<Value> {
    let model = policy.model();
    let mut value = match model.folder() {
        Some(folder) => files::read_json(&folder.join("config.json"))?,
        None => model.configuration.to_hugging_face(),
    };
    let name = match dtype {
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
        _ => "float32",
    };
    if let Value::Object(table) = &mut value {
        table.remove("torch_dtype");
        table.remove("quantization_config");
        table.insert("dtype".into(), name.into());
        if model.configuration.tied && policy.adapter().separates_head() {
            table.insert("tie_word_embeddings".into(), false.into());
        }
    }
    Ok(value)
}

/// Adds tokenizer, chat template and generation settings to the folder `out`: copies of those files in [`COMPANIONS`]
/// that the model's folder has, with a template of its own in place of the folder's; or, for a GGUF file or a model
/// made from parts, newly written ones.
fn add_companions(model: &Model, out: &Path) -> Result<()> {
    let Some(folder) = model.folder() else { return write_companions(model, out) };
    for name in COMPANIONS {
        let from = folder.join(name);
        if from.is_file() {
            files::write(&out.join(name), files::read(&from).map_err(|source| Error::file(&from, source))?)?;
        }
    }
    if model.has_other_template { write_chat(model, out) } else { Ok(()) }
}

/// Writes the files of a model's tokenizer, its chat template and its end tokens; leaves out each that the model does
/// not have.
fn write_companions(model: &Model, out: &Path) -> Result<()> {
    if let Some(tokenizer) = &model.tokenizer {
        tokenizer.write(out)?;
    }
    write_chat(model, out)
}

/// Writes the chat template as [`TEMPLATE_FILE`] and the end tokens as `generation_config.json`; leaves out each
/// that the model does not have.
fn write_chat(model: &Model, out: &Path) -> Result<()> {
    if let Some(template) = &model.template {
        files::write(&out.join(TEMPLATE_FILE), template.source())?;
    }
    if model.configuration.eos.is_empty() {
        return Ok(());
    }
    let generation = serde_json::json!({ "eos_token_id": model.configuration.eos });
    files::write(&out.join("generation_config.json"), format!("{generation:#}\n"))
}
