//! Claims about isolation: a method that is not built in runs in a worker, which may die in any way and at any moment
//! without harm to the caller, to the last checkpoint, or to a bit of the resumed run.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![cfg(target_os = "linux")]

#[path = "support/guest.rs"]
mod guest;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const BINARY: &str = env!("CARGO_BIN_EXE_tunebox");

/// A folder with a tiny model, a little data, methods of strangers, and a cache of its own.
struct Place(tempfile::TempDir);

impl Place {
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
        // The bytes of a built-in method under another name are a stranger's.
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

    fn done(&self, name: &str, more: &[&str]) -> Output {
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
        let mut bytes = guest::component(text);
        let manifest = serde_json::json!({
            "name": name, "version": "0.1.0", "description": "A hostile method",
            "shape": "supervised", "settings": [], "metrics": [], "interface": "0.1.0",
        });
        tunebox_package::section::append(
            &mut bytes,
            tunebox_package::manifest::SECTION,
            manifest.to_string().as_bytes(),
        );
        let path = self.path(&format!("{name}.wasm"));
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

/// Waits for something of a running child.
fn until<T>(child: &mut Child, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(child.try_wait().unwrap().is_none(), "the run ended before: {what}");
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not come: {what}");
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
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn worker(child: &mut Child) -> u32 {
    let parent = child.id();
    until(child, "a worker", || children(parent).first().copied())
}

fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), signal).unwrap();
}

fn is_gone(process: u32) -> bool {
    status(process).is_none_or(|(state, _)| state == 'Z')
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A transcript without what differs from run to run: names of runs, times, speeds, sizes.
fn steady(text: &str, name: &str) -> String {
    let patterns = [
        r"\d+(\.\d+)? (ms|s|min)\b",
        r"\d[\d,]*(\.\d+)? ([KMG]iB|B)\b",
        r"(?m)^( {6,}\d+ .*?) +[\d,]+ +\S+$",
        r#""(seconds|tokens_per_second|peak_bytes|runtime)":[^,}]*"#,
    ];
    let text = text.replace(name, "NAME");
    patterns.iter().fold(text, |text, pattern| {
        let shown = if pattern.contains("(?m)") { "$1" } else { "-" };
        regex::Regex::new(pattern).unwrap().replace_all(&text, shown).into_owned()
    })
}

#[test]
fn a_run_in_a_worker_says_and_leaves_what_it_does_without_one() {
    let place = Place::new();
    for form in [&["--verbose"][..], &["--json"]] {
        let mut found = Vec::new();
        for (name, more) in [("aside", &[][..]), ("here", &["--in-process"])] {
            let output = place.done(name, &[form, more, &["--set", "train.steps=6"]].concat());
            let told = [said(&output), String::from_utf8(output.stdout).unwrap()].concat();
            found.push((steady(&told, name), place.adapter(name)));
            std::fs::remove_dir_all(place.path(&format!("runs/{name}"))).unwrap();
        }
        assert_eq!(found[0].0, found[1].0);
        assert!(found[0].1 == found[1].1, "the adapters differ");
    }
}

#[test]
fn a_run_of_a_stranger_is_replayed_in_a_worker_to_the_same_bits_wherever_it_first_ran() {
    let place = Place::new();
    for (name, more) in [("guarded", [].as_slice()), ("trusted", &["--in-process"])] {
        place.done(name, more);
        let run = format!("runs/{name}");
        let mut replay = place.tunebox(&["verify", &run, "--replay"]).spawn().unwrap();
        worker(&mut replay);
        let output = replay.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains("every bit of the artifact"), "{}", said(&output));
    }
    std::fs::copy(Path::new(ROOT).join("methods/orpo/orpo.wasm"), place.path("stranger.wasm")).unwrap();
    let output = place.tunebox(&["verify", "runs/guarded", "--replay"]).output().unwrap();
    assert!(!output.status.success(), "another method under the same name is another run");
}

#[test]
fn a_worker_that_is_killed_in_a_step_or_in_a_checkpoint_leaves_a_run_that_resumes_exactly() {
    let place = Place::new();
    place.done("whole", &[]);
    let mut torn = 0;
    for (number, moment) in ["step", "write", "write", "write"].into_iter().enumerate() {
        let name = format!("killed-{number}");
        let mut child = place.train(&name, &[]).spawn().unwrap();
        let process = worker(&mut child);
        let partial = place.path(&format!("runs/{name}/steps/.000008.partial"));
        until(&mut child, moment, || match moment {
            "step" => (place.steps(&name) >= 6).then_some(()),
            _ => partial.exists().then_some(()),
        });
        // Several moments of one write.
        std::thread::sleep(Duration::from_micros(700 * number as u64));
        send(process, Signal::KILL);
        let output = child.wait_with_output().unwrap();
        torn += usize::from(partial.exists());
        let text = said(&output);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("error[worker]: the worker of `lora` was killed (signal 9, SIGKILL) in step "), "{text}");
        assert!(text.contains("kept: step 4, ") || text.contains("kept: step 8, "), "{text}");
        let hint = format!("tunebox train runs/{name}/run.toml --resume");
        assert!(text.contains(&hint), "{text}");
        // The very command of the hint.
        let resumed = place.tunebox(&["train", &format!("runs/{name}/run.toml"), "--resume"]).output().unwrap();
        assert!(resumed.status.success(), "{}", said(&resumed));
        assert!(place.adapter(&name) == place.adapter("whole"), "{name}: the adapters differ");
        assert!(!partial.exists(), "what was half written is still there");
    }
    assert!(torn > 0, "no kill hit a checkpoint while it was written");
}

#[test]
fn a_worker_that_aborts_is_told_and_its_parent_ends_well() {
    let place = Place::new();
    let mut child = place.train("aborted", &[]).spawn().unwrap();
    let process = worker(&mut child);
    until(&mut child, "a step", || (place.steps("aborted") >= 1).then_some(()));
    send(process, Signal::ABORT);
    let output = child.wait_with_output().unwrap();
    let text = said(&output);

    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("error[worker]: the worker of `lora` aborted (signal 6, SIGABRT) in step "), "{text}");
    assert!(text.contains("kept: nothing had been saved yet"), "{text}");
}

#[test]
fn a_worker_ends_with_its_parent_and_leaves_a_whole_checkpoint() {
    let place = Place::new();
    place.done("whole", &[]);
    let mut child = place.train("orphaned", &[]).spawn().unwrap();
    let process = worker(&mut child);
    until(&mut child, "a checkpoint", || (place.steps("orphaned") >= 6).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    let begun = Instant::now();
    while !is_gone(process) {
        assert!(begun.elapsed() < Duration::from_secs(10), "the worker goes on without its parent");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(place.steps("orphaned") < 24, "it had ended already");
    place.done("orphaned", &["--resume"]);
    assert!(place.adapter("orphaned") == place.adapter("whole"), "the adapters differ");
}

#[test]
fn a_person_stops_a_worker_as_any_run_and_the_second_time_at_once() {
    let place = Place::new();
    place.done("whole", &[]);
    let mut child = place.train("stopped", &[]).spawn().unwrap();
    until(&mut child, "a step", || (place.steps("stopped") >= 2).then_some(()));
    send(child.id(), Signal::INT);
    let output = child.wait_with_output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("Stopped at step ") && text.contains(", saved runs/stopped/steps/0000"), "{text}");
    place.done("stopped", &["--resume"]);
    assert!(place.adapter("stopped") == place.adapter("whole"), "the adapters differ");

    // A method that computes for ever hears no wish to stop.
    let text = std::fs::read_to_string(Path::new(ROOT).join("tests/cli/loops.wat")).unwrap();
    place.hostile("loops", &text);
    let words = ["train", "--model", "model", "--data", "answers.jsonl", "--method", "loops.wasm", "--name", "deaf"];
    let mut child = place.tunebox(&words).spawn().unwrap();
    let process = worker(&mut child);
    until(&mut child, "its fourth step", || (place.steps("deaf") >= 3).then_some(()));
    send(child.id(), Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the first wish ends a step that is not done");
    let begun = Instant::now();
    send(child.id(), Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    while !is_gone(process) {
        assert!(begun.elapsed() < Duration::from_secs(10), "the worker goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_hostile_method_ends_in_the_same_words_in_a_worker_and_here() {
    let place = Place::new();
    let text = std::fs::read_to_string(Path::new(ROOT).join("tests/cli/loops.wat")).unwrap();
    place.hostile("loops", &text);
    let told = |name: &str, more: &[&str]| {
        let mut command = place.tunebox(&["train", "--model", "model", "--data", "answers.jsonl", "--name", name]);
        for set in ["train.steps=6", "train.save-every=2", "limits.step-seconds=0.2"] {
            command.args(["--set", set]);
        }
        let output = command.args(["--method", "loops.wasm"]).args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        steady(&said(&output), name)
    };
    let aside = told("aside", &[]);

    assert!(aside.contains("error[sandbox]: `loops` used up its time at step 4"), "{aside}");
    assert_eq!(aside, told("here", &["--in-process"]));
}

#[test]
fn a_worker_sees_no_secret_of_its_caller_and_leaves_no_core() {
    let place = Place::new();
    let mut command = place.train("secrets", &[]);
    command.env("HF_TOKEN", "hf_secret").env("AWS_SECRET_ACCESS_KEY", "secret");
    let mut child = command.spawn().unwrap();
    let process = worker(&mut child);
    until(&mut child, "a step", || (place.steps("secrets") >= 1).then_some(()));
    let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    child.wait_with_output().unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();

    assert!(environment.contains("TUNEBOX_CACHE=") && !environment.contains("ecret"), "{environment}");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
}

/// A function of 20 tables of 500 jumps: 100 KB to read, seconds and hundreds of megabytes to compile.
fn slow_to_compile() -> String {
    let (tables, jumps) = (20, 500);
    let table = |number: usize| {
        let targets: Vec<String> = (0..jumps).map(|target| target.to_string()).collect();
        let landing = |place: usize| {
            let (a, b, c) = (place % 50, place * 7 % 50, place * 3 % 50);
            format!("end local.get {a} local.get {b} i32.add local.set {c}\n")
        };
        let landings: String = (0..jumps).map(landing).collect();
        format!("{}local.get {number} br_table {}\n{landings}", "block ".repeat(jumps), targets.join(" "))
    };
    let body: String = (0..tables).map(table).collect();
    format!("(func $slow (param i32) (result i32) (local {})\n{body} local.get 0)", "i32 ".repeat(49))
}

#[test]
fn a_component_that_takes_too_long_to_compile_is_refused_and_nothing_of_it_is_left() {
    let place = Place::new();
    place.hostile("slow", &slow_to_compile());
    let words = ["train", "--model", "model", "--data", "answers.jsonl", "--method", "slow.wasm", "--dry-run"];
    for more in [&[][..], &["--name", "slow"]] {
        let mut words: Vec<&str> = words.iter().chain(more).copied().collect();
        words.retain(|word| more.is_empty() || *word != "--dry-run");
        let begun = Instant::now();
        let output = place.tunebox(&words).args(["--set", "limits.compile-seconds=0.1"]).output().unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("error[sandbox]: `slow` takes too long to compile"), "{text}");
        assert!(text.contains("more than 0.1 s") && text.contains("limits.compile-seconds=1"), "{text}");
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(!place.path("runs").exists());
    }
    let output = place.tunebox(&words).args(["--set", "limits.compile-memory=67108864"]).output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("error[sandbox]: `slow` takes too much memory to compile"), "{text}");
    assert!(text.contains("limits.compile-memory=134217728"), "{text}");
}

fn entries(cache: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> =
        std::fs::read_dir(cache).map_or_else(|_| Vec::new(), |list| list.map(|entry| entry.unwrap().path()).collect());
    entries.sort();
    entries
}

#[test]
fn compiled_code_is_kept_for_us_alone_mended_and_never_taken_from_a_package() {
    let place = Place::new();
    let check = |more: &[&str]| {
        let output = place.tunebox(&["check", "stranger.wasm"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    check(&[]);
    let cache = place.path("cache/compiled");
    let [entry] = &entries(&cache)[..] else { panic!("{:?}", entries(&cache)) };
    let whole = std::fs::read(entry).unwrap();
    assert_eq!(cache.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    // Code that somebody changed is not run: it is made anew.
    for broken in [&whole[..whole.len() / 2], &[whole.as_slice(), b"\0"].concat(), b""] {
        std::fs::write(entry, broken).unwrap();
        check(&[]);
        assert!(std::fs::read(entry).unwrap() == whole, "it was not mended");
    }
    // The very code that the program would run, given as a package.
    const HEADER: usize = 32;
    assert!(whole[HEADER..].starts_with(b"\x7fELF"));
    for name in ["./code.wasm", "./code.cwasm"] {
        std::fs::write(place.path(name), &whole[HEADER..]).unwrap();
        let words = ["train", "--model", "model", "--data", "answers.jsonl", "--method", name];
        let output = place.tunebox(&words).output().unwrap();
        let text = said(&output);
        assert!(text.contains("error[package]: this is code that was compiled beforehand"), "{name}: {text}");
        assert_eq!(output.status.code(), Some(3), "{name}: {text}");
    }
    // A folder that others may enter is no place for code.
    std::fs::remove_file(entry).unwrap();
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(check(&[]).contains("Warning compiled methods are not kept"));
    assert_eq!(entries(&cache), Vec::<PathBuf>::new());
}
