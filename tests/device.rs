//! Claims about whole runs on a GPU, made by the program itself: every built-in method learns in f32 what it learns on the
//! CPU, a run that is resumed or done again ends in the same bits, and what a run is estimated to need is what it takes.
//!
//! They are ignored by their own program; `tests/optional` runs them where a GPU is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::absent::absent;
use crate::support::golden::assert_file;
use crate::support::workspace::{self, text};
use serde_json::Value;
use tunebox_compute::device;
use tunebox_foundation::explain::Explain as _;
use tunebox_model::vectors::Vectors;

/// How far a number of a run on the GPU may be from the CPU's: as a share of it, or of 1 where it is smaller.
const TOLERANCE: f64 = 1e-3;

/// Figures of a step that say how fast it was.
const TIMES: [&str; 2] = ["tokens-per-second", "seconds"];

/// A folder for runs of the sample.
struct Workspace(workspace::Workspace);

impl Workspace {
    /// Fails as absent if there is no GPU.
    fn new() -> Self {
        if let Err(error) = device::parse("cuda") {
            absent("cuda", &error.why().unwrap_or_default());
        }
        Self(workspace::Workspace::empty())
    }

    fn tunebox(&self, words: &[&str]) -> Command {
        let mut command = self.0.tunebox(words);
        // On a machine without a driver a worker is confined, and may not read the stand-in for one.
        command.args((words[0] == "train" || words.contains(&"--replay")).then_some("--in-process"));
        command
    }

    /// A run of the sample in f32, under the name of its device.
    fn train(&self, device: &str, method: &str, settings: &[&str]) -> Output {
        let mut command =
            self.tunebox(&["train", "--sample", "--method", method, "--device", device, "--name", device]);
        for setting in ["train.compute=f32"].iter().chain(settings) {
            command.arg("--set").arg(setting);
        }
        succeed(&mut command)
    }

    fn run(&self, name: &str) -> PathBuf {
        self.0.path("runs").join(name)
    }

    /// What each step of a run told, times left out.
    fn metrics(&self, name: &str) -> Vec<serde_json::Map<String, Value>> {
        let text = std::fs::read_to_string(self.run(name).join("metrics.jsonl")).unwrap();
        let row = |line: &str| {
            let mut row: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
            row.retain(|name, value| value.is_number() && !TIMES.contains(&name.as_str()));
            row
        };
        text.lines().map(row).collect()
    }
}

/// Asserts that a command ends well; what it said.
fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    output
}

fn assert_near(what: &str, wanted: f64, found: f64) {
    let off = (wanted - found).abs();
    assert!(off <= TOLERANCE * wanted.abs().max(1.0), "{what}: {wanted} on the CPU, {found} on the GPU");
}

/// Trains a method on both devices, and compares every figure of every step and every direction that it publishes.
fn learns_what_it_learns_on_the_cpu(method: &str, settings: &[&str]) {
    let place = Workspace::new();
    let [wanted, found] = ["cpu", "cuda"].map(|device| {
        place.train(device, method, settings);
        place.metrics(device)
    });
    assert!(!wanted.is_empty() && wanted.len() == found.len());
    for (wanted, found) in wanted.iter().zip(&found) {
        assert!(wanted.keys().eq(found.keys()), "{wanted:?}, {found:?}");
        for (name, number) in wanted {
            assert_near(
                &format!("{method}, step {}, {name}", wanted["step"]),
                number.as_f64().unwrap(),
                found[name].as_f64().unwrap(),
            );
        }
    }
    let directions = ["cpu", "cuda"].map(|device| directions(&place.run(device)));
    assert_eq!(directions[0].len(), directions[1].len());
    let length = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|number| number * number).sum::<f64>().sqrt();
    let apart = length(&mut directions[0].iter().zip(&directions[1]).map(|(wanted, found)| wanted - found));
    let whole = length(&mut directions[0].iter().copied());
    assert!(apart <= TOLERANCE * whole, "{method}: directions are {apart} apart, {whole} long");
    assert_eq!(directions[0].is_empty(), !["abliterate", "steer"].contains(&method), "{method}");
}

/// The numbers of the directions that a run published, if it did.
fn directions(run: &Path) -> Vec<f64> {
    let path = run.join("vectors.safetensors");
    let layers = path.exists().then(|| Vectors::load(&path).unwrap().layers);
    layers.into_iter().flat_map(|layers| layers.into_values().flatten()).map(f64::from).collect()
}

/// A test of each built-in method, with the settings of its run.
macro_rules! methods {
    ($($test:ident: $method:literal, $settings:expr;)*) => {
        const METHODS: &[&str] = &[$($method),*];
        $(
            #[test]
            #[ignore = "needs cuda"]
            fn $test() {
                learns_what_it_learns_on_the_cpu($method, &$settings);
            }
        )*
    };
}

methods! {
    cuda_abliterate_finds_what_it_finds_on_the_cpu: "abliterate", [];
    cuda_cpo_learns_what_it_learns_on_the_cpu: "cpo", ["train.steps=2", "train.batch=4"];
    cuda_distill_learns_what_it_learns_on_the_cpu: "distill", ["train.steps=2", "train.batch=4"];
    cuda_dpo_learns_what_it_learns_on_the_cpu: "dpo", ["train.steps=2", "train.batch=4"];
    cuda_grpo_learns_what_it_learns_on_the_cpu: "grpo", ["train.steps=2", "train.batch=4"];
    cuda_kto_learns_what_it_learns_on_the_cpu: "kto", ["train.steps=2", "train.batch=4"];
    cuda_lora_learns_what_it_learns_on_the_cpu: "lora", ["train.steps=3", "train.batch=4", "train.adapter.kind=dora"];
    cuda_orpo_learns_what_it_learns_on_the_cpu: "orpo", ["train.steps=2", "train.batch=4"];
    cuda_rlvr_learns_what_it_learns_on_the_cpu: "rlvr", ["train.steps=2", "train.batch=4"];
    cuda_steer_finds_what_it_finds_on_the_cpu: "steer", ["train.steps=2"];
}

#[test]
fn every_built_in_method_has_a_test_here() {
    let built_in: Vec<&str> = tunebox_package::builtin::list().iter().map(|method| method.name).collect();
    assert_eq!(METHODS, built_in);
}

/// Settings of a run with a checkpoint in its middle, and with everything that could lead a resumed one astray.
const STOPPED: [&str; 6] = [
    "train.steps=4",
    "train.save-every=2",
    "train.keep=3",
    "train.batch=4",
    "train.adapter.dropout=0.1",
    "train.warmup=2",
];

/// Leaves of a run what there would be if it had been killed after its third step.
fn kill(run: &Path) {
    std::fs::remove_dir_all(run.join("steps/000004")).unwrap();
    for file in ["adapter_model.safetensors", "adapter_config.json", "run.lock", "README.md"] {
        std::fs::remove_file(run.join(file)).unwrap();
    }
}

#[test]
#[ignore = "needs cuda"]
fn cuda_auto_says_what_it_passes_over_and_a_run_goes_on_only_where_it_began() {
    let place = Workspace::new();
    place.train("auto", "lora", &STOPPED);
    // The driver is there and finds no GPU.
    let without = |words: &[&str]| {
        let mut command = place.tunebox(words);
        command.env("CUDA_VISIBLE_DEVICES", "-1").env("TUNEBOX_STANDIN_DEVICES", "0").output().unwrap()
    };
    let output = without(&["score", "runs/auto", "--text", "Nairobi is in Kenya.", "--device", "auto"]);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("`auto` is the CPU here") && told.contains("finds no GPU"), "{told}");

    kill(&place.run("auto"));
    let output = without(&["train", "runs/auto/run.toml", "--resume"]);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("it was computed on cuda in f32, and here would be on cpu in f32"), "{told}");
}

#[test]
#[ignore = "needs cuda"]
fn cuda_a_run_that_is_resumed_or_done_again_ends_in_the_same_bits() {
    let place = Workspace::new();
    place.train("cuda", "lora", &STOPPED);
    let run = place.run("cuda");
    let adapter = || std::fs::read(run.join("adapter_model.safetensors")).unwrap();
    let whole = adapter();
    kill(&run);
    succeed(&mut place.tunebox(&["train", "runs/cuda/run.toml", "--resume"]));
    assert!(adapter() == whole, "the adapters differ");
    let told = text(&succeed(&mut place.tunebox(&["verify", "runs/cuda", "--replay"])));
    assert!(told.contains("every bit of the artifact"), "{told}");
}

#[test]
#[ignore = "needs cuda"]
fn cuda_a_run_is_verified_where_its_device_is_not_and_replayed_only_where_it_is() {
    let place = Workspace::new();
    place.train("cuda", "lora", &["train.steps=1", "train.batch=2"]);
    let without = |words: &[&str]| {
        let mut command = place.tunebox(words);
        command.env_remove("LD_LIBRARY_PATH").env("CUDA_VISIBLE_DEVICES", "-1").output().unwrap()
    };
    let output = without(&["verify", "runs/cuda"]);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(
        told.contains("device\n") && told.contains("recorded cuda:0") && told.contains("found    absent"),
        "{told}"
    );
    let output = without(&["verify", "runs/cuda", "--replay"]);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("the run computed on `cuda:0`, which is not here"), "{told}");
}

#[test]
#[ignore = "needs cuda"]
fn cuda_scores_of_an_adapter_are_those_of_the_cpu() {
    let place = Workspace::new();
    place.train("cpu", "lora", &["train.steps=2", "train.batch=4"]);
    let logprobs = |device: &str| -> Vec<f64> {
        let words = ["score", "runs/cpu", "--text", "The capital of Kenya is Nairobi.", "--device", device, "--json"];
        let output = succeed(&mut place.tunebox(&words));
        let scored: Value = serde_json::from_slice(&output.stdout).unwrap();
        scored["logprobs"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
    };
    let (wanted, found) = (logprobs("cpu"), logprobs("cuda"));
    assert!(wanted.len() > 5 && wanted.len() == found.len());
    // The GPU's activations are bf16 here.
    for (wanted, found) in wanted.iter().zip(&found) {
        assert!((wanted - found).abs() < 0.02 * wanted.abs() + 0.02, "{wanted} on the CPU, {found} on the GPU");
    }
}

#[test]
#[ignore = "needs cuda"]
fn cuda_a_step_takes_the_memory_that_was_estimated() {
    let place = Workspace::new();
    let mut command = place.tunebox(&["bench", "--only", "training", "--steps", "1", "--json", "--device", "cuda"]);
    let output = succeed(command.args(["--batch", "4", "--sequence", "64"]));
    let last: Value =
        String::from_utf8_lossy(&output.stdout).lines().last().map(serde_json::from_str).unwrap().unwrap();
    let number = |name: &str| last[name].as_f64().unwrap();
    let share = number("expected_peak_bytes") / number("peak_bytes");
    assert!((0.7..1.5).contains(&share), "{last}");
}

/// What a step of the sample launches, by kernel, and how many products it has: a launch more shows here without a GPU.
#[test]
#[ignore = "needs stand-ins of CUDA"]
fn cuda_a_step_launches_the_kernels_that_are_recorded() {
    standins();
    let place = Workspace::new();
    // Each run has a step that warms up, so a second step is the difference.
    let launches = |steps: &str| -> BTreeMap<String, u64> {
        let mut command = place.tunebox(&["bench", "--only", "training", "--device", "cuda", "--steps", steps]);
        command.args(["--batch", "2", "--sequence", "64"]).env("TUNEBOX_STANDIN_TIMES", "1");
        let told = text(&succeed(&mut command));
        let row = |line: &str| {
            let (count, name) = line.strip_prefix("stand-in: ")?.split_once(" s ")?.1.split_once(" launches of ")?;
            Some((name.to_owned(), count.trim().parse().unwrap()))
        };
        told.lines().filter_map(row).collect()
    };
    let (one, two) = (launches("1"), launches("2"));
    let mut page = String::from(
        "# Launches of a LoRA step of the sample model (6 blocks): cuda_a_step_launches_the_kernels_that_are_recorded\n",
    );
    for (name, count) in two {
        let more = count - one.get(&name).copied().unwrap_or(0);
        if more > 0 {
            writeln!(page, "{more:4} {name}").unwrap();
        }
    }
    assert_file("tests/standin/launches.txt", &page);
}

/// The folder of the stand-ins that a program here opens. Fails as absent on a GPU: its libraries cannot be taken away.
fn standins() -> PathBuf {
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let ours = |folder: &PathBuf| {
        let driver = std::fs::read(folder.join("libcuda.so.1")).unwrap_or_default();
        driver.windows(STANDIN.len()).any(|bytes| bytes == STANDIN)
    };
    let found = std::env::split_paths(&folders).find(ours);
    found.unwrap_or_else(|| absent("stand-ins of CUDA", "none is in `LD_LIBRARY_PATH`"))
}

/// What the driver of the stand-ins calls its device.
const STANDIN: &[u8] = b"a stand-in for a GPU";

#[test]
#[ignore = "needs stand-ins of CUDA"]
fn cuda_a_library_that_is_missing_is_named_with_what_brings_it() {
    let (place, standins) = (Workspace::new(), standins());
    let libraries = ["libcuda.so.1", "libnvrtc.so.13", "libcublas.so.13"];
    for (missing, hint) in [
        (libraries[0], "NVIDIA's driver is installed"),
        (libraries[1], "`pip install nvidia-cuda-nvrtc nvidia-cublas`"),
        (libraries[2], "`pip install nvidia-cublas nvidia-cuda-nvrtc`"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for name in libraries.into_iter().filter(|name| *name != missing) {
            std::os::unix::fs::symlink(standins.join(name), folder.path().join(name)).unwrap();
        }
        let mut command = place.tunebox(&["train", "--sample", "--device", "cuda"]);
        // Where the real libraries may be found in place of those that are missing.
        for name in ["CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"] {
            command.env_remove(name);
        }
        let output = command.env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
        let told = text(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(missing) && told.contains(hint) && told.contains("is not found"), "{missing}: {told}");
        assert!(!place.run("lora-1").exists(), "{missing}: a run was begun");
    }
}

#[test]
#[ignore = "needs stand-ins of CUDA"]
fn cuda_a_gpu_that_is_full_ends_the_run_in_words_with_what_takes_less() {
    let (place, _) = (Workspace::new(), standins());
    let mut command = place.tunebox(&["train", "--sample", "--device", "cuda", "--set", "train.steps=1"]);
    let output = command.env("TUNEBOX_STANDIN_BYTES", (12 << 20).to_string()).output().unwrap();
    let told = text(&output);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("error[memory]: `cuda:0` has no memory for"), "{told}");
    assert!(told.contains("of 12 MiB are free") && told.contains("`tunebox check --fit`"), "{told}");
}
