//! Components that only a run's own file names, by a path. They are not compiled or executed.
//!
//! A run's folder may come from anyone. Built-in components are trusted, those of the store are checked against the lock and
//! the known signers; a component at a path is checked against neither.

use std::path::{Path, PathBuf};

use tunebox_foundation::explain::Explain;
use tunebox_package::Reference;

use crate::configuration::RunSettings;
use crate::error::Error;

/// The components that only a run's own file names, by a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Explain)]
#[error("only the run's own file names {}", list(paths))]
#[explain(
    category = "trust",
    location = folder.display().to_string(),
    why = "a run may be anybody's: at a path, only what a person names is compiled and run",
    kept = "nothing was compiled and nothing ran",
    hint = format!("if you would run it, name it: `{}`", self.command()),
    exit = Trust
)]
pub struct Unnamed {
    /// The run's folder.
    pub folder: PathBuf,
    /// The keys of the run file, and the paths.
    pub paths: Vec<(String, PathBuf)>,
}

impl Unnamed {
    /// Finds the components that the run file of a folder names by a path and no `--set` overrides; `None` if there are
    /// none.
    pub(super) fn find(folder: &Path, settings: &RunSettings) -> Option<Self> {
        let verifiers = (0..settings.file.verifier.len()).map(|number| format!("verifier.{number}.use"));
        let keys = std::iter::once("method.use".to_owned()).chain(verifiers);
        let path = |(key, found): (String, Result<Reference, _>)| match found {
            Ok(Reference::File(path) | Reference::Folder(path)) if !settings.is_override(&key) => Some((key, path)),
            _ => None,
        };
        let paths: Vec<_> = keys.zip(settings.references()).filter_map(path).collect();
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
fn list(paths: &[(String, PathBuf)]) -> String {
    let paths: Vec<String> = paths.iter().map(|(_, path)| format!("`{}`", path.display())).collect();
    paths.join(", ")
}

impl From<Unnamed> for Error {
    fn from(unnamed: Unnamed) -> Self {
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
        let unnamed = Unnamed::find(Path::new("runs/one"), &settings(&[])).unwrap();
        assert_eq!(
            unnamed.hint().unwrap(),
            "if you would run it, name it: `tunebox verify runs/one --replay --set method.use=PATH --set verifier.1.use=PATH`"
        );
        let method = format!("method.use={}", folder.path().join("calm.wasm").display());
        let unnamed = Unnamed::find(Path::new("runs/one"), &settings(&[method])).unwrap();
        let sum = folder.path().join("sum.wasm");
        assert_eq!(unnamed.to_string(), format!("only the run's own file names `{}`", sum.display()));
        let built_in = ["method.use=lora".to_owned(), "verifier.1.use=number".into()];
        assert_eq!(Unnamed::find(Path::new("runs/one"), &settings(&built_in)), None);
    }
}
