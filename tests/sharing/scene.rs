//! Who gives packages to whom: people with machines of their own, publishers, a registry between them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use tunebox_package::artifact::MANIFEST;
use tunebox_package::signature::{SecretKey, sign};
use tunebox_package::statement::Statement;
use tunebox_package::{Artifact, pack::pack};

use crate::support::fake_registry::{Answer, FakeRegistry};
use crate::support::renamed::renamed;
use crate::support::workspace::{Workspace, text};

/// Exit code of a refusal: a digest, a signature or a name is wrong.
pub(crate) const TRUST: i32 = 4;

/// Somebody with a machine of their own: a home folder, a cache of compiled methods, a project.
pub(crate) struct Person(Workspace);

impl Person {
    pub(crate) fn new() -> Self {
        let mut place = Workspace::empty();
        place.cache = place.path("cache");
        fs::create_dir(place.path("project")).unwrap();
        Self(place)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    /// The program in a folder of this person's.
    pub(crate) fn command(&self, folder: &str, words: &[&str]) -> Command {
        let mut command = self.0.tunebox(words);
        command.current_dir(self.path(folder));
        command.env("DOCKER_CONFIG", self.path("no-logins")).env_remove("TUNEBOX_PUBLISHERS");
        command
    }

    pub(crate) fn tunebox(&self, words: &[&str]) -> Output {
        self.command("project", words).output().unwrap()
    }

    /// Runs a command in a folder, which must succeed; returns what it writes.
    pub(crate) fn succeed(&self, folder: &str, words: &[&str]) -> String {
        let output = self.command(folder, words).output().unwrap();
        assert!(output.status.success(), "`tunebox {}`: {}", words.join(" "), text(&output));
        text(&output)
    }

    /// Runs a command in the project, which must end with this exit code; returns what it writes to its error stream.
    pub(crate) fn fail(&self, words: &[&str], code: i32) -> String {
        let output = self.tunebox(words);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "`tunebox {}`: {told}", words.join(" "));
        told
    }

    /// Lays a package into the project: its file, and its signature beside it.
    pub(crate) fn hold(&self, file: &str, package: &Artifact) {
        let path = self.path("project").join(file);
        fs::write(format!("{}.minisig", path.display()), package.signature.as_ref().unwrap()).unwrap();
        fs::write(path, &package.wasm).unwrap();
    }

    /// What is installed, what was compiled, and what was decided.
    pub(crate) fn state(&self) -> (String, Vec<PathBuf>, Vec<Option<String>>) {
        let list = String::from_utf8(self.tunebox(&["list", "--packages", "--json"]).stdout).unwrap();
        let mut compiled: Vec<PathBuf> = fs::read_dir(self.path("cache/compiled"))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
            .collect();
        compiled.sort();
        let decided = ["project/tunebox.lock", "home/publishers.toml"];
        (list, compiled, decided.map(|name| fs::read_to_string(self.path(name)).ok()).to_vec())
    }

    /// A command that must be refused by these words, and leave everything as it was.
    pub(crate) fn assert_refused(&self, words: &[&str], what: &str) -> String {
        let told = self.assert_failed(words, TRUST, &format!("error[trust]: {what}"));
        assert!(told.contains("kept: ") && told.contains("nothing ran"), "{told}");
        told
    }

    /// A command that must end by this code and first line, and leave everything as it was: nothing is installed,
    /// compiled or decided.
    pub(crate) fn assert_failed(&self, words: &[&str], code: i32, first: &str) -> String {
        let before = self.state();
        let told = self.fail(words, code);
        // A registry that is waited for is named before.
        let begins = told.lines().find(|line| !line.trim_start().starts_with("Connecting to the registry of "));
        assert_eq!(begins, Some(first), "{told}");
        assert!(told.contains("hint: "), "{told}");
        assert!(before == self.state(), "{first}: {before:?} became {:?}", self.state());
        told
    }

    pub(crate) fn train(&self, method: &str, more: &[&str]) -> Output {
        let short = ["--set", "train.steps=2", "--set", "train.batch=2", "--quiet"];
        self.tunebox(&[&["train", "--sample", "--method", method][..], &short, more].concat())
    }
}

/// Somebody who publishes: a secret key.
pub(crate) struct Publisher {
    _place: tempfile::TempDir,
    pub(crate) key: SecretKey,
}

impl Publisher {
    pub(crate) fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("me.key");
        SecretKey::generate(&path, None).unwrap();
        Self { key: SecretKey::read(&path, || None).unwrap(), _place: place }
    }

    /// A package with a page, signed.
    pub(crate) fn publish(&self, name: &str, version: &str, page: &str) -> Artifact {
        self.sign(&renamed("lora", name, version), page)
    }

    /// The same of any component.
    pub(crate) fn sign(&self, component: &[u8], page: &str) -> Artifact {
        let wasm = pack(component, Some(page)).unwrap();
        let signature = sign(&Statement::of(&wasm).unwrap(), &self.key).unwrap();
        Artifact { wasm, signature: Some(signature) }
    }
}

/// A part of a path, and what is answered there in the place of what the registry holds.
pub(crate) type Instead = Arc<Mutex<Option<(String, Answer)>>>;

/// A registry, a publisher, and a user who has pulled `calm-tone` 0.2.0 from there.
pub(crate) struct Scene {
    pub(crate) registry: FakeRegistry,
    pub(crate) instead: Instead,
    pub(crate) publisher: Publisher,
    pub(crate) person: Person,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let instead = Instead::default();
        let others = Arc::clone(&instead);
        let registry = FakeRegistry::with(move |asked| {
            let others = others.lock().unwrap();
            let (part, answer) = others.as_ref()?;
            asked.is("GET", part).then(|| answer.clone())
        });
        let scene = Self { registry, instead, publisher: Publisher::new(), person: Person::new() };
        let name = scene.offer("me/calm-tone", "0.2.0", &scene.publisher.publish("calm-tone", "0.2.0", "calm\n"));
        scene.person.succeed("project", &["pull", &name, "--yes"]);
        scene
    }

    /// Puts a package into the registry under a name, whatever its own is, and gives the whole name.
    pub(crate) fn offer(&self, repository: &str, version: &str, artifact: &Artifact) -> String {
        let documents = artifact.manifest().unwrap();
        self.registry.keep(&artifact.wasm);
        self.registry.keep(&documents.configuration);
        self.registry.name(&format!("{repository}:{version}"), MANIFEST, &documents.manifest);
        self.named(repository, version)
    }

    pub(crate) fn named(&self, repository: &str, version: &str) -> String {
        format!("{}/{repository}:{version}", self.registry.host())
    }
}
