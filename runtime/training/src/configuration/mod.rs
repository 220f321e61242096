//! The settings of a run: from `run.toml` and `--set` to checked tables.
//!
//! Keys, types and ranges are checked here, with the location of each error. Whether a model, a file or a method
//! accepts the settings is checked by `plan`.

mod check;
mod components;
mod document;
mod limits;
mod names;
mod problems;
mod record;
mod requests;
mod sample;
mod tables;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tunebox_foundation::explain::{Explain, Explanation};
use tunebox_foundation::files;
use tunebox_foundation::paths::{resolve, simplify};
use tunebox_model::RankGroup;
use tunebox_model::hub::is_address;
use tunebox_sandbox::{CallObserver, Compiling, Profiler};

pub use check::{choices, find_key, key_schema, schema, type_names};
pub use document::{Document, SettingLocation, Underline};
pub use names::{find_advice, find_meant_key, find_meant_value};
pub(crate) use names::{meant_choice_hint, meant_key_hint};
pub(crate) use problems::join;
pub use requests::Requests;
pub use tables::{
    AdapterTable, DataFile, DataTable, ENDLESS, EnvironmentTable, Grant, Initialize, MethodTable, ModelTable,
    RUNS_FOLDER, RunFile, RunTable, TrainTable, ValidationData, VerifierTable,
};

use crate::error::Error;
use crate::length::Extension;
use crate::lock::is_run;
use crate::plan::{NativeMethod, setting_problems};

/// Inputs of a replayed run that neither its settings nor its files hold, as `run.lock` recorded them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayInputs {
    /// The time that chat templates read, in seconds since 1970.
    pub clock: i64,
    /// The name of the base model, which adapters record.
    pub model: String,
    /// The numbers of steps that were planned before the run was resumed with more.
    pub extended: Vec<Extension>,
}

/// The sizes of a random data set, for benchmarks and unit tests.
#[derive(Debug, Clone, Copy)]
pub struct RandomRecords {
    /// Number of records.
    pub records: usize,
    /// Tokens of each row; a prompt has half of them.
    pub sequence: usize,
    /// Seed of the tokens.
    pub seed: u64,
}

/// The settings of a run: the checked tables, the text they came from, and flags that no run file has.
///
/// A worker process receives all of it except the fields marked `skip`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunSettings {
    /// The checked tables.
    pub file: RunFile,
    /// Resume a run from its checkpoint instead of starting one.
    pub resume: bool,
    /// Never fetch a model or data over the network.
    pub offline: bool,
    /// A run of the method's author: it may be resumed with another version of its method than before, and its observer
    /// may change the method between steps.
    #[serde(skip)]
    pub authoring: bool,
    /// Recorded inputs, for a run that is replayed.
    pub replay: Option<ReplayInputs>,
    /// Cache and limits of compiling methods and verifiers.
    #[serde(skip)]
    pub compiling: Compiling,
    /// Records where the method spends its time. Only in this process.
    #[serde(skip)]
    pub profiler: Option<Profiler>,
    /// The processes that run the author's source in the place of the method's component.
    #[serde(skip)]
    pub native: Option<NativeMethod>,
    /// Is notified while a call of the method lasts. Only in this process.
    #[serde(skip)]
    pub(crate) call_observer: Option<CallObserver>,
    /// The ranks among which the run is divided; this process alone by default.
    #[serde(skip)]
    pub(crate) ranks: RankGroup,
    /// Train on random records instead of the data file.
    #[serde(skip)]
    pub(crate) random: Option<RandomRecords>,
    document: Document,
    /// The folder that paths in the run file are relative to.
    folder: PathBuf,
    /// The folder whose `tunebox.lock` lists the packages that the run may use; empty for the current one.
    project: PathBuf,
    /// The run file that the user named; `None` if the settings come from the command line or the sample.
    #[serde(skip)]
    file_path: Option<PathBuf>,
}

impl RunSettings {
    /// Plans the run for this many ranks, without a connection to them.
    pub fn plan_for_ranks(&mut self, count: usize) {
        self.ranks = RankGroup::for_planning(count);
    }

    /// Reads a run file and applies every `--set` in order. Paths in the file are relative to its folder, whose
    /// `tunebox.lock` lists the packages that the run may use.
    ///
    /// # Errors
    /// A file that cannot be read, or is a link in the folder of a run; an unknown key, wrong type or wrong value, with
    /// its location.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Self, Error> {
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let (project, is_of_run) = (folder.clone(), is_run(&folder));
        if is_of_run {
            files::reject_links(path, 0)?;
        }
        let settings = Self::from_text(&path.display().to_string(), &files::read_text(path)?, folder, overrides)?;
        let mut settings = Self { project, file_path: Some(path.to_owned()), ..settings };
        if is_of_run {
            settings.follow_moved_run();
        }
        Ok(settings)
    }

    /// Sets the folder and the name of the run to those of the folder that the run file lies in, the folder of a run.
    /// If that was moved or copied, the file still names the place where the run began. What a `--set` gives stays.
    fn follow_moved_run(&mut self) {
        let here = resolve(self.project());
        let (Some(runs), Some(name)) = (here.parent(), here.file_name().and_then(|name| name.to_str())) else { return };
        let run = &mut self.file.run;
        let named = run.name.as_ref().map(|name| resolve(&Path::new(&run.folder).join(name)));
        if named.as_ref() == Some(&here) {
            return;
        }
        if !self.document.is_override("run.folder") {
            run.folder = runs.to_string_lossy().into_owned();
        }
        if !self.document.is_override("run.name") {
            run.name = Some(name.to_owned());
        }
    }

    /// Reads the text of a run file and applies every `--set` (`table.key=value`) in order. Messages call the file
    /// `name`; its paths are relative to `folder`. The `tunebox.lock` of the current folder lists the packages that the
    /// run may use.
    ///
    /// # Errors
    /// An unknown key, wrong type or wrong value, with its location.
    pub fn from_text(name: &str, text: &str, folder: PathBuf, overrides: &[String]) -> Result<Self, Error> {
        Self::from_document(Document::parse(name, text)?, folder, overrides)
    }

    /// Builds settings from `--set` arguments (`table.key=value`) alone; paths are relative to the current folder.
    ///
    /// # Errors
    /// An unknown key, wrong type or wrong value, with its location.
    pub fn from_overrides(overrides: &[impl AsRef<str>]) -> Result<Self, Error> {
        Self::from_document(Document::default(), PathBuf::new(), overrides)
    }

    /// Applies every `--set`, checks the document against the schema, and reads the tables. Paths in the run file are
    /// relative to `folder`. A `--set` of `model.adapter` removes `train.adapter` of the file, and one of `data.path`
    /// or `data.files` removes the other of these two, unless a `--set` gives the removed key as well.
    ///
    /// # Errors
    /// All problems of the document and the `--set` arguments together, and those of the settings that can be read
    /// beside them: [`setting_problems`].
    fn from_document(mut document: Document, folder: PathBuf, overrides: &[impl AsRef<str>]) -> Result<Self, Error> {
        let wrong = overrides.iter().filter_map(|assignment| document.set(assignment.as_ref()).err());
        let mut errors: Vec<Error> = wrong.collect();
        // `--set model.adapter` continues an adapter and replaces the new one that the file may describe.
        if document.has_override_within("model.adapter") && !document.has_override_within("train.adapter") {
            document.remove("train.adapter");
        }
        // A `--set` of one of the two keys for the data replaces the other in the file.
        for (key, other) in [("data.path", "data.files"), ("data.files", "data.path")] {
            if document.has_override_within(key) && !document.has_override_within(other) {
                document.remove(other);
            }
        }
        let problems = check::check(&mut document);
        if !errors.is_empty() || !problems.is_empty() {
            let mut rest = document.clone();
            check::remove_wrong_values(&mut rest, &problems);
            errors.extend(problems::locate(problems, &document));
            if let Ok(rest) = Self::from_checked(rest, folder.clone()) {
                errors.extend(setting_problems(&Self { project: folder.clone(), ..rest }));
            }
            join(errors)?;
        }
        Self::from_checked(document, folder)
    }

    /// Reads the tables of a document without problems. All flags beside the tables are off.
    fn from_checked(document: Document, folder: PathBuf) -> Result<Self, Error> {
        let file = serde_json::from_value(document.tree.clone())
            .map_err(|error| Explanation::new("config", error.to_string()).with_hint("see the schema of run files"))?;
        Ok(Self {
            file,
            resume: false,
            offline: false,
            authoring: false,
            replay: None,
            compiling: Compiling::default(),
            profiler: None,
            native: None,
            call_observer: None,
            ranks: RankGroup::default(),
            random: None,
            document,
            folder,
            project: PathBuf::new(),
            file_path: None,
        })
    }

    /// Resolves `written`, the path that the settings have at the dotted key `key`: relative to the run file's folder,
    /// or to the current one if a `--set` gave the key. An absolute path stays, and so does an address on a hub. Does
    /// not check that it exists.
    #[must_use]
    pub fn path(&self, key: &str, written: &str) -> PathBuf {
        let is_whole = self.is_override(key) || is_address(written);
        if is_whole { PathBuf::from(written) } else { simplify(&self.folder.join(written)) }
    }

    /// The folder whose `tunebox.lock` lists the packages that the run may use: that of the run file, or the current
    /// one.
    #[must_use]
    pub fn project(&self) -> &Path {
        if self.project.as_os_str().is_empty() { Path::new(".") } else { &self.project }
    }

    /// Whether a `--set` gave a dotted key, a table above it, or, for a table that is not in the file, a key below it.
    #[must_use]
    pub fn is_override(&self, key: &str) -> bool {
        self.document.is_override(key)
    }

    /// Whether the run file or a `--set` gives the dotted key or table `key`; defaults do not count.
    pub(crate) fn is_given(&self, key: &str) -> bool {
        self.document.tree.pointer(&format!("/{}", key.replace('.', "/"))).is_some()
    }

    /// Whether a `--set` gives the key `key` of `[train]`, or the run file gives it another value than the default. The
    /// run file that a run leaves in its folder gives every default.
    pub(crate) fn changes_train(&self, key: &str) -> bool {
        let value = |table: &TrainTable| serde_json::to_value(table).unwrap_or_default()[key].take();
        self.is_override(&format!("train.{key}")) || value(&self.file.train) != value(&TrainTable::default())
    }

    /// Adds the location of a key in the run file to an error about the file or package that the key names. Leaves
    /// errors that have a location, and those about a `--set`, as they are.
    pub(crate) fn with_location(&self, key: &str, error: impl Into<Error>) -> Error {
        let error = error.into();
        let (mut explanation, exit) = (error.explanation(), error.exit());
        match self.document.location(key, Underline::Value).filter(|location| location.snippet.is_some()) {
            Some(location) if explanation.location.is_none() => {
                (explanation.location, explanation.snippet) = (Some(location.text), location.snippet);
                Error::Explained(Box::new(explanation), exit)
            }
            _ => error,
        }
    }

    /// Turns a problem with the dotted key `key` into an error with the location of the key, or of its value with
    /// [`Underline::Value`]: in the run file, or the `--set` that gave it.
    #[must_use]
    pub fn error(&self, key: &str, underline: Underline, problem: Explanation) -> Error {
        self.document.error(key, underline, problem, None)
    }

    /// Builds the error about settings that are valid one by one and not together, located at the dotted key `key`, one
    /// of theirs. `what` is the problem, `hint` what to do.
    pub(crate) fn conflict(&self, key: &str, underline: Underline, what: &str, hint: &str) -> Error {
        self.error(key, underline, Explanation::new("config", what).with_hint(hint))
    }
}

#[cfg(test)]
mod tests;
