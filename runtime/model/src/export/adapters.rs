//! Writes an adapter alone in the layouts of llama.cpp and mlx-lm, and reads it back from what was written.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use tunebox_compute::{DType, Device, Tensor};
use tunebox_foundation::explain::Explanation;

use super::base_name;
use crate::Model;
use crate::adapter::{Adapter, AdapterKind, AdapterSettings, Module, ModuleFactors};
use crate::error::{Error, Result};
use crate::families::{gguf_architecture, gguf_name};
use crate::policy::Policy;
use crate::weights::gguf::{Header, Value as Read, write};
use crate::weights::{Location, Repair};

/// Fails if an adapter alone cannot hold what a run changed: weights were edited, all weights were trained, or there
/// is no adapter module. PEFT's layout holds modules that were trained whole, see [`check_factors`] for the others.
pub(super) fn check(policy: &Policy) -> Result<()> {
    let what = if policy.is_edited() {
        "the run edited weights of its model, which no adapter holds"
    } else if policy.adapter().is_full() {
        "the run trained all weights, so there is no adapter"
    } else if policy.adapter().modules().is_empty() {
        "this is a model without an adapter"
    } else {
        return Ok(());
    };
    let hint = "export the whole model with `--to gguf`, `--to ollama` or `--to hf`";
    Err(Explanation::new("export", what).with_hint(hint).into())
}

/// Fails as [`check`] does, and if modules were trained whole beside the low-rank factors.
fn check_factors(policy: &Policy) -> Result<()> {
    check(policy)?;
    if !policy.adapter().trains_weights() {
        return Ok(());
    }
    let modules = policy.adapter().settings().modules_to_save.join("`, `");
    let what = format!("this format holds low-rank factors alone, and the run trained `{modules}` whole");
    let hint = "export the adapter with `--to peft`, or the whole model with `--to gguf`, `--to ollama` or `--to hf`";
    Err(Explanation::new("export", what).with_hint(hint).into())
}

/// Writes the adapter as a GGUF file for llama.cpp and reads it back.
///
/// # Errors
/// When [`check_factors`] fails, the adapter is a DoRA, which llama.cpp does not have, or a file cannot be read or
/// written.
pub(super) fn through_gguf(policy: &Policy, path: &Path) -> Result<Adapter> {
    check_factors(policy)?;
    if policy.adapter().settings().kind == AdapterKind::Dora {
        let hint = "export the merged model with `--to gguf`, or the adapter with `--to mlx` or `--to peft`";
        return Err(Explanation::new("export", "llama.cpp has no DoRA adapters").with_hint(hint).into());
    }
    write_gguf(policy, path)?;
    read_gguf(policy, path)
}

/// Writes the adapter as a GGUF file. llama.cpp computes the scale of B·A as `adapter.lora.alpha` ÷ rank, with one
/// alpha for all modules: where a module needs another, its B is multiplied. The caller has checked that the adapter
/// has low-rank factors alone: magnitudes of DoRA and modules that are trained whole are not written.
fn write_gguf(policy: &Policy, path: &Path) -> Result<()> {
    let (model, adapter) = (policy.model(), policy.adapter());
    let alpha = adapter.modules().first().map_or(1.0, |module| module.scale * module.rank as f64) as f32;
    let (mut list, mut values) = (Vec::new(), Vec::new());
    for module in adapter.modules() {
        let ModuleFactors { a, b, scale, .. } = ModuleFactors::of(adapter, module)?;
        let (rank, columns) = a.dims2()?;
        let rows = b.dims2()?.0;
        let name = format!("{}.weight", module.site.path(module.layer));
        let factor = scale * rank as f64 / f64::from(alpha);
        let b = Repair::of(&name, &model.configuration).make((b * factor)?.flatten_all()?.to_vec1()?, &[rows, rank]);
        let name = gguf_module(model, module)?;
        let parts = [("lora_a", vec![rank, columns], a.flatten_all()?.to_vec1()?), ("lora_b", vec![rows, rank], b)];
        for (suffix, shape, numbers) in parts {
            list.push(write::TensorSpec { name: format!("{name}.{suffix}"), shape, dtype: GgmlDType::F32 });
            values.push(numbers);
        }
    }
    let text = |key: &str, text: &str| (key.to_owned(), Value::String(text.to_owned()));
    let metadata = vec![
        text("general.architecture", gguf_architecture(&model.configuration)),
        text("general.type", "adapter"),
        ("general.file_type".to_owned(), Value::U32(0)),
        text("adapter.type", "lora"),
        ("adapter.lora.alpha".to_owned(), Value::F32(alpha)),
    ];
    write::write(path, &metadata, &list, |number| write::quantize(&values[number], GgmlDType::F32))
}

/// Reads the factors of the policy's modules from an adapter's GGUF file, as llama.cpp takes them: the scale of B·A is
/// `adapter.lora.alpha` ÷ rank, and changes that GGUF writers make to B are undone. Errors: the alpha or a tensor is
/// missing.
fn read_gguf(policy: &Policy, path: &Path) -> Result<Adapter> {
    let (model, header) = (policy.model(), Header::read(path)?);
    let alpha = match header.metadata.value("adapter.lora.alpha") {
        Some(Read::Number(alpha)) => *alpha,
        _ => return Err(Error::broken(path, "`adapter.lora.alpha` is missing")),
    };
    let read = |module: &Module| {
        let name = gguf_module(model, module)?;
        let path_of = format!("{}.weight", module.site.path(module.layer));
        let repair = Repair::of(&path_of, &model.configuration);
        let part = |suffix: &str| tensor(&header.tensors, &format!("{name}.{suffix}"), path);
        let (a, b) = (part("lora_a")?, part("lora_b")?);
        let shape = b.dims().to_vec();
        let b = Tensor::from_vec(repair.undo(b.flatten_all()?.to_vec1()?, &shape), shape, &Device::Cpu)?;
        let scale = alpha / a.dims2()?.0 as f64;
        Ok(((module.layer, module.site), ModuleFactors { a, b, scale, magnitude: None }))
    };
    let factors = policy.adapter().modules().iter().map(read).collect::<Result<Vec<_>>>()?;
    Adapter::from_factors(model, &AdapterSettings::default(), &factors)
}

/// The name of a module's matrix in GGUF files, such as `blk.0.attn_q.weight`. Errors: GGUF files have no name for it.
fn gguf_module(model: &Model, module: &Module) -> Result<String> {
    let name = format!("{}.weight", module.site.path(module.layer));
    let unknown = || Error::Unsupported(format!("GGUF files have no name for the weight `{name}`"));
    gguf_name(&name, &model.configuration).ok_or_else(unknown)
}

/// Writes the adapter as a folder for mlx-lm and reads it back.
///
/// # Errors
/// When [`check_factors`] fails, or a file cannot be read or written.
pub(super) fn through_mlx(policy: &Policy, folder: &Path) -> Result<Adapter> {
    check_factors(policy)?;
    let model = policy.model();
    policy.adapter().save_for_mlx(model, &base_name(model), folder)?;
    Adapter::load(model, folder)
}

/// Reads the tensor `name` of a file as `f32`, on the CPU. Errors: it is missing.
fn tensor(tensors: &BTreeMap<String, Location>, name: &str, path: &Path) -> Result<Tensor> {
    let missing = || Error::broken(path, format!("tensor `{name}` is missing"));
    Ok(tensors.get(name).ok_or_else(missing)?.read()?.to_dtype(DType::F32)?)
}
