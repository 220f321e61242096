//! The settings of a run: from `run.toml` and `--set` to checked tables.
//!
//! Checked here: keys, types, ranges, each with its place. What a model, a file or a method
//! has to say about them is left to the plan.

mod check;
mod document;
mod fault;
mod limits;
mod references;
mod sample;
mod tables;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tunebox_foundation::paths::simplify;
use tunebox_package::Reference;
use tunebox_sandbox::{Compiling, Profiler};

pub use check::{key_called, schema};
pub use document::{Document, Half};
pub use fault::{ConfigurationError, Problem, Spot};
pub use limits::LimitsTable;
pub use tables::{
    AdapterTable, AllLinear, AnswersChoice, BasePrecision, ComputeChoice, DataTable, Grant, Initialise, KindChoice,
    MethodTable, ModelTable, RunFile, RunTable, Targets, TrainTable, VerifierTable,
};

use crate::error::Error;
use tunebox_foundation::files;

/// What ends up in a run's files and is neither in its settings nor in what they name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// The time that chat templates read, in seconds since 1970.
    pub clock: i64,
    /// What the model was called, which adapters say they belong to.
    pub model: String,
}

/// What a run is told: the tables, where they came from, and how to treat an older run.
///
/// It can be handed to another process; that one says for itself where compiled code comes from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunSettings {
    /// The checked tables.
    pub file: RunFile,
    /// Go on with a run that has checkpoints, instead of starting one.
    pub resume: bool,
    /// Never ask the network for a model.
    pub offline: bool,
    /// Whether its author works on the method: a run that goes on may have another version of it since.
    #[serde(skip)]
    pub authoring: bool,
    /// What a run that is made again keeps of the first time.
    pub again: Option<Again>,
    /// Where compiled methods and verifiers come from and are kept. No key of a run file.
    #[serde(skip)]
    pub compiling: Compiling,
    /// Records where the method's own time goes, in this process.
    #[serde(skip)]
    pub profiler: Option<Profiler>,
    document: Document,
    folder: PathBuf,
    /// The folder whose `tunebox.lock` says which packages of strangers the run may use; empty for the present one.
    project: PathBuf,
}

impl RunSettings {
    /// Reads a run file and applies every `--set` in order.
    ///
    /// # Errors
    /// A file that cannot be read; unknown keys, wrong types and values, each with its place.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Self, Error> {
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let project = folder.clone();
        let settings = Self::from_text(&path.display().to_string(), &files::read_text(path)?, folder, overrides)?;
        Ok(Self { project, ..settings })
    }

    /// The same from the text of a run file that messages call `name`; its paths begin at `folder`.
    ///
    /// # Errors
    /// As [`RunSettings::load`], but for reading the file.
    pub fn from_text(name: &str, text: &str, folder: PathBuf, overrides: &[String]) -> Result<Self, Error> {
        Self::from_document(Document::parse(name, text)?, folder, overrides)
    }

    /// Settings that come from `--set` alone.
    ///
    /// # Errors
    /// As [`RunSettings::load`].
    pub fn from_overrides(overrides: &[String]) -> Result<Self, Error> {
        Self::from_document(Document::default(), PathBuf::new(), overrides)
    }

    fn from_document(mut document: Document, folder: PathBuf, overrides: &[String]) -> Result<Self, Error> {
        for assignment in overrides {
            document.set(assignment)?;
        }
        // Who continues an adapter by `--set` wants no new one, as the file may describe it.
        let set = |key: &str| document.overrides_within(&split(key));
        if set("model.adapter") && !set("train.adapter") {
            document.forget("train", "adapter");
        }
        check::check(&mut document)?;
        let tree = Value::Object(document.tree.clone());
        let file = serde_json::from_value(tree).map_err(|error| ConfigurationError {
            problem: Problem::Conflict { what: error.to_string(), hint: "see the schema of run files".into() },
            spot: None,
        })?;
        let compiling = Compiling::default();
        let project = PathBuf::new();
        let (again, profiler) = (None, None);
        let (resume, offline, authoring) = (false, false, false);
        Ok(Self { file, resume, offline, authoring, again, compiling, profiler, document, folder, project })
    }

    /// Where a key stands, for errors that only the plan can find.
    #[must_use]
    pub fn spot(&self, key: &str, half: Half) -> Option<Spot> {
        self.document.spot(&split(key), half)
    }

    /// The path that a key means: from the run file's folder, or from the present one for `--set`.
    #[must_use]
    pub fn path(&self, key: &str, written: &str) -> PathBuf {
        if self.document.is_override(&split(key)) {
            PathBuf::from(written)
        } else {
            simplify(&self.folder.join(written))
        }
    }

    /// A model or method by path or by name: the path if there is something at it, else as written.
    #[must_use]
    pub fn path_or_name(&self, key: &str, written: &str) -> String {
        let path = self.path(key, written);
        if path.exists() { path.to_string_lossy().into_owned() } else { written.to_owned() }
    }

    /// The folder whose `tunebox.lock` says which packages of strangers the run may use: that of the run file, or the
    /// present one.
    #[must_use]
    pub fn project(&self) -> &Path {
        if self.project.as_os_str().is_empty() { Path::new(".") } else { &self.project }
    }

    /// Whether a key came from a `--set`.
    #[must_use]
    pub fn is_override(&self, key: &str) -> bool {
        self.document.is_override(&split(key))
    }

    /// Whether a key or table was given at all, by file or `--set`.
    #[must_use]
    pub fn given(&self, key: &str) -> bool {
        let mut parts = key.split('.');
        let first = parts.next().and_then(|name| self.document.tree.get(name));
        let below = |value: &'_ Value, name: &str| match value {
            Value::Array(items) => name.parse().ok().and_then(|place: usize| items.get(place).cloned()),
            other => other.get(name).cloned(),
        };
        parts.fold(first.cloned(), |value, name| value.and_then(|value| below(&value, name))).is_some()
    }

    /// The settings with every default filled in and every path absolute, as TOML that can be
    /// run from anywhere; `name` is what the run is called.
    #[must_use]
    pub fn to_toml(&self, name: &str) -> String {
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned();
        let mut file = self.file.clone();
        let settle = |key: &str, written: &mut String| {
            let path = self.path(key, written);
            if path.exists() {
                *written = absolute(path);
            }
        };
        settle("model.path", &mut file.model.path);
        settle("data.path", &mut file.data.path);
        file.model.adapter.iter_mut().for_each(|written| settle("model.adapter", written));
        file.data.validation.iter_mut().for_each(|written| settle("data.validation", written));
        // What means a package is no path, whatever lies under its name.
        let method = &mut file.method.r#use;
        if tunebox_package::builtin::find(method).is_none() && !Reference::means_package(method) {
            settle("method.use", method);
        }
        for (number, verifier) in file.verifier.iter_mut().enumerate() {
            let is_package = Reference::means_package(&verifier.r#use);
            if tunebox_package::builtin::find_verifier(&verifier.r#use).is_none() && !is_package {
                settle(&format!("verifier.{number}.use"), &mut verifier.r#use);
            }
        }
        file.run.folder = absolute(PathBuf::from(&file.run.folder));
        file.run.name = Some(name.to_owned());
        let mut table = toml::Table::try_from(&file).unwrap_or_default();
        if file.model.adapter.is_some()
            && let Some(train) = table.get_mut("train").and_then(toml::Value::as_table_mut)
        {
            // A continued adapter keeps its own description; the two together are refused.
            train.remove("adapter");
        }
        toml::to_string_pretty(&table).unwrap_or_default()
    }

    /// An error about what a key names, with the place in the run file. What a flag names was typed just now.
    pub(crate) fn named(&self, key: &str, error: impl Into<Error>) -> Error {
        let source = Box::new(error.into());
        match self.spot(key, Half::Value).filter(|spot| spot.line.is_some()) {
            Some(spot) => Error::Named { source, spot: Box::new(spot) },
            None => *source,
        }
    }

    /// An error about one key.
    #[must_use]
    pub fn wrong(&self, key: &str, half: Half, problem: Problem) -> Error {
        ConfigurationError { problem, spot: self.spot(key, half).map(Box::new) }.into()
    }
}

fn split(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
