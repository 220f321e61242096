mod bytes;
mod files;
mod locked;
mod names;
mod organization;
mod paths;
mod signers;

use std::fs;

use tempfile::TempDir;
use tunebox_foundation::explain::{Exit, Explain};

use super::decision::today;
use super::*;
use crate::signature::{SecretKey, sign, tests::key};
use crate::statement::tests::package;
use crate::{builtin, pack, section};

const PLACE: &str = "registry.example/me/calm-dpo:0.1.0";

/// A temporary home folder and a temporary project folder.
struct World {
    home: TempDir,
    project: TempDir,
}

impl World {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), project: tempfile::tempdir().unwrap() }
    }

    fn open(&self) -> Trust {
        Trust::with_keyring(self.home.path(), self.project.path(), None).unwrap()
    }

    /// Admits a package, answering yes to every question, and commits it.
    fn take(&self, artifact: &Artifact, source: &str) {
        let mut trust = self.open();
        trust.admit(artifact, source, Mode::Ask(&mut |_| true)).unwrap();
        trust.commit().unwrap();
    }

    /// The error for a package that is refused even if every question is answered with yes.
    fn refusal(&self, artifact: &Artifact, source: &str) -> Error {
        self.open().admit(artifact, source, Mode::Ask(&mut |_| true)).unwrap_err()
    }

    fn lock(&self) -> PathBuf {
        self.project.path().join(lock::FILE)
    }

    fn known(&self) -> PathBuf {
        self.home.path().join(publishers::FILE)
    }
}

fn plain(name: &str, version: &str) -> Artifact {
    Artifact { wasm: package(name, version), signature: None }
}

fn signed(name: &str, version: &str, key: &SecretKey) -> Artifact {
    resigned(package(name, version), key)
}

fn resigned(wasm: Vec<u8>, key: &SecretKey) -> Artifact {
    let signature = sign(&Statement::of(&wasm).unwrap(), key).unwrap();
    Artifact { wasm, signature: Some(signature) }
}

/// Another package of the same name and version.
fn other_bytes(artifact: &Artifact) -> Vec<u8> {
    let mut wasm = artifact.wasm.clone();
    section::append(&mut wasm, "more", b"code");
    wasm
}

/// The doubts about a package, and what is said where no person answers.
fn doubts(mut trust: Trust, artifact: &Artifact, source: &str) -> (Vec<String>, Error) {
    let mut doubts = Vec::new();
    let mut ask = |question: &Question| {
        doubts.clone_from(&question.doubts);
        false
    };
    let error = trust.admit(artifact, source, Mode::Ask(&mut ask)).unwrap_err();
    (doubts, error)
}

/// All texts of an error, line by line.
fn text(error: &Error) -> String {
    assert_eq!(error.exit(), Exit::Trust);
    let explained = error.explanation();
    let line = |mark: &str, text: Option<String>| text.map(|text| format!("{mark}{text}\n")).unwrap_or_default();
    format!(
        "error[{}]: {}\n{}{}{}{}",
        explained.category,
        explained.what,
        line("  --> ", explained.location),
        line("why:  ", explained.why),
        line("kept: ", explained.kept),
        line("hint: ", explained.hint),
    )
}
