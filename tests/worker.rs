//! Claims about isolation: a method that is not built in runs in a worker, which may die in any way and at any moment
//! without harm to the caller, to the last checkpoint, or to a bit of the resumed run.
#![cfg(target_os = "linux")]

mod attacks;
mod compiling;
mod ends;
mod hub_data;
mod likeness;
mod strangers;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::guest;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const BINARY: &str = env!("CARGO_BIN_EXE_tunebox");

/// A folder with a tiny model, a little data, untrusted methods, and a cache of its own.
struct Workspace(tempfile::TempDir);

impl Workspace {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = place.path();
        let sample = Path::new(ROOT).join("runtime/training/sample");
        std::fs::create_dir(path.join("model")).unwrap();
        for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
            std::fs::copy(sample.join("model").join(name), path.join("model").join(name)).unwrap();
        }
        let data = std::fs::read_to_string(sample.join("lora.jsonl")).unwrap();
        let few: Vec<&str> = data.lines().take(40).collect();
        std::fs::write(path.join("answers.jsonl"), few.join("\n") + "\n").unwrap();
        // The bytes of a built-in method under another name are untrusted.
        std::fs::copy(Path::new(ROOT).join("methods/lora/lora.wasm"), path.join("stranger.wasm")).unwrap();
        Self(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program in this folder.
    fn tunebox(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.current_dir(self.0.path()).args(words).env("TUNEBOX_CACHE", self.path("cache"));
        command.env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A run of 24 steps with everything that could lead a resumed one astray.
    fn train(&self, name: &str, more: &[&str]) -> Command {
        let mut command = self.tunebox(&["train", "--model", "model", "--data", "answers.jsonl"]);
        command.args(["--method", "stranger.wasm", "--name", name, "--set", "data.max-length=96"]);
        for set in ["steps=24", "save-every=4", "batch=2", "accumulation=2", "warmup=3", "adapter.dropout=0.1"] {
            command.args(["--set", &format!("train.{set}")]);
        }
        command.args(more);
        command
    }

    fn succeed(&self, name: &str, more: &[&str]) -> Output {
        let output = self.train(name, more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn adapter(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(&format!("runs/{name}/adapter_model.safetensors"))).unwrap()
    }

    fn steps(&self, name: &str) -> usize {
        std::fs::read_to_string(self.path(&format!("runs/{name}/metrics.jsonl"))).map_or(0, |text| text.lines().count())
    }

    /// Writes a hostile method that `tests/cli` keeps as text.
    fn hostile(&self, name: &str, text: &str) -> PathBuf {
        self.manifested(name, guest::component(text));
        self.path(&format!("{name}.wasm"))
    }

    /// Writes a component with a manifest as `NAME.wasm`, and returns its bytes.
    fn manifested(&self, name: &str, mut bytes: Vec<u8>) -> Vec<u8> {
        let update = if name.starts_with("updates-") { "method" } else { "host" };
        let manifest = serde_json::json!({
            "name": name, "version": "0.1.0", "description": "A hostile method", "update": update,
            "shape": "supervised", "settings": [], "metrics": ["loss"], "interface": "0.2.0",
        });
        tunebox_package::section::append(
            &mut bytes,
            tunebox_package::manifest::SECTION,
            manifest.to_string().as_bytes(),
        );
        std::fs::write(self.path(&format!("{name}.wasm")), &bytes).unwrap();
        bytes
    }
}

/// How long is waited for what must come, on a machine that has other things to do as well.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for something of a running child.
fn wait_for<T>(child: &mut Child, what: &str, look: impl FnMut() -> Option<T>) -> T {
    watch_for(child, what, look).unwrap_or_else(|| panic!("the run ended before: {what}"))
}

/// Waits for something of a child; `None` if the child ended before it was seen.
fn watch_for<T>(child: &mut Child, what: &str, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not come: {what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// The processes whose parent is `parent`.
fn children(parent: u32) -> Vec<u32> {
    let number = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<u32>().ok();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(number);
    processes.filter(|process| status(*process).is_some_and(|(_, above)| above == parent)).collect()
}

/// The state of a process, and its parent.
fn status(process: u32) -> Option<(char, u32)> {
    let fields = fields_of(process)?;
    Some((fields[0].chars().next()?, fields[1].parse().ok()?))
}

/// The processor time that a process has used in user mode, in hundredths of a second; `None` if it is gone.
fn processor_time(process: u32) -> Option<u64> {
    fields_of(process)?[11].parse().ok()
}

/// What `/proc/PID/stat` says of a process, from its state on.
fn fields_of(process: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

/// The worker below a command, which may run in a child of its own.
fn worker(child: &mut Child) -> u32 {
    let parent = child.id();
    let is_worker = |process: &u32| {
        std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|words| words.ends_with(b"\0worker\0"))
    };
    let below = || children(parent).into_iter().flat_map(|child| children(child).into_iter().chain([child]));
    wait_for(child, "a worker", || below().find(is_worker))
}

fn output_text(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
