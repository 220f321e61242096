//! A folder in which tests run the program, and what they find there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::golden::root;
use super::manifested::manifested;
use super::transcript::{BINARY, METHOD_TARGET};

/// A temporary folder in which the program runs, with a home of its own.
pub(crate) struct Workspace {
    folder: tempfile::TempDir,
    /// Where the program keeps compiled code; all folders share one unless a test changes this.
    pub(crate) cache: PathBuf,
    /// Where cargo builds methods; all folders share one unless a test changes this.
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// An empty folder.
    pub(crate) fn empty() -> Self {
        let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/compiled").into();
        Self { folder: tempfile::tempdir().unwrap(), cache, target: METHOD_TARGET.into() }
    }

    /// A folder with the tiny model as `model`.
    pub(crate) fn with_model() -> Self {
        let place = Self::empty();
        std::fs::create_dir(place.path("model")).unwrap();
        for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
            let file = format!("model/{name}");
            std::fs::copy(sample().join(&file), place.path(&file)).unwrap();
        }
        place
    }

    /// A folder with the tiny model as `model`, and the first records of the sample's answers as `answers.jsonl`.
    pub(crate) fn with_sample(records: usize) -> Self {
        let place = Self::with_model();
        place.copy_records("lora.jsonl", "answers.jsonl", records);
        place
    }

    /// Copies the first records of a data file of the sample.
    pub(crate) fn copy_records(&self, from: &str, to: &str, count: usize) {
        let text = std::fs::read_to_string(sample().join(from)).unwrap();
        let few: Vec<&str> = text.lines().take(count).collect();
        self.write(to, &(few.join("\n") + "\n"));
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// The text of a file.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Writes a method that is not built in as `NAME.wasm`, with these entries of its manifest beside the usual ones. Returns
    /// its bytes.
    pub(crate) fn write_method(&self, name: &str, component: Vec<u8>, more: Value) -> Vec<u8> {
        let bytes = manifested(name, component, more);
        std::fs::write(self.path(&format!("{name}.wasm")), &bytes).unwrap();
        bytes
    }

    /// The program in this folder, without input and with both outputs piped.
    pub(crate) fn tunebox(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.current_dir(self.folder()).args(words).env("NO_COLOR", "1").env("CARGO_TARGET_DIR", &self.target);
        command.env("TUNEBOX_HOME", self.path("home")).env("TUNEBOX_CACHE", &self.cache);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program, which must end with this exit code.
    pub(crate) fn end(&self, words: &[&str], code: i32) -> Output {
        let output = self.tunebox(words).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", text(&output));
        output
    }

    /// Runs the program, which must succeed; what it says.
    pub(crate) fn succeed(&self, words: &[&str]) -> String {
        text(&self.end(words, 0))
    }

    /// The bytes of the adapter that a run left.
    pub(crate) fn adapter(&self, run: &str) -> Vec<u8> {
        std::fs::read(self.path(&format!("runs/{run}/adapter_model.safetensors"))).unwrap()
    }

    /// The number of lines in the metrics of a run; 0 if it has none yet.
    pub(crate) fn steps(&self, run: &str) -> usize {
        std::fs::read_to_string(self.path(&format!("runs/{run}/metrics.jsonl"))).map_or(0, |text| text.lines().count())
    }

    /// The steps in the metrics of a run's folder, without what depends on the machine.
    pub(crate) fn metrics(&self, run: &str) -> Vec<Value> {
        let text = self.read(&format!("{run}/metrics.jsonl"));
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut steps: Vec<Value> = rows.filter(|row| row.get("epoch").is_some()).collect();
        for row in &mut steps {
            row.as_object_mut().unwrap().retain(|name, _| !name.contains("second"));
        }
        steps
    }
}

/// The folder of the sample.
fn sample() -> PathBuf {
    root().join("runtime/training/sample")
}

/// What a command wrote to both of its outputs.
pub(crate) fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|stream| String::from_utf8_lossy(stream)).concat()
}

/// What a command wrote to its error stream.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
