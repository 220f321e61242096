//! Claims about packages that people give each other: one person's method trains to the same bits at another's, and
//! whatever was changed on the way is refused, each thing by its own words, before anything is installed or compiled.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[expect(dead_code, reason = "the tests of registries look closer at what was asked")]
#[path = "support/registry.rs"]
mod fake;
#[expect(dead_code, reason = "the tests of registries log in as well")]
#[path = "support/real_registry.rs"]
mod real;
#[path = "support/renamed.rs"]
mod renamed;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use fake::{Answer, FakeRegistry};
use renamed::renamed;
use tunebox_package::artefact::MANIFEST;
use tunebox_package::signature::{SecretKey, sign};
use tunebox_package::statement::Statement;
use tunebox_package::{Artefact, pack::pack};

const BINARY: &str = env!("CARGO_BIN_EXE_tunebox");

/// Exit code of a refusal: a digest, a signature or a name is wrong.
const TRUST: i32 = 4;

/// Somebody with a machine of their own: a home folder, a cache of compiled methods, a project.
struct Person(tempfile::TempDir);

impl Person {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("project")).unwrap();
        Self(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program in a folder of this person's.
    fn command(&self, folder: &str, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.current_dir(self.path(folder)).args(words);
        command.env("TUNEBOX_HOME", self.path("home")).env("TUNEBOX_CACHE", self.path("cache"));
        command.env("DOCKER_CONFIG", self.path("no-logins")).env_remove("TUNEBOX_PUBLISHERS").env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn tunebox(&self, words: &[&str]) -> Output {
        self.command("project", words).output().unwrap()
    }

    /// The same for a command that must succeed; what it said.
    fn done(&self, folder: &str, words: &[&str]) -> String {
        let output = self.command(folder, words).output().unwrap();
        let told = [&output.stderr, &output.stdout].map(|stream| String::from_utf8_lossy(stream).into_owned()).concat();
        assert!(output.status.success(), "`tunebox {}`: {told}", words.join(" "));
        told
    }

    /// What is installed, what was compiled, and what was decided.
    fn state(&self) -> (String, Vec<PathBuf>, Vec<Option<String>>) {
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
    fn refused(&self, words: &[&str], what: &str) -> String {
        let before = self.state();
        let output = self.tunebox(words);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(TRUST), "{what}: {told}");
        assert!(told.starts_with(&format!("error[trust]: {what}\n")), "{told}");
        assert!(told.contains("kept: ") && told.contains("nothing ran"), "{told}");
        assert!(told.contains("hint: "), "{told}");
        assert!(before == self.state(), "{what}: {before:?} became {:?}", self.state());
        told
    }

    fn train(&self, method: &str, more: &[&str]) -> Output {
        let short = ["--set", "train.steps=2", "--set", "train.batch=2", "--quiet"];
        self.tunebox(&[&["train", "--sample", "--method", method][..], &short, more].concat())
    }
}

/// Somebody who publishes: a secret key.
struct Publisher {
    _place: tempfile::TempDir,
    key: SecretKey,
}

impl Publisher {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("me.key");
        SecretKey::generate(&path, None).unwrap();
        Self { key: SecretKey::read(&path, || None).unwrap(), _place: place }
    }

    /// A package with a page, signed.
    fn publish(&self, name: &str, version: &str, page: &str) -> Artefact {
        self.sign(&renamed("lora", name, version), page)
    }

    /// The same of any component.
    fn sign(&self, component: &[u8], page: &str) -> Artefact {
        let wasm = pack(component, Some(page)).unwrap();
        let signature = sign(&Statement::of(&wasm).unwrap(), &self.key).unwrap();
        Artefact { wasm, signature: Some(signature) }
    }
}

/// A digest, and the bytes that are given for it though they are others.
type Swapped = Arc<Mutex<Option<(String, Vec<u8>)>>>;

/// A registry, a publisher, and somebody who has pulled `calm-tone` 0.2.0 from there.
struct Scene {
    registry: FakeRegistry,
    swapped: Swapped,
    publisher: Publisher,
    person: Person,
}

impl Scene {
    fn new() -> Self {
        let swapped = Swapped::default();
        let others = Arc::clone(&swapped);
        let registry = FakeRegistry::with(move |asked| {
            let others = others.lock().unwrap();
            let (digest, bytes) = others.as_ref()?;
            asked.is("GET", digest).then(|| Answer::of(200, bytes.clone()))
        });
        let scene = Self { registry, swapped, publisher: Publisher::new(), person: Person::new() };
        let name = scene.offer("me/calm-tone", "0.2.0", &scene.publisher.publish("calm-tone", "0.2.0", "calm\n"));
        scene.person.done("project", &["pull", &name, "--yes"]);
        scene
    }

    /// Puts a package into the registry under a name, whatever its own is, and gives the whole name.
    fn offer(&self, repository: &str, version: &str, artefact: &Artefact) -> String {
        let documents = artefact.manifest().unwrap();
        self.registry.keep(&artefact.wasm);
        self.registry.keep(&documents.configuration);
        self.registry.name(&format!("{repository}:{version}"), MANIFEST, &documents.manifest);
        self.named(repository, version)
    }

    fn named(&self, repository: &str, version: &str) -> String {
        format!("{}/{repository}:{version}", self.registry.host())
    }
}

/// The whole walk, by the program alone: one machine writes, tests, trains, signs and pushes, another one pulls, looks
/// and trains.
#[test]
fn a_method_that_is_shared_by_a_registry_trains_to_the_same_bits_at_somebody_elses() {
    let Some(registry) = real::Registry::start("") else { return };
    let place = format!("{}/me/even-tone", registry.host());
    let (author, other) = (Person::new(), Person::new());
    let short =
        ["--set", "train.steps=6", "--set", "train.batch=4", "--set", "train.adapter.dropout=0.1", "--name", "run"];

    author.done("project", &["new", "even-tone", "--like", "lora"]);
    let folder = "project/even-tone";
    author.done(folder, &["build"]);
    author.done(folder, &["test"]);
    author.done(folder, &[&["train", "--sample", "--method", "."][..], &short].concat());
    author.done("project", &["key", "me.key"]);
    author.done(folder, &["pack", "--sign", "../me.key"]);
    author.done(folder, &["push", "even-tone-0.1.0.wasm", &place]);

    let told = other.done("project", &["pull", &format!("{place}:0.1.0"), "--yes"]);
    assert!(told.contains("Pulled even-tone@0.1.0"), "{told}");
    let key = fs::read_to_string(author.path("project/me.key.pub")).unwrap();
    let key = key.lines().nth(1).unwrap();
    let told = other.done("project", &["verify", "even-tone@0.1.0", "--signer", key]);
    assert!(told.contains(&format!("by {key}")), "{told}");
    let method = ["train", "--sample", "--method", "even-tone@0.1.0", "--locked"];
    other.done("project", &[&method[..], &short].concat());

    let adapter = |person: &Person, folder: &str| {
        fs::read(person.path(folder).join("runs/run/adapter_model.safetensors")).unwrap()
    };
    assert!(adapter(&author, folder) == adapter(&other, "project"), "the adapters differ");
    // The second time is no first time: nobody is asked, and the same bytes are the same package.
    author.done(folder, &["push", "even-tone-0.1.0.wasm", &place]);
    other.done("project", &["pull", &format!("{place}:0.1.0"), "--locked"]);
}

/// A line that is seen even when the test passes.
pub(crate) fn loudly(line: &str) {
    // Past the capture of the test harness.
    let _ = writeln!(std::io::stderr(), "\n{line}\n");
}

#[test]
fn a_changed_byte_is_not_what_was_signed() {
    let scene = Scene::new();
    let mut package = scene.publisher.publish("calm-tone", "0.3.0", "calm\n");
    // The page is the last section: the component itself still works.
    *package.wasm.last_mut().unwrap() ^= 1;
    let name = scene.offer("me/calm-tone", "0.3.0", &package);
    let told = scene.person.refused(&["pull", &name, "--yes"], "this package is not what was signed");
    assert!(told.contains(&format!(" --> calm-tone@0.3.0 from {name}\n")), "{told}");
}

#[test]
fn a_text_that_is_no_signature_is_told() {
    let scene = Scene::new();
    let mut package = scene.publisher.publish("calm-tone", "0.3.0", "calm\n");
    package.signature = package.signature.map(|text| text.lines().take(3).collect::<Vec<_>>().join("\n"));
    let name = scene.offer("me/calm-tone", "0.3.0", &package);
    scene.person.refused(&["pull", &name, "--yes"], "the signature cannot be read");
}

#[test]
fn the_signature_of_another_package_is_told_with_its_name() {
    let scene = Scene::new();
    let other = scene.publisher.publish("calm-tone", "0.4.0", "calm\n");
    let package = scene.publisher.publish("calm-tone", "0.3.0", "calm\n");
    let name = scene.offer("me/calm-tone", "0.3.0", &Artefact { signature: other.signature, ..package });
    let told = scene.person.refused(&["pull", &name, "--yes"], "this is the signature of another package");
    assert!(told.contains("calm-tone@0.4.0"), "{told}");
}

#[test]
fn another_key_than_before_is_refused_whoever_says_yes() {
    let scene = Scene::new();
    let package = Publisher::new().publish("calm-tone", "0.3.0", "calm\n");
    let name = scene.offer("me/calm-tone", "0.3.0", &package);
    scene.person.refused(&["pull", &name, "--yes"], "another key signs it than before");
}

#[test]
fn an_older_version_is_refused_though_it_is_signed() {
    let scene = Scene::new();
    let name = scene.offer("me/calm-tone", "0.1.0", &scene.publisher.publish("calm-tone", "0.1.0", "calm\n"));
    let told = scene.person.refused(&["pull", &name, "--yes"], "this version is older than one that was used here");
    assert!(told.contains("0.2.0"), "{told}");
}

#[test]
fn a_name_that_looks_like_a_known_one_is_refused() {
    let scene = Scene::new();
    let package = Publisher::new().publish("calm-t0ne", "0.2.0", "calm\n");
    let name = scene.offer("other/calm-t0ne", "0.2.0", &package);
    scene.person.refused(&["pull", &name, "--yes"], "its name looks like `calm-tone`");
}

#[test]
fn an_unsigned_package_of_a_registry_is_refused() {
    let scene = Scene::new();
    let package = scene.publisher.publish("plain-tone", "0.1.0", "plain\n");
    let name = scene.offer("me/plain-tone", "0.1.0", &Artefact { signature: None, ..package });
    scene.person.refused(&["pull", &name, "--yes"], "this package is not signed");
}

#[test]
fn the_signature_of_a_package_may_come_another_way() {
    let scene = Scene::new();
    let package = scene.publisher.publish("plain-tone", "0.1.0", "plain\n");
    let (signature, file) = (package.signature.clone().unwrap(), scene.person.path("project/plain.minisig"));
    let name = scene.offer("me/plain-tone", "0.1.0", &Artefact { signature: None, ..package });
    let pull = ["pull", &name, "--yes", "--signature", "plain.minisig"];
    let others = scene.publisher.publish("other-tone", "0.1.0", "other\n").signature.unwrap();
    fs::write(&file, others).unwrap();
    scene.person.refused(&pull, "this is the signature of another package");
    fs::write(&file, signature).unwrap();
    scene.person.done("project", &pull);
    assert!(scene.person.train("plain-tone@0.1.0", &["--locked"]).status.success());
}

#[test]
fn another_package_than_was_asked_for_is_refused() {
    let scene = Scene::new();
    let name = scene.offer("me/plain-tone", "0.3.0", &scene.publisher.publish("calm-tone", "0.3.0", "calm\n"));
    scene.person.refused(&["pull", &name, "--yes"], "the registry gave another package than was asked for");
}

#[test]
fn bytes_that_are_not_those_of_their_digest_are_refused() {
    let scene = Scene::new();
    let package = scene.publisher.publish("calm-tone", "0.3.0", "calm\n");
    let name = scene.offer("me/calm-tone", "0.3.0", &package);
    let mut other = package.wasm.clone();
    *other.last_mut().unwrap() ^= 1;
    *scene.swapped.lock().unwrap() = Some((package.manifest().unwrap().layer, other));
    scene.person.refused(&["pull", &name, "--yes"], "the package is not what was named");
}

#[test]
fn a_version_that_was_published_again_with_other_bytes_is_refused() {
    let scene = Scene::new();
    let name = scene.offer("me/calm-tone", "0.2.0", &scene.publisher.publish("calm-tone", "0.2.0", "other\n"));
    scene.person.refused(&["pull", &name, "--yes"], "this package is not the one in the lock");
}

#[test]
fn a_signer_who_is_new_is_refused_where_nobody_can_be_asked() {
    let scene = Scene::new();
    let name = scene.offer("other/wild-tone", "0.1.0", &Publisher::new().publish("wild-tone", "0.1.0", "wild\n"));
    let told = scene.person.refused(&["pull", &name], "nobody here has accepted its signer");
    assert!(told.contains(&format!("`tunebox pull {name} --yes`")), "{told}");
    let told = scene.person.refused(&["pull", &name, "--locked"], "it is not in the lock");
    assert!(told.contains("--locked"), "{told}");
    scene.person.done("project", &["pull", &name, "--yes"]);
}

#[test]
fn a_package_in_the_store_runs_only_as_it_was_pulled_and_locked() {
    let scene = Scene::new();
    let Scene { person, .. } = &scene;
    let method = ["train", "--sample", "--method", "calm-tone@0.2.0", "--set", "train.steps=1", "--locked"];
    let lock = person.path("project/tunebox.lock");
    let written = fs::read_to_string(&lock).unwrap();

    fs::remove_file(&lock).unwrap();
    person.refused(&method, "it is not in the lock");
    let digest = written.lines().find_map(|line| line.strip_prefix("sha256 = ")).unwrap();
    fs::write(&lock, written.replace(digest, &format!("\"{}\"", "0".repeat(64)))).unwrap();
    person.refused(&method, "this package is not the one in the lock");
    fs::write(&lock, &written).unwrap();

    let blob = person.path(&format!("home/store/blobs/sha256/{}", digest.trim_matches('"')));
    let bytes = fs::read(&blob).unwrap();
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    replace(&blob, &changed);
    person.refused(&method, "the package is not what was kept");
    person.refused(&["verify", "calm-tone@0.2.0"], "the package is not what was kept");
    replace(&blob, &bytes);

    assert!(
        person.path("cache/compiled").read_dir().map_or(true, |mut entries| entries.next().is_none()),
        "it was compiled"
    );
    let output = person.train("calm-tone@0.2.0", &["--locked", "--name", "run"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run: toml::Table = fs::read_to_string(person.path("project/runs/run/run.lock")).unwrap().parse().unwrap();
    let locked: toml::Table = written.parse().unwrap();
    for key in ["sha256", "signer", "source"] {
        assert_eq!(run["method"][key], locked["package"][0][key], "{key}");
    }
    person.done("project", &["verify", "runs/run", "--replay"]);
}

/// Exchanges a file that is write-protected.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_name_means_what_the_project_pulled_and_never_reaches_the_network() {
    let scene = Scene::new();
    let Scene { person, .. } = &scene;
    for method in ["calm-tone", "calm-tone@0.2.0", &scene.named("me/calm-tone", "0.2.0")] {
        let output = person.train(method, &["--dry-run"]);
        assert!(output.status.success(), "{method}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let later = scene.offer("me/calm-tone", "0.3.0", &scene.publisher.publish("calm-tone", "0.3.0", "calm\n"));
    for (method, what) in [
        (later.as_str(), format!("`{later}` was not pulled yet")),
        ("calm-tone@0.3.0", "there is no package `calm-tone@0.3.0` here".to_owned()),
        ("calm-tonne", "there is no method `calm-tonne`".to_owned()),
    ] {
        let output = person.train(method, &["--dry-run"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.starts_with(&format!("error[package]: {what}\n")), "{told}");
    }
    // A bare name goes up with what is pulled; the run that was made keeps its version.
    person.done("project", &["pull", &later]);
    assert!(person.train("calm-tone", &["--name", "run"]).status.success());
    let run = fs::read_to_string(person.path("project/runs/run/run.toml")).unwrap();
    assert!(run.contains("use = \"calm-tone@0.3.0\""), "{run}");
}

#[test]
fn a_bare_name_means_what_is_built_in_and_with_a_version_what_is_in_the_store() {
    let scene = Scene::new();
    let built_in = tunebox_package::builtin::find("lora").unwrap().bytes;
    let name = scene.offer("me/lora", "0.1.0", &scene.publisher.sign(built_in, "The same, signed\n"));
    scene.person.done("project", &["pull", &name]);
    let signer = |method: &str| {
        let words = ["train", "--sample", "--method", method, "--dry-run", "--json"];
        let output = scene.person.command("project", &words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        told["plan"]["signer"].clone()
    };
    assert_eq!(signer("lora"), serde_json::Value::Null);
    assert_eq!(signer("lora@0.1.0"), scene.publisher.key.signer().key.as_str());
}

#[test]
fn a_verifier_from_the_store_judges_a_run_under_the_same_rules() {
    let scene = Scene::new();
    let verifier = scene.publisher.sign(&renamed("verifiers/number", "plain-sum", "0.1.0"), "Sums\n");
    scene.person.done("project", &["pull", &scene.offer("me/plain-sum", "0.1.0", &verifier)]);
    let judged = ["--set", "verifier.0.use=plain-sum@0.1.0", "--locked", "--name", "judged"];
    let output = scene.person.train("rlvr", &judged);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = fs::read_to_string(scene.person.path("project/runs/judged/run.lock")).unwrap();
    let run: toml::Table = run.parse().unwrap();
    assert_eq!(run["verifier"][0]["signer"].as_str(), Some(scene.publisher.key.signer().key.as_str()));

    fs::remove_file(scene.person.path("project/tunebox.lock")).unwrap();
    let words = ["train", "--sample", "--method", "rlvr", "--set", "verifier.0.use=plain-sum@0.1.0", "--locked"];
    scene.person.refused(&words, "it is not in the lock");
}

#[test]
fn one_name_from_two_sources_must_be_said_in_full() {
    let scene = Scene::new();
    let Scene { person, publisher, .. } = &scene;
    let package = publisher.publish("calm-tone", "0.2.0", "calm\n");
    let folder = person.path("stick");
    let file = person.path("calm-tone-0.2.0.wasm");
    fs::write(&file, &package.wasm).unwrap();
    fs::write(format!("{}.minisig", file.display()), package.signature.unwrap()).unwrap();
    fs::create_dir(&folder).unwrap();
    person.done("project", &["push", file.to_str().unwrap(), folder.to_str().unwrap()]);
    person.done("project", &["pull", folder.to_str().unwrap()]);

    let output = person.train("calm-tone@0.2.0", &["--dry-run"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("error[package]: `calm-tone` is the name of several packages here"), "{told}");
    assert!(told.contains("me/calm-tone") && told.contains("stick"), "{told}");
    let full = scene.named("me/calm-tone", "0.2.0");
    assert!(person.train(&full, &["--dry-run"]).status.success());
}

#[test]
fn a_file_beside_a_signature_that_is_not_its_own_does_not_run() {
    let (publisher, person) = (Publisher::new(), Person::new());
    let package = publisher.publish("calm-tone", "0.1.0", "calm\n");
    let path = person.path("project/calm-tone-0.1.0.wasm");
    let signature = person.path("project/calm-tone-0.1.0.wasm.minisig");
    fs::write(&path, &package.wasm).unwrap();
    fs::write(&signature, package.signature.unwrap()).unwrap();
    let told = person.done("project", &["verify", "calm-tone-0.1.0.wasm", "--signer", &publisher.key.signer().key]);
    assert!(told.contains("who is not known here"), "{told}");
    let other = Publisher::new();
    let output = person.tunebox(&["verify", "calm-tone-0.1.0.wasm", "--signer", &other.key.signer().key]);
    assert_eq!(output.status.code(), Some(TRUST));

    let mut changed = package.wasm.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&path, changed).unwrap();
    let words = ["train", "--sample", "--method", "./calm-tone-0.1.0.wasm", "--set", "train.steps=1"];
    person.refused(&words, "this package is not what was signed");
    fs::remove_file(&signature).unwrap();
    assert_eq!(person.tunebox(&["verify", "calm-tone-0.1.0.wasm"]).status.code(), Some(1), "nobody signed it");
}
