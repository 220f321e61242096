//! Claims about what a person sees: transcripts of the real binary, kept as the pages in `cli/`.
//!
//! A page runs in an empty folder: its `console` blocks are given to `sh`, a line after `$` each,
//! and what comes out of both streams must be what follows, exit codes other than 0 included.
//! Times, sizes and digests are left open. `BLESS=1` writes what came out into the page.

mod browser;
mod init;
mod llama_cpp;
mod stopped;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::absent::absent;
use crate::support::folders::copy;
use crate::support::golden::root;
use crate::support::guest;
use crate::support::renamed;
use crate::support::transcript;
use crate::support::workspace::{Workspace, errors, text};

/// How a block begins that is played.
const BLOCK: &str = "\n```console\n";

/// A folder with the tiny model, a few records for it, and hostile methods.
fn workspace() -> Workspace {
    let place = Workspace::with_sample(40);
    for name in ["loops", "grows", "opens-files"] {
        let text = std::fs::read_to_string(root().join(format!("tests/cli/{name}.wat"))).unwrap();
        place.write_method(name, guest::component(&text), json!({}));
    }
    place
}

/// The pages of a folder, by name.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages
}

/// Runs the commands of pages, each in its own folder. Returns where output and page differ; empty if nowhere.
fn differences(pages: &[(PathBuf, Workspace)]) -> String {
    let differences = pages.iter().filter_map(|(page, place)| {
        let difference = transcript::compare(page, place.folder()).err()?;
        Some(format!("{}\n{difference}", page.display()))
    });
    differences.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_page_says_what_the_program_says() {
    let pages: Vec<_> = pages(&root().join("tests/cli")).into_iter().map(|page| (page, workspace())).collect();
    for (_, place) in pages.iter().filter(|(page, _)| page.ends_with("sharing.md")) {
        std::fs::write(place.path("calm-tone.wasm"), renamed::renamed("lora", "calm-tone", "0.1.0")).unwrap();
    }
    assert!(pages.len() >= 4);
    let differences = differences(&pages);
    assert!(differences.is_empty(), "{differences}\n`BLESS=1 cargo test` writes what came out");
}

#[test]
fn every_example_runs_as_its_page_says() {
    let folders = std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    // Others have nothing that is played here: `languages.rs` follows those of other languages.
    let shows =
        |folder: &Path| std::fs::read_to_string(folder.join("README.md")).is_ok_and(|page| page.contains(BLOCK));
    let mut walks: Vec<_> = folders.filter(|folder| shows(folder)).collect();
    walks.sort();
    let walks: Vec<_> = walks.into_iter().map(|folder| (folder.join("README.md"), copy_of(&folder))).collect();
    assert!(walks.len() >= 8);
    let differences = differences(&walks);
    assert!(differences.is_empty(), "{differences}\n`BLESS=1 cargo test` writes what came out");
}

/// The files of a walk in a folder of their own.
fn copy_of(folder: &Path) -> Workspace {
    let place = Workspace::empty();
    copy(folder, place.folder());
    place
}

#[test]
fn the_program_starts_where_no_library_of_an_accelerator_is() {
    let tool: &[&str] = if cfg!(target_os = "macos") { &["otool", "-L"] } else { &["ldd"] };
    let told = Command::new(tool[0]).args(&tool[1..]).arg(transcript::BINARY).output().unwrap();
    let needs = String::from_utf8_lossy(&told.stdout).to_lowercase();
    assert!(told.status.success() && (needs.contains("libc") || needs.contains("libsystem")), "{needs}");
    for library in ["cuda", "cublas", "curand", "nvrtc"] {
        assert!(!needs.contains(library), "{needs}");
    }
}

#[test]
#[ignore = "needs a machine without CUDA"]
#[cfg(target_os = "linux")]
fn what_a_device_lacks_is_said_in_the_order_in_which_it_is_needed() {
    let libraries = tempfile::tempdir().unwrap();
    let doctor = || {
        let mut command = Command::new(transcript::BINARY);
        command.arg("doctor").env("LD_LIBRARY_PATH", libraries.path()).env("NO_COLOR", "1");
        for name in ["CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"] {
            command.env_remove(name);
        }
        let told = command.output().unwrap();
        [told.stdout, told.stderr].map(|stream| String::from_utf8_lossy(&stream).into_owned()).concat()
    };
    let here = libraries_of_cuda();
    if !here.is_empty() {
        absent("a machine without CUDA", &here);
    }
    let told = doctor();
    assert!(told.contains("`libcuda.so.1` is not found"), "{told}");
    // A library that is one, and has none of the functions.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library =
        maps.lines().find_map(|line| line.split_whitespace().last().filter(|path| path.contains("/libgcc_s")));
    let Some(library) = library else { panic!("no libgcc is loaded here: {maps}") };
    std::fs::copy(library, libraries.path().join("libcuda.so.1")).unwrap();
    let told = doctor();
    // Nobody is told to install the other libraries for a driver or a GPU that cannot be used.
    let lacks = "the driver does not start: the NVIDIA driver's `libcuda.so.1` lacks a function that is called";
    assert!(told.contains("cuda: not available: ") && told.contains(lacks), "{told}");
    assert!(!told.contains("pip install"), "{told}");
}

/// What the loader knows of CUDA whatever the environment says, and the toolkit where it usually is.
#[cfg(target_os = "linux")]
fn libraries_of_cuda() -> String {
    let script =
        "PATH=$PATH:/usr/sbin:/sbin; ldconfig -p | grep -E 'lib(cuda|nvrtc|cublas)[.]so'; ls -d /usr/local/cuda/lib64";
    let told = Command::new("sh").args(["-c", script]).output().unwrap();
    String::from_utf8_lossy(&told.stdout).trim().to_owned()
}

#[test]
fn scores_that_keep_more_than_they_may_end_the_run() {
    let place = workspace();
    let mut command = train(&place, "kept", false);
    command.args(["--method", "lora", "--set", "limits.activation-bytes=65536"]).stderr(Stdio::piped());
    let output = command.output().unwrap();
    let error = errors(&output);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("`lora` makes the model keep more than it may at step 1"), "{error}");
    assert!(!place.path("runs/kept").exists(), "a run that never got anywhere keeps its name");
}

/// Scores the batch for learning, again and again, and keeps every pass. It imports `learn`, so that an adapter is trained
/// and a pass has something to keep.
const KEEPS: &str = r#"
(import "tunebox:method/learn@0.2.0" "rate" (func (result f64)))
(data (i32.const 256) "example")
(func $step (param $batch i32) (result i32)
  (local $rows i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (local.set $rows (call $handle))
  (loop $again
    (call $model/score-for-learning (local.get $rows) (i32.const 0) (i32.const 0) (f32.const 1) (i32.const 64))
    (drop (call $model/scores.logprob (call $handle)))
    (br $again))
  (unreachable))"#;

/// The limit stands for a machine with little memory.
#[cfg(target_os = "linux")]
#[test]
fn scores_that_keep_more_than_the_memory_end_the_run_and_not_the_process() {
    let place = workspace();
    place.write_method("keeps", guest::component(KEEPS), json!({}));
    for process in [&[][..], &["--in-process"]] {
        let mut command = Command::new("sh");
        command.current_dir(place.folder()).args(["-c", "ulimit -d 2000000; exec \"$0\" \"$@\"", transcript::BINARY]);
        command.args(["train", "--model", "model", "--data", "answers.jsonl", "--method", "keeps.wasm"]).args(process);
        let output = command.args(["--name", "keeps", "--set", "train.batch=16"]).output().unwrap();
        let error = errors(&output);
        assert_eq!(output.status.code(), Some(3), "{process:?}: {error}");
        assert!(error.contains("`keeps` asked the model for more memory than is left for it at step 1"), "{error}");
        assert!(!error.contains("train.batch"), "{error}");
    }
}

#[test]
fn a_method_that_never_asks_to_learn_leaves_no_adapter_and_is_told_so_before_its_first_step() {
    let place = workspace();
    place.write_method("idle", guest::component(";; Does nothing.\n"), json!({}));
    let told = |words: &str| errors(&place.end(&words.split(' ').collect::<Vec<_>>(), 0));
    let said = told("train --model model --data answers.jsonl --method idle.wasm --name idle --set train.steps=1");
    let warned = said.find("Warning the method never calls `backward`");
    assert!(warned.is_some() && warned < said.find("Done 1 step in"), "{said}");
    assert!(said.contains("Warning no adapter was written"), "{said}");
    assert!(!place.path("runs/idle/adapter_model.safetensors").exists());
    let said = told("check idle.wasm");
    assert!(said.contains("Warning the method never calls `backward`"), "{said}");
    told("verify runs/idle");
}

#[test]
fn what_a_method_used_and_by_which_table_of_costs_stands_in_the_run() {
    let place = workspace();
    let run = ["train", "--model", "model", "--data", "answers.jsonl", "--name", "used"];
    place.succeed(&[&run[..], &["--method", "lora", "--set", "train.steps=2"]].concat());
    let text = |name: &str| place.read(&format!("runs/used/{name}"));
    let last: serde_json::Value = serde_json::from_str(text("metrics.jsonl").lines().last().unwrap()).unwrap();
    let total = &last["used"]["total"];
    assert!(total["host-calls"].as_u64().unwrap() > 10 && total["passes"].as_u64().unwrap() >= 4, "{last}");
    assert!(total["model-work"].as_u64().unwrap() > 1_000_000 && last["used"]["slowest"]["operation"].is_string());
    assert!(text("README.md").contains("calls to the host"));
    let costs = text("run.lock").lines().find_map(|line| line.strip_prefix("costs = ").map(str::to_owned));
    let inspected = place.end(&["inspect", "lora", "--json"], 0);
    let inspected: serde_json::Value = serde_json::from_slice(&inspected.stdout).unwrap();
    assert_eq!(costs, Some(inspected["costs"].to_string()));
    assert_eq!(inspected["limits"]["handles"], 16_384);
}

#[test]
fn a_limit_that_is_not_known_is_refused_with_the_nearest_and_a_known_one_is_shown() {
    let place = workspace();
    place.write("run.toml", "model.path = \"model\"\ndata.path = \"answers.jsonl\"\nmethod.use = \"lora\"\n");
    let check = |limit: &str, code: i32| text(&place.end(&["check", "run.toml", "--set", limit], code));
    let said = check("limits.grph-depth=5", 2);
    assert!(said.contains("did you mean `graph-depth`?"), "{said}");
    let said = check("limits.linear-memory=1048576", 0);
    assert!(said.contains("linear-memory 1.0 MiB"), "{said}");
}

/// A run of 20 steps with everything that could lead a resumed one astray.
fn train(place: &Workspace, name: &str, resume: bool) -> Command {
    let mut command = place.tunebox(&["train", "--model", "model", "--data", "answers.jsonl", "--name", name]);
    for set in ["steps=20", "save-every=5", "batch=2", "accumulation=2", "warmup=3", "adapter.dropout=0.1", "seed=3"] {
        command.args(["--set", &format!("train.{set}")]);
    }
    command.args(["--set", "data.max-length=96"]).args(resume.then_some("--resume"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}
