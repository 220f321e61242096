//! What a command works on: a model, or a model with an adapter, however the person named it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use tunebox_compute::device;
use tunebox_compute::precision::Base;
use tunebox_model::{Model, Policy, PolicySettings, Source};

use crate::arguments::Global;
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

/// A model, an adapter, or a run's folder.
#[derive(Debug, Args)]
pub(crate) struct Subject {
    /// A model (folder, `.gguf` file or hub name), an adapter folder, or a run's folder
    #[arg(value_name = "MODEL")]
    artifact: String,
    /// An adapter to put on the model
    #[arg(long, value_name = "FOLDER")]
    adapter: Option<PathBuf>,
    /// The base model of an adapter, where its own record of it does not lead there
    #[arg(long = "base-model", value_name = "MODEL")]
    base_model: Option<String>,
    /// Quantise the base model while it is read, as in the run that trained its adapter; as in its files without it
    #[arg(long = "base-precision", value_enum)]
    base_precision: Option<BasePrecision>,
    /// Leave the adapter off
    #[arg(long)]
    base: bool,
    /// `cpu`, `cuda[:n]` or `metal`
    #[arg(long, default_value = "cpu")]
    device: String,
}

/// What the matrices of a base are kept in, other than in its files.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum BasePrecision {
    Nf4,
}

/// A model that is loaded, with its adapter if it has one.
pub(crate) struct Loaded {
    pub(crate) policy: Policy,
    model: Arc<Model>,
    pub(crate) adapted: bool,
}

impl Loaded {
    /// The same model without the adapter; the weights are shared.
    pub(crate) fn base(&self) -> Result<Policy, Failure> {
        Ok(Policy::open(Arc::clone(&self.model), None, PolicySettings::default())?)
    }
}

impl Subject {
    /// The base model's name and the adapter's folder.
    pub(crate) fn resolve(&self) -> Result<(String, Option<PathBuf>), Failure> {
        let path = Path::new(&self.artifact);
        if !path.join("adapter_config.json").is_file() {
            return Ok((self.base_model.clone().unwrap_or_else(|| self.artifact.clone()), self.adapter.clone()));
        }
        let base = match &self.base_model {
            Some(base) => base.clone(),
            None => base_of(path)?,
        };
        Ok((base, Some(path.to_path_buf())))
    }

    /// The folder that was named, if it is one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        Some(Path::new(&self.artifact)).filter(|path| path.is_dir())
    }

    /// Opens it all.
    pub(crate) fn load(&self, terminal: Terminal, global: &Global) -> Result<Loaded, Failure> {
        let (base, adapter) = self.resolve()?;
        let device = device::parse(&self.device)?;
        let source = Source::open(&base, global.offline)?;
        let kept = match self.base_precision {
            None => Base::Stored,
            Some(BasePrecision::Nf4) => Base::Nf4,
        };
        let model = Arc::new(Model::open_in(&source, &device, kept)?);
        terminal.detail(format!("model {base}, {} weights", model.configuration.family));
        let adapted = adapter.is_some() && !self.base;
        let policy =
            Policy::open(Arc::clone(&model), adapter.as_deref().filter(|_| adapted), PolicySettings::default())?;
        Ok(Loaded { policy, model, adapted })
    }
}

/// The base model that an adapter names in its `adapter_config.json`.
pub(crate) fn base_of(adapter: &Path) -> Result<String, Failure> {
    let path = adapter.join("adapter_config.json");
    let text = std::fs::read_to_string(&path).map_err(|error| Failure::file(&path, &error))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(
            format!("`{}` is not JSON: {error}", path.display()),
            "the file was damaged; write the adapter again",
        )
    })?;
    match value.get("base_model_name_or_path").and_then(|name| name.as_str()) {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(Failure::usage(
            format!("`{}` does not say which model it belongs to", path.display()),
            "name it with `--base-model MODEL`",
        )),
    }
}
