//! The inputs of a run, as far as they are known without compiling its method and verifiers; and the data files and
//! components that are named only by the `run.toml` in the run's folder, not by the user with `--set`.
//!
//! A run's folder may come from anyone. Built-in components are trusted, those of the store are checked against the
//! lock and the known signers; a component at a path is checked against neither, so it is not compiled or executed.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toml::Table;
use tunebox_foundation::explain::{Explain, Explanation};
use tunebox_package::{Package, Reference};

use super::comparison::{ABSENT, Comparison};
use crate::configuration::{RunSettings, Underline};
use crate::data::InputFile;
use crate::error::Error;
use crate::lock;
use crate::lock::write::{component_entry, list_or_null, remove_nulls, reward_entry};
use crate::plan::{
    data_paths, digest_files, digests, find_reward, lock_settings, teacher_digests, training_files, validation_files,
};

/// The keys of a lock whose values may be known only after planning, which opens the model and tokenizes the data.
const KNOWN_AFTER_PLANNING: [&str; 6] =
    ["model.family", "data.records", "data.tokens-sha256", "validation.records", "validation.tokens-sha256", "steps"];

/// Checks that the data which the run's `run.toml` names are regular files, folders, links to such, or missing. Skips
/// those that a `--set` names. A run's folder may come from anyone, and reading a pipe could block forever.
///
/// # Errors
/// A path to something else than a regular file, located in `run.toml`.
pub(super) fn check_data_files(settings: &RunSettings) -> Result<(), Error> {
    for (key, path) in data_paths(settings).into_iter().filter(|(key, _)| !settings.is_override(key)) {
        if path.metadata().is_ok_and(|about| !about.is_file() && !about.is_dir()) {
            let what = format!("`{}` is no ordinary file", path.display());
            let problem = Explanation::new("config", what)
                .with_why("a run may come from anyone, and reading something that is no file may never end")
                .with_hint(format!("to read it, name it on the command line: `--set {key}=PATH`"));
            return Err(settings.error(&key, Underline::Value, problem));
        }
    }
    Ok(())
}

/// Builds the lock's table of a run's current inputs without planning the run: the keys in [`KNOWN_AFTER_PLANNING`] are
/// missing, except `steps` if the run file gives it. `components` holds the package of the method, those of all
/// verifiers except reward models, then that of the environment, if the run has one. If a package could not be read,
/// the table has no `method`; a verifier or environment gets an empty table.
///
/// # Errors
/// A model, reward model, adapter or data file that cannot be read.
pub(super) fn unplanned_lock_table(
    settings: &RunSettings,
    components: &[Result<Package, Error>],
) -> Result<Table, Error> {
    let ((model, adapter), file) = (digests(settings)?, &settings.file);
    let data = |files: Vec<InputFile>| -> Result<Value, Error> { Ok(json!({ "sha256": digest_files(&files)? })) };
    let validation = validation_files(settings)?.map(data).transpose()?;
    let mut components = components.iter().map(|read| read.as_ref().ok());
    let method = components.next().flatten().map(|package| method_table(settings, package));
    let mut entries = components.map(|read| read.map_or(json!({}), |package| component_entry("", package)));
    let mut verifier = |number: usize| match file.verifier[number].reward_model() {
        Some(_) => find_reward(settings, number).map(|(source, digest)| reward_entry("", &source, &digest)),
        None => Ok(entries.next().unwrap_or_default()),
    };
    let verifiers = (0..file.verifier.len()).map(&mut verifier).collect::<Result<Vec<_>, Error>>()?;
    let mut now = json!({
        "seed": file.train.seed,
        "steps": file.train.steps,
        "model": { "sha256": model, "adapter": adapter },
        "teacher": list_or_null(teacher_digests(settings)?.into_iter().map(|digest| json!({ "sha256": digest })).collect()),
        "data": data(training_files(settings)?)?,
        "validation": validation,
        "method": method,
        "verifier": list_or_null(verifiers),
        "environment": entries.next(),
    });
    remove_nulls(&mut now);
    Ok(Table::try_from(now).unwrap_or_default())
}

/// Builds the table `method` of a lock from the run's current method and settings.
pub(super) fn method_table(settings: &RunSettings, package: &Package) -> Value {
    lock::write::method_table(package, &lock_settings(settings, package), &[])
}

/// Removes comparisons whose present value is `absent` only because [`unplanned_lock_table`] cannot know it: the keys
/// in [`KNOWN_AFTER_PLANNING`], and those of `components` that could not be read. `keys` are the keys of the run file
/// that name the components, in their order. Other absent values stay, as differences.
pub(super) fn remove_unknown(compared: &mut Vec<Comparison>, keys: &[String], components: &[Result<Package, Error>]) {
    let unread = components.iter().zip(keys).filter(|(read, _)| read.is_err());
    let unread: Vec<&str> = unread.map(|(_, key)| key.trim_end_matches("use")).collect();
    let unknown = |what: &str| KNOWN_AFTER_PLANNING.contains(&what) || unread.iter().any(|name| what.starts_with(name));
    compared.retain(|one| one.found != ABSENT || !unknown(&one.what));
}

/// The error about components that the run's `run.toml` names by a path and no `--set` confirms. They
/// may come from anyone, so they are neither compiled nor executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Explain)]
#[error("only the run's own file names {}", list_paths(paths))]
#[explain(
    category = "trust",
    location = folder.display().to_string(),
    why = "a run may come from anyone: a component at a path is executed only if the command line names it",
    kept = "nothing was compiled and nothing ran",
    hint = format!("to run it, name it on the command line: `{}`", self.command()),
    exit = Trust
)]
pub struct UnconfirmedComponents {
    /// The run's folder.
    pub folder: PathBuf,
    /// Pairs of a key of the run file, such as `method.use`, and the path that it names.
    pub paths: Vec<(String, PathBuf)>,
}

impl UnconfirmedComponents {
    /// Finds the components, the method first, that the run file in `folder` names by the path of an existing file or
    /// folder and no `--set` overrides; `None` if there are none. `settings` are those of that run file.
    #[must_use]
    pub fn find(folder: &Path, settings: &RunSettings) -> Option<Self> {
        let path = |(key, found): (String, Result<Reference, _>)| match found {
            Ok(Reference::File(path) | Reference::Folder(path)) if !settings.is_override(&key) => Some((key, path)),
            _ => None,
        };
        let paths: Vec<_> = settings.component_keys().into_iter().zip(settings.references()).filter_map(path).collect();
        (!paths.is_empty()).then(|| Self { folder: folder.to_owned(), paths })
    }

    /// The `tunebox verify` command with which the user allows a replay with the components. `PATH` stands for the
    /// paths that the user must give.
    #[must_use]
    pub fn command(&self) -> String {
        let sets: String = self.paths.iter().map(|(key, _)| format!(" --set {key}=PATH")).collect();
        format!("tunebox verify {} --replay{sets}", self.folder.display())
    }
}

/// Joins the paths, each in backticks, with commas; the keys are left out.
fn list_paths(paths: &[(String, PathBuf)]) -> String {
    let paths: Vec<String> = paths.iter().map(|(_, path)| format!("`{}`", path.display())).collect();
    paths.join(", ")
}

impl From<UnconfirmedComponents> for Error {
    /// Converts to [`Error::Explained`], with the exit code [`Exit::Trust`](tunebox_foundation::explain::Exit::Trust).
    fn from(unnamed: UnconfirmedComponents) -> Self {
        Self::Explained(Box::new(unnamed.explanation()), unnamed.exit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_named_by_a_person_or_by_the_run_alone() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["calm.wasm", "sum.wasm"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let text = "[model]\npath = \".\"\n[data]\npath = \"a.jsonl\"\n[method]\nuse = \"calm.wasm\"\n\
                    [[verifier]]\nuse = \"number\"\n[[verifier]]\nuse = \"sum.wasm\"\n";
        let settings =
            |set: &[String]| RunSettings::from_text("run.toml", text, folder.path().to_owned(), set).unwrap();
        let unnamed = UnconfirmedComponents::find(Path::new("runs/one"), &settings(&[])).unwrap();
        assert_eq!(
            unnamed.hint().unwrap(),
            "to run it, name it on the command line: `tunebox verify runs/one --replay --set method.use=PATH --set verifier.1.use=PATH`"
        );
        let method = format!("method.use={}", folder.path().join("calm.wasm").display());
        let unnamed = UnconfirmedComponents::find(Path::new("runs/one"), &settings(&[method])).unwrap();
        let sum = folder.path().join("sum.wasm");
        assert_eq!(unnamed.to_string(), format!("only the run's own file names `{}`", sum.display()));
        let built_in = ["method.use=lora".to_owned(), "verifier.1.use=number".into()];
        assert_eq!(UnconfirmedComponents::find(Path::new("runs/one"), &settings(&built_in)), None);
    }
}
