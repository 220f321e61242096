//! Writes a model with its adapter in the formats that other programs read, then reads each back and compares its
//! log-probabilities with those of the model that was exported.

mod adapters;
mod check;
mod gguf;
mod metadata;
mod modelfile;
mod quantization;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tunebox_compute::DType;

pub use check::Difference;
pub use quantization::Quantization;

use crate::adapter::Adapter;
use crate::error::Result;
use crate::files;
use crate::merge::merge;
use crate::policy::{Policy, PolicySettings};
use crate::source::Source;
use crate::{Model, merge as merging};

/// The name of the model's file in a folder for Ollama.
const OLLAMA_MODEL: &str = "model.gguf";

/// A format that other programs read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Format {
    /// One GGUF file with adapter and edits merged, for llama.cpp and the programs built on it.
    Gguf(Quantization),
    /// The adapter alone as a GGUF file, for llama.cpp's `--lora`.
    GgufLora,
    /// A folder with a `Modelfile` and the merged GGUF file, for `ollama create`.
    Ollama(Quantization),
    /// The adapter alone as a folder, for mlx-lm.
    Mlx,
    /// The adapter alone as a folder, for PEFT.
    Peft,
    /// A folder with adapter and edits merged, for transformers and the programs that read its folders. The type is
    /// that of the weights: `F32`, `BF16` or `F16`.
    HuggingFace(DType),
}

impl Format {
    /// Whether the format is one file; the others are folders.
    #[must_use]
    pub fn is_file(self) -> bool {
        matches!(self, Self::Gguf(_) | Self::GgufLora)
    }

    /// The largest difference of a token's log-probability, in nats, at which an export counts as equal. The limits of
    /// quantized formats are those of [`Quantization::limit`]; formats that keep every number get that of `F32`, which
    /// covers the rounding of sums.
    #[must_use]
    pub fn limit(self) -> f32 {
        match self {
            Self::Gguf(quantization) | Self::Ollama(quantization) => quantization.limit(),
            Self::HuggingFace(DType::BF16) => Quantization::Bf16.limit(),
            Self::HuggingFace(DType::F16) => Quantization::F16.limit(),
            Self::GgufLora | Self::Mlx | Self::Peft | Self::HuggingFace(_) => Quantization::F32.limit(),
        }
    }
}

/// Writes the policy's model, with its adapter and edits and without patches, into the existing folder `folder`: as the
/// file `name`, which ends in `.gguf`, if the format is one file, else as files with fixed names (`name` is then
/// ignored). Then reads it back and returns how far its log-probabilities are from those of the policy.
///
/// # Errors
/// When the format cannot hold the model or its adapter, a file cannot be read or written, what was written cannot be
/// read back or gives other tokens, or the difference is above [`Format::limit`]. Files may be left in the folder then.
pub fn export(policy: &Policy, format: Format, folder: &Path, name: &str) -> Result<Difference> {
    let file = folder.join(if format.is_file() { name } else { OLLAMA_MODEL });
    let written = match format {
        Format::Gguf(quantization) => write_gguf(policy, &file, quantization)?,
        Format::Ollama(quantization) => {
            files::write(&folder.join("Modelfile"), modelfile::text(policy.model(), OLLAMA_MODEL)?)?;
            write_gguf(policy, &file, quantization)?
        }
        Format::HuggingFace(dtype) => {
            merge(policy, folder, dtype)?;
            open_merged(policy, folder)?
        }
        Format::GgufLora => policy.with_adapter(adapters::through_gguf(policy, &file)?),
        Format::Mlx => policy.with_adapter(adapters::through_mlx(policy, folder)?),
        Format::Peft => policy.with_adapter(through_peft(policy, folder)?),
    };
    check::compare(policy, &written)?.within(format.limit())
}

/// Writes the merged model as a GGUF file and opens it as a policy.
fn write_gguf(policy: &Policy, file: &Path, quantization: Quantization) -> Result<Policy> {
    gguf::write(policy, file, quantization)?;
    open_merged(policy, file)
}

/// Opens a merged model, a folder or a GGUF file, on the CPU. It computes in the number format of `policy`.
fn open_merged(policy: &Policy, path: &Path) -> Result<Policy> {
    let source = Source::from_path(&path.display().to_string(), path)?;
    let compute = policy.precision().request().compute;
    let asked = tunebox_compute::precision::PrecisionRequest { compute, ..Default::default() };
    let model = Model::open_in(&source, &tunebox_compute::Device::Cpu, asked)?;
    Policy::open(Arc::new(model), None, PolicySettings::default())
}

/// Writes the adapter in PEFT's layout and loads it again. A local base model is named by its absolute path, so that
/// PEFT finds it from any folder. Errors: those of [`adapters::check`], or a file cannot be written or read.
fn through_peft(policy: &Policy, folder: &Path) -> Result<Adapter> {
    adapters::check(policy)?;
    let model = policy.model();
    policy.adapter().save_for(model, &base_name(model), folder)?;
    Adapter::load(model, folder)
}

/// The name by which other programs find the base model: its absolute path if it is on this machine, else its name on
/// the hub, without a revision.
fn base_name(model: &Model) -> String {
    let given = Path::new(&model.name);
    if given.exists() {
        return std::path::absolute(given).unwrap_or_else(|_| PathBuf::from(given)).to_string_lossy().into_owned();
    }
    model.name.split('@').next().unwrap_or(&model.name).to_owned()
}

/// Whether the merged weight of this name differs from the base model's: all weights are trained, this one was edited,
/// or an adapter module is on it.
fn is_changed(policy: &Policy, name: &str) -> bool {
    merging::is_changed(policy.adapter(), policy.edits(), name)
}
