//! What a run's own file names as method and verifiers: read and hashed, and compiled only where not the run alone says so.
//!
//! A run's folder may come from anybody. What is built in is ours, and what is in the store is held against the lock and
//! the signers who are known here; a path says nothing of whom it is from.

use std::path::{Path, PathBuf};

use tunebox_foundation::explain::{Exit, Explain};
use tunebox_package::{Package, Reference};

use crate::configuration::RunSettings;
use crate::error::Error;
use crate::plan::held;

/// A run that is to be done again with what only its own file names by a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("only the run's own file names {}", listed(paths))]
pub struct Unnamed {
    /// The run's folder.
    pub folder: PathBuf,
    /// The keys that name something, and the paths.
    pub paths: Vec<(String, PathBuf)>,
}

impl Unnamed {
    /// What the run of a folder names by a path, and the person does not; none where there is nothing.
    pub(super) fn of(folder: &Path, settings: &RunSettings) -> Option<Self> {
        let verifiers = (0..settings.file.verifier.len()).map(|number| format!("verifier.{number}.use"));
        let keys = std::iter::once("method.use".to_owned()).chain(verifiers);
        let path = |(key, found): (String, Result<Reference, _>)| match found {
            Ok(Reference::File(path) | Reference::Folder(path)) if !settings.is_override(&key) => Some((key, path)),
            _ => None,
        };
        let paths: Vec<_> = keys.zip(settings.references()).filter_map(path).collect();
        (!paths.is_empty()).then(|| Self { folder: folder.to_owned(), paths })
    }

    /// The command that names them, once a person puts in what to run: nothing of the run's own is to be copied there.
    #[must_use]
    pub fn command(&self) -> String {
        let sets: String = self.paths.iter().map(|(key, _)| format!(" --set {key}=PATH")).collect();
        format!("tunebox verify {} --replay{sets}", self.folder.display())
    }
}

fn listed(paths: &[(String, PathBuf)]) -> String {
    let paths: Vec<String> = paths.iter().map(|(_, path)| format!("`{}`", path.display())).collect();
    paths.join(", ")
}

impl Explain for Unnamed {
    fn category(&self) -> &'static str {
        "trust"
    }

    fn location(&self) -> Option<String> {
        Some(self.folder.display().to_string())
    }

    fn why(&self) -> Option<String> {
        Some("a run may be anybody's: at a path, only what a person names is compiled and run".into())
    }

    fn kept(&self) -> Option<String> {
        Some("nothing was compiled and nothing ran".into())
    }

    fn hint(&self) -> Option<String> {
        Some(format!("if you would run it, name it: `{}`", self.command()))
    }

    fn exit(&self) -> Exit {
        Exit::Trust
    }
}

/// The method of a run, then its verifiers: read, held against the lock of its project, and not compiled.
pub(super) fn read(settings: &RunSettings) -> Vec<Result<Package, Error>> {
    settings.references().into_iter().map(|found| held(&found?, settings.project())).collect()
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
        let unnamed = Unnamed::of(Path::new("runs/one"), &settings(&[])).unwrap();
        assert_eq!(
            unnamed.hint().unwrap(),
            "if you would run it, name it: `tunebox verify runs/one --replay --set method.use=PATH --set verifier.1.use=PATH`"
        );
        let method = format!("method.use={}", folder.path().join("calm.wasm").display());
        let unnamed = Unnamed::of(Path::new("runs/one"), &settings(&[method])).unwrap();
        let sum = folder.path().join("sum.wasm");
        assert_eq!(unnamed.to_string(), format!("only the run's own file names `{}`", sum.display()));
        let built_in = ["method.use=lora".to_owned(), "verifier.1.use=number".into()];
        assert_eq!(Unnamed::of(Path::new("runs/one"), &settings(&built_in)), None);
    }
}
