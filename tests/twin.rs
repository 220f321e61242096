//! Claims about native twins: the same source does the same as a component and as a process, to the bit; one that does
//! not is found out; and a test of an author's is served by the very host.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const BINARY: &str = env!("CARGO_BIN_EXE_tunebox");

fn tunebox(words: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(words).env("NO_COLOR", "1").env("TUNEBOX_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/compiled"));
    // One for all folders, so that the SDK is compiled once, and none that the cargo above may hold.
    command.env("CARGO_TARGET_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/twin"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `tunebox test` of a folder over some steps.
fn tested(folder: &Path, steps: &str, more: &[&str]) -> Output {
    let words = [&["test", folder.to_str().unwrap(), "--steps", steps], more].concat();
    tunebox(&words).output().unwrap()
}

/// The object that `tunebox test --json` ends with, of one that came through.
fn same(folder: &str, steps: &str) -> Value {
    let output = tested(&Path::new(ROOT).join(folder), steps, &["--json"]);
    let (told, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{told}{said}");
    let last = told.lines().last().unwrap();
    let tested: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&tested["event"], &tested["same"]), (&"tested".into(), &true.into()), "{last}");
    assert_eq!(tested["steps"].to_string(), steps);
    tested
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_supervised_method_and_its_twin_are_the_same_to_the_bit() {
    let tested = same("methods/lora", "4");
    // Every number of an adapter of rank 8 on the tiny model, after `init`, each step and `finish`.
    assert!(tested["bits"].as_u64().unwrap() > 6 * 32 * 10_000, "{tested}");
    assert!(tested["metrics"].as_u64().unwrap() >= 4 * 3, "{tested}");
}

#[test]
fn a_preference_method_and_its_twin_are_the_same_to_the_bit() {
    let tested = same("methods/dpo", "4");
    assert!(tested["metrics"].as_u64().unwrap() >= 4 * 11, "{tested}");
}

#[test]
fn a_method_that_writes_and_is_judged_and_its_twin_are_the_same_to_the_bit() {
    let tested = same("examples/9-rloo", "3");
    assert!(tested["metrics"].as_u64().unwrap() >= 3 * 4, "{tested}");
}

#[test]
fn a_method_that_edits_at_the_end_and_its_twin_leave_the_same() {
    let output = tunebox(&["test", &format!("{ROOT}/methods/abliterate"), "--json"]).output().unwrap();
    let (told, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{told}{said}");
    let tested: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    // The weights that it edited, as its artifact would have them.
    assert!(tested["bits"].as_u64().unwrap() > 32 * 10_000, "{tested}");
}

/// A folder outside of the repository with a method whose step holds `body`. Cargo tells two folders that build into one
/// by their names.
fn outside(name: &str, body: &str) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let sdk = Path::new(ROOT).join("sdk/rust").canonicalize().unwrap();
    let manifest = format!(
        "[package]\nname = {name:?}\nversion = \"0.1.0\"\nedition = \"2024\"\ndescription = \"A calm method\"\nlicense = \
         \"Apache-2.0\"\n\n[lib]\ncrate-type = [\"cdylib\"]\n\n[dependencies]\ntunebox = {{ path = {sdk:?} }}\n\n[workspace]\n"
    );
    std::fs::create_dir(place.path().join("src")).unwrap();
    std::fs::write(place.path().join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(Path::new(ROOT).join("Cargo.lock"), place.path().join("Cargo.lock")).unwrap();
    std::fs::write(place.path().join("src/lib.rs"), SOURCE.replace("BODY", body)).unwrap();
    // What the smaller workspace does not have goes out of the lock file.
    let mut cargo = Command::new(tunebox_package::toolchain::find().unwrap().cargo);
    assert!(cargo.args(["update", "--workspace", "--quiet"]).current_dir(place.path()).status().unwrap().success());
    place
}

const SOURCE: &str = r#"//! A calm method.

use tunebox::prelude::*;

/// What people may set.
#[derive(Settings)]
pub struct Calm {
    /// How calm.
    #[setting(default = 0.5)]
    half: f32,
}

impl Method for Calm {
    type Settings = Self;

    fn init(settings: Self) -> Result<Self> {
        Ok(settings)
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        let rows = batch.rows("example")?;
        let scores = score_for_learning(&rows, Taps::empty(), 1.0)?;
        let loss = loss::token_mean(&-scores.logprob(), batch.window_targets("example")?) * self.half;
        BODY
        minimise(&loss)?;
        add_metric("loss", loss);
        Ok(())
    }
}

method! { Calm, shape: "supervised", metrics: ["loss"] }
"#;

#[test]
fn a_method_that_asks_what_it_is_compiled_for_is_found_out() {
    // Where neither number nor bit of what is reported tells, the weights do.
    let folder =
        outside("shifty", r#"let loss = if cfg!(target_arch = "wasm32") { loss } else { loss * (1.0 + 1e-6) };"#);
    let output = tested(folder.path(), "3", &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error[test]: `shifty` does not do natively what its component does"), "{said}");
    assert!(said.contains("at step 1"), "{said}");
}

#[test]
fn a_twin_that_panics_is_shown_with_file_and_line() {
    let folder = outside("nervous", r#"assert!(cfg!(target_arch = "wasm32"), "only calm in a component");"#);
    let line = SOURCE.lines().position(|line| line.contains("BODY")).unwrap() + 1;
    let output = tested(folder.path(), "3", &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("only calm in a component"), "{said}");
    assert!(said.contains(&format!("src/lib.rs:{line}:")), "{said}");
    assert!(said.contains("it went on"), "{said}");
}

#[test]
fn a_test_of_the_authors_that_fails_is_the_answer() {
    let folder = outside("wrong", "");
    let path = folder.path().join("src/lib.rs");
    let source = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{source}\n#[test]\nfn calm_is_half() {{\n    assert_eq!(1, 2);\n}}\n")).unwrap();
    let output = tested(folder.path(), "1", &["--json"]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("calm_is_half"));
    let tested: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!((&tested["own"], &tested["same"]), (&false.into(), &Value::Null));
}

/// A test of an author's, as the bytes that it sends and gets.
struct Author {
    stream: TcpStream,
    host: Child,
}

const TOKEN: &str = "5ec2e7";

const MANIFEST: &str = r#"{"name": "calm", "version": "0.1.0", "description": "Calm", "shape": "supervised",
    "settings": [{"name": "half", "doc": "How calm.", "kind": "number", "default": 0.5, "low": 0.0}],
    "metrics": ["loss"], "interface": "0.1.0"}"#;

impl Author {
    /// Starts the host, hears its token, and says what is wanted.
    fn wants(wanted: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let host = tunebox(&["host"]).env("TUNEBOX_TWIN", address).env("TUNEBOX_TWIN_TOKEN", TOKEN).spawn().unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut author = Self { stream, host };
        assert_eq!(author.hear(), string(TOKEN));
        author.say(&[string(TOKEN), string(MANIFEST), string(wanted)].concat());
        author
    }

    fn say(&mut self, payload: &[u8]) {
        self.stream.write_all(&(payload.len() as u32).to_le_bytes()).unwrap();
        self.stream.write_all(payload).unwrap();
    }

    fn hear(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut payload = vec![0; u32::from_le_bytes(length) as usize];
        self.stream.read_exact(&mut payload).unwrap();
        payload
    }

    /// The call that comes now is this one; it ends well.
    fn is_called(&mut self, export: u8) -> Vec<u8> {
        let call = self.hear();
        assert_eq!(call[..2], [0, export], "{}", text(&call));
        self.say(&[1, 0]);
        call[2..].to_vec()
    }

    /// The report that comes now.
    fn report(&mut self) -> Value {
        let frame = self.hear();
        assert_eq!(frame[0], 4, "{}", text(&frame));
        serde_json::from_slice(&frame[5..]).unwrap()
    }

    /// Goes, and gives what the host ended with.
    fn leave(self) -> Output {
        drop(self.stream);
        self.host.wait_with_output().unwrap()
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

#[test]
fn an_authors_test_is_served_without_a_component() {
    let mut author =
        Author::wants(r#"{"settings": {"half": 0.25}, "seed": 3, "rows": 4, "set": {"train.accumulation": 2}}"#);
    let settings = author.is_called(0);
    let wanted = [&1_u32.to_le_bytes()[..], &string("half"), &[2], &0.25_f64.to_le_bytes()].concat();
    assert_eq!(settings, wanted);
    assert_eq!(author.report()["step"], 0);

    // Between two calls a test computes as a method would.
    author.say(&[&[0][..], &string("run/log"), &string("hello")].concat());
    assert_eq!(author.hear(), [1]);
    author.say(&[&[3][..], &string("step")].concat());
    for _ in 0..2 {
        let call = author.hear();
        assert_eq!(call[..2], [0, 1]);
        author.say(&[&[0][..], &string("data/[method]batch.size"), &call[2..]].concat());
        assert_eq!(author.hear(), [&[1][..], &2_u32.to_le_bytes()].concat());
        author.say(&[&[0][..], &string("run/metric"), &string("loss"), &1.5_f32.to_le_bytes()].concat());
        assert_eq!(author.hear(), [1, 0]);
        author.say(&[1, 0]);
    }
    let report = author.report();
    assert_eq!(
        (&report["step"], &report["metrics"]["loss"], &report["log"][0]),
        (&1.into(), &1.5.into(), &"hello".into())
    );
    author.say(&[&[3][..], &string("finish")].concat());
    author.is_called(2);
    author.report();
    let ended = author.leave();
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
}

#[test]
fn what_an_authors_test_wants_wrongly_it_is_told_as_a_person_would_be() {
    for (wanted, told) in [
        (r#"{"settings": {"half": -1.0}}"#, "at least 0"),
        (r#"{"settings": {"hafl": 0.5}}"#, "did you mean `half`"),
        (r#"{"sizes": 3}"#, "`sizes`"),
        (r#"{"set": {"train.bacth": 3}}"#, "unknown key `bacth`"),
        (r#"{"records": [{"prompt": "A"}]}"#, "completion"),
    ] {
        let mut author = Author::wants(wanted);
        let frame = author.hear();
        let words = text(&frame);
        assert!(frame[0] == 2 && words.contains("error[") && words.contains(told), "{wanted}: {words}");
        assert!(!words.contains('\u{1b}'), "{words}");
        assert_ne!(author.leave().status.code(), Some(0));
    }
}

#[test]
fn a_host_without_a_test_says_what_it_is_for() {
    let output = tunebox(&["host"]).env_remove("TUNEBOX_TWIN").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("this command is for tunebox itself"));
}

#[test]
fn a_folder_without_a_method_in_rust_has_no_twin() {
    let place = tempfile::tempdir().unwrap();
    let output = tested(&PathBuf::from(place.path()), "1", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is no folder of a method in Rust"));
}
