//! The model that a command works on, with or without an adapter.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Deserialize;
use tunebox_compute::device;
use tunebox_compute::precision::{Base, Compute, PrecisionRequest};
use tunebox_foundation::bounded;
use tunebox_foundation::files::FileError;
use tunebox_model::{Model, Policy, PolicySettings};
use tunebox_sandbox::confinement::{MemoryLimit, reading_memory};
use tunebox_training::{
    adapter_template, base_precision, find_base, find_model, find_steering, is_checkpoint, model_files,
    newest_checkpoint,
};

use crate::access::{Access, computes_on_cpu};
use crate::arguments::{Global, one_of};
use crate::terminal::{Failure, Terminal};

/// Largest `adapter_config.json` that is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Options that choose a model, an adapter and a device.
#[derive(Debug, Args)]
pub(crate) struct ModelOptions {
    /// A model (folder, `.gguf` file or hub name), an adapter folder or a run folder: of an unfinished run the newest
    /// checkpoint is used, of a run of the method `steer` its model with its steering vectors
    #[arg(value_name = "MODEL")]
    path: String,
    /// Adapter to apply to the model
    #[arg(long, value_name = "FOLDER")]
    adapter: Option<PathBuf>,
    /// Base model of the adapter [default: the one named in its `adapter_config.json`]
    #[arg(long = "base-model", value_name = "MODEL")]
    base_model: Option<String>,
    /// Precision of the base model's matrices: `stored`, as in its files, or `nf4` or `q8_0`, quantized while loading
    /// [default: that of the run that trained the adapter]
    #[arg(
        long = "base-precision",
        value_name = "PRECISION",
        value_parser = one_of([("stored", Base::Stored), ("nf4", Base::Nf4), ("q8_0", Base::Q8_0)])
    )]
    base_precision: Option<Base>,
    /// Number format of activations: `auto` is `bf16` where it is faster than `f32`
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "auto",
        value_parser = one_of([("auto", Compute::Auto), ("bf16", Compute::Bf16), ("f32", Compute::F32)])
    )]
    compute: Compute,
    /// Use the base model without the adapter
    #[arg(long)]
    base: bool,
    /// Device to compute on: `cpu`, `cuda[:n]`, `metal` or `auto`
    #[arg(long, default_value = "cpu")]
    device: String,
}

/// A loaded model, with its adapter applied if it has one.
pub(crate) struct LoadedModel {
    pub(crate) policy: Policy,
    model: Arc<Model>,
    pub(crate) has_adapter: bool,
    /// The vectors of the run, if the MODEL argument is one that left only directions. They are not added to `policy`
    /// yet.
    pub(crate) vectors: Option<PathBuf>,
}

/// What the options name: a base model, and what the user put beside it.
struct Named {
    base: String,
    adapter: Option<PathBuf>,
    /// The vectors of a run that left only directions.
    vectors: Option<PathBuf>,
}

impl LoadedModel {
    /// Opens the same base model as a new policy, without the adapter and without the weight edits of a checkpoint.
    /// Both policies share the base weights in memory.
    pub(crate) fn base_policy(&self) -> Result<Policy, Failure> {
        Ok(Policy::open(Arc::clone(&self.model), None, PolicySettings::default())?)
    }
}

impl ModelOptions {
    /// The MODEL argument as a path if it is an existing folder, else `None`.
    pub(crate) fn existing_folder(&self) -> Option<&Path> {
        Some(Path::new(&self.path)).filter(|path| path.is_dir())
    }

    /// Fetches the model if it is one of a hub. Returns access to the files that [`load`](Self::load) reads (in the
    /// parent, to none for a model on this machine); `None` if the command computes on an accelerator.
    pub(crate) fn prepare(&self, global: &Global) -> Result<Option<Access>, Failure> {
        let quiet = Terminal { json: false, quiet: true, verbose: false };
        let Named { base, adapter, .. } = self.find(quiet)?;
        let mut read = Vec::new();
        // The index of a model on this machine is not read in the parent.
        if global.supervised || !Path::new(&base).exists() {
            let source = find_model(&base, None, global.offline)?;
            let given = [Some(Path::new(&self.path)), self.adapter.as_deref(), adapter.as_deref()];
            read = given.into_iter().flatten().chain([source.path()]).flat_map(model_files).collect();
        }
        Ok(Some(Access::read_only(read)).filter(|_| computes_on_cpu(&self.device)))
    }

    /// Loads the model as [`load`](Self::load) does, but computes in `f32` unless `--compute` names another format, so
    /// that two models can be compared.
    pub(crate) fn load_exactly(mut self, terminal: Terminal, global: &Global) -> Result<LoadedModel, Failure> {
        if self.compute == Compute::Auto {
            self.compute = Compute::F32;
        }
        self.load(terminal, global)
    }

    /// Loads the base model, with the chat template beside the adapter if there is one, and, unless `--base` is given,
    /// applies the adapter and the weight edits of a checkpoint.
    /// Shows the base precision and the checkpoint in use where the user did not name them. Limits the memory of the
    /// process while a model for the CPU is read.
    pub(crate) fn load(&self, terminal: Terminal, global: &Global) -> Result<LoadedModel, Failure> {
        let Named { base, adapter, vectors } = self.find(terminal)?;
        let device = device::parse(&self.device)?;
        if let Some(text) = device::auto_fallback_reason(&self.device) {
            terminal.warn(text);
        }
        let source = find_model(&base, None, global.offline)?;
        let run = adapter.as_deref().or_else(|| vectors.as_deref()?.parent());
        let base_precision = self.base_precision(terminal, run)?;
        // Until the model is loaded: its files decide what that takes, and the user what follows.
        let limit = device.is_cpu().then(|| MemoryLimit::set(reading_memory(source.bytes(), 0))).transpose();
        let _limit = limit.map_err(FileError::at("used", source.path()))?;
        let mut model =
            Model::open_in(&source, &device, PrecisionRequest { base: base_precision, compute: self.compute })?;
        if let Some(template) = run.map(adapter_template).transpose()?.flatten() {
            model.set_template(&template)?;
        }
        let model = Arc::new(model);
        terminal.detail(format!("model {base}, {} weights", model.configuration.family));
        let adapter = adapter.filter(|_| !self.base);
        let mut policy = Policy::open(Arc::clone(&model), adapter.as_deref(), PolicySettings::default())?;
        // Weight edits are part of a checkpoint. Beside any other adapter such a file is ignored.
        if let Some(adapter) = adapter.as_ref().filter(|folder| is_checkpoint(folder)) {
            policy.restore_edits(adapter)?;
        }
        if policy.is_edited() {
            terminal.status("Edits", "weights changed by the method are restored from the checkpoint");
        }
        let vectors = vectors.filter(|_| !self.base);
        Ok(LoadedModel { policy, model, has_adapter: adapter.is_some(), vectors })
    }

    /// Finds the base model and the adapter or vectors beside it. The MODEL argument may be an adapter or a run: it
    /// then takes precedence over `--adapter`, and its `adapter_config.json` names the base, which [`find_base`]
    /// resolves. It may be a run that left only directions, whose `run.toml` names the base. In all cases
    /// `--base-model` takes precedence as the base. Shows a checkpoint that is used in place of a finished run.
    fn find(&self, terminal: Terminal) -> Result<Named, Failure> {
        let path = Path::new(&self.path);
        if let Some(adapter) = find_adapter(terminal, path)? {
            let named = || Ok::<_, Failure>(find_base(&adapter, &read_base_name(&adapter)?)?);
            let base = self.base_model.clone().map_or_else(named, Ok)?;
            return Ok(Named { base, adapter: Some(adapter), vectors: None });
        }
        let (base, vectors) = match find_steering(path, self.base_model.as_deref())? {
            Some((vectors, base)) => (base, Some(vectors)),
            None => (self.base_model.clone().unwrap_or_else(|| self.path.clone()), None),
        };
        let Some(named) = &self.adapter else { return Ok(Named { base, adapter: None, vectors }) };
        // A folder without an adapter is rejected with a specific error when the policy opens it.
        let adapter = find_adapter(terminal, named)?.unwrap_or_else(|| named.clone());
        Ok(Named { base, adapter: Some(adapter), vectors })
    }

    /// The precision to load the base model in: `--base-precision`, else that of the run in the folder `run`, which
    /// trained the adapter or read the vectors, else as stored. Reports when a quantized format comes from the run.
    fn base_precision(&self, terminal: Terminal, run: Option<&Path>) -> Result<Base, Failure> {
        if let Some(base) = self.base_precision {
            return Ok(base);
        }
        let trained_on = run.map(base_precision).transpose()?.flatten();
        if let Some(base) = trained_on.filter(|base| !base.is_stored()) {
            let why = "as in the run that trained the adapter; `--base-precision stored` loads it as in its files";
            terminal.status("Base", format!("in {base}, {why}"));
        }
        Ok(trained_on.unwrap_or_default())
    }
}

/// Finds the folder of the adapter: `folder` itself if it has an `adapter_config.json`, else the newest checkpoint of
/// the unfinished run in it, which is reported to the user. Returns `None` if there is neither. Fails if an unfinished
/// run has no checkpoint with an adapter.
fn find_adapter(terminal: Terminal, folder: &Path) -> Result<Option<PathBuf>, Failure> {
    if folder.join("adapter_config.json").is_file() {
        return Ok(Some(folder.to_owned()));
    }
    let Some((step, checkpoint)) = newest_checkpoint(folder)? else { return Ok(None) };
    terminal.status("Checkpoint", format!("{}: the run is not finished, this is step {step}", checkpoint.display()));
    Ok(Some(checkpoint))
}

/// The only keys of `adapter_config.json` that are read before the child is confined: the base as PEFT and as mlx-lm
/// names it.
#[derive(Deserialize)]
struct NamedBase {
    base_model_name_or_path: Option<String>,
    model: Option<String>,
}

/// Reads the base model's name from an adapter's `adapter_config.json`. Fails if the file is missing, is larger than 1
/// MiB, is not JSON, or names no base model.
fn read_base_name(adapter: &Path) -> Result<String, Failure> {
    let path = adapter.join("adapter_config.json");
    let text = bounded::read_text(&path, MAX_CONFIG_BYTES).map_err(FileError::at("used", &path))?;
    let named: NamedBase = serde_json::from_str(&text).map_err(|error| {
        let what = format!("`{}` is not valid JSON: {error}", path.display());
        Failure::usage(what, "the file is damaged; restore it or write the adapter again")
    })?;
    match named.base_model_name_or_path.or(named.model) {
        Some(name) if !name.is_empty() => Ok(name),
        _ => {
            let what = format!("`{}` does not name its base model", path.display());
            Err(Failure::usage(what, "name it with `--base-model MODEL`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oversized_adapter_config_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adapter_config.json");
        std::fs::File::create(path).unwrap().set_len(MAX_CONFIG_BYTES + 1).unwrap();
        let why = read_base_name(folder.path()).unwrap_err().explanation.why.unwrap();
        assert_eq!(why, "it has 1048577 bytes; at most 1048576 are read");
    }
}
