//! What a command works on: a model, or a model with an adapter, however the person named it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use tunebox_compute::device;
use tunebox_compute::precision::Base;
use tunebox_foundation::{bounded, paths};
use tunebox_model::{Model, Policy, PolicySettings};
use tunebox_training::{base_precision, find_model, is_checkpoint, is_run, newest_checkpoint};

use crate::arguments::Global;
use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

/// The most bytes that are read of an `adapter_config.json`.
const LONGEST: u64 = 1 << 20;

/// A model, an adapter, or a run's folder.
#[derive(Debug, Args)]
pub(crate) struct Subject {
    /// A model (folder, `.gguf` file or hub name), an adapter folder, or a run's folder; for an unfinished run, its newest
    /// checkpoint
    #[arg(value_name = "MODEL")]
    artifact: String,
    /// An adapter to put on the model
    #[arg(long, value_name = "FOLDER")]
    adapter: Option<PathBuf>,
    /// The base model of an adapter, where its own record of it does not lead there
    #[arg(long = "base-model", value_name = "MODEL")]
    base_model: Option<String>,
    /// What the matrices of the base model are kept in: `stored`, as in its files, or `nf4`, quantised while it is read; as
    /// in the run that trained the adapter without it
    #[arg(long = "base-precision", value_name = "PRECISION", value_parser = kept())]
    base_precision: Option<Base>,
    /// Leave the adapter off
    #[arg(long)]
    base: bool,
    /// `cpu`, `cuda[:n]`, `metal` or `auto`
    #[arg(long, default_value = "cpu")]
    device: String,
}

/// Reads what the matrices of a base are kept in.
fn kept() -> impl TypedValueParser<Value = Base> {
    PossibleValuesParser::new(["stored", "nf4"]).map(|word| if word == "nf4" { Base::Nf4 } else { Base::Stored })
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
    fn resolve(&self, terminal: Terminal) -> Result<(String, Option<PathBuf>), Failure> {
        let Some(adapter) = adapter_in(terminal, Path::new(&self.artifact))? else {
            let base = self.base_model.clone().unwrap_or_else(|| self.artifact.clone());
            let Some(named) = &self.adapter else { return Ok((base, None)) };
            // What is no adapter is refused with its own words when it is read.
            let adapter = adapter_in(terminal, named)?.unwrap_or_else(|| named.clone());
            return Ok((base, Some(adapter)));
        };
        let base = match &self.base_model {
            Some(base) => base.clone(),
            None => base_of(&adapter)?,
        };
        Ok((base, Some(adapter)))
    }

    /// The folder that was named, if it is one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        Some(Path::new(&self.artifact)).filter(|path| path.is_dir())
    }

    /// What the base is kept in: as the person says, else as the run that trained the adapter had it.
    fn precision(&self, terminal: Terminal, adapter: Option<&Path>) -> Result<Base, Failure> {
        if let Some(base) = self.base_precision {
            return Ok(base);
        }
        let trained_on = adapter.map(base_precision).transpose()?.flatten();
        if trained_on == Some(Base::Nf4) {
            let why = "as in the run that trained the adapter; `--base-precision stored` has it as in its files";
            terminal.say("Base", format!("in nf4, {why}"));
        }
        Ok(trained_on.unwrap_or_default())
    }

    /// Opens it all.
    pub(crate) fn load(&self, terminal: Terminal, global: &Global) -> Result<Loaded, Failure> {
        let (base, adapter) = self.resolve(terminal)?;
        let device = device::parse(&self.device)?;
        if let Some(text) = device::auto_fallback_reason(&self.device) {
            terminal.say("Warning", text);
        }
        let source = find_model(&base, None, global.offline)?;
        let kept = self.precision(terminal, adapter.as_deref())?;
        let model = Arc::new(Model::open_in(&source, &device, kept)?);
        terminal.detail(format!("model {base}, {} weights", model.configuration.family));
        let adapted = adapter.is_some() && !self.base;
        let adapter = adapter.as_deref().filter(|_| adapted);
        let mut policy = Policy::open(Arc::clone(&model), adapter, PolicySettings::default())?;
        // Beside an adapter that is no checkpoint nothing changes the weights of its base.
        if let Some(adapter) = adapter.filter(|folder| is_checkpoint(folder)) {
            policy.restore_edits(adapter)?;
        }
        if policy.is_edited() {
            terminal.say("Edits", "the weights that the method changed are as in the checkpoint");
        }
        Ok(Loaded { policy, model, adapted })
    }
}

/// The adapter that is meant by a folder: the one in it, or the newest checkpoint of a run that is not finished.
fn adapter_in(terminal: Terminal, folder: &Path) -> Result<Option<PathBuf>, Failure> {
    if folder.join("adapter_config.json").is_file() {
        return Ok(Some(folder.to_owned()));
    }
    let Some((step, checkpoint)) = newest_checkpoint(folder)? else { return Ok(None) };
    terminal.say("Checkpoint", format!("{}: the run is not finished, this is step {step}", checkpoint.display()));
    Ok(Some(checkpoint))
}

/// Lets a folder pass that is no run's. Errors: a run, with what looks at one.
pub(crate) fn expect_method(folder: &Path) -> Result<(), Failure> {
    if !is_run(folder) {
        return Ok(());
    }
    let folder = paths::simplify(folder);
    let (run, settings) = (folder.display(), folder.join("run.toml"));
    let settings = settings.display();
    Err(Failure::usage(
        format!("`{run}` is a run, not a method"),
        format!("`tunebox check {settings}` looks at its settings, `tunebox verify {run}` at what it left"),
    ))
}

/// The base model that an adapter names in its `adapter_config.json`.
pub(crate) fn base_of(adapter: &Path) -> Result<String, Failure> {
    let path = adapter.join("adapter_config.json");
    let text = bounded::read_text(&path, LONGEST).map_err(|error| Failure::file(&path, &error))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_the_place_of_a_method_is_answered_with_what_looks_at_runs() {
        let folder = tempfile::tempdir().unwrap();
        assert!(expect_method(folder.path()).is_ok());
        std::fs::write(folder.path().join("run.lock"), "").unwrap();
        let run = folder.path().display();
        let hint = expect_method(&folder.path().join(".")).unwrap_err().explanation.hint.unwrap();
        assert_eq!(
            hint,
            format!("`tunebox check {run}/run.toml` looks at its settings, `tunebox verify {run}` at what it left")
        );
    }

    #[test]
    fn an_adapter_without_end_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adapter_config.json");
        std::fs::File::create(path).unwrap().set_len(LONGEST + 1).unwrap();
        let why = base_of(folder.path()).unwrap_err().explanation.why.unwrap();
        assert_eq!(why, "it has 1048577 bytes; at most 1048576 are read");
    }
}
