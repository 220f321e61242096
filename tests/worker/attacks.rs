//! Every attack of `attacks/` through the program, in a worker and in its own process, on a run that has a checkpoint.
//!
//! Limits are the defaults but for the seconds of a call and the tokens that the model may write in it. The run of a checkpoint is one of a harmless method, under whose
//! checkpoint the digest of the attack is written: so the attack resumes it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{workspace, write_hostile};
use crate::support::attack::{Attack, attacks};
use crate::support::golden::root;
use crate::support::workspace::Workspace;

/// Bytes that the program may take at once: the tensors and the memory that a method may hold by default, times 1.2, and what
/// a run of this model takes.
const MOST_BYTES: u64 = ((1 << 30) + (256 << 20)) / 5 * 6 + (256 << 20);

/// The longest that an attack may take, with the start of the program and what the host does for it, on a busy machine.
const LONGEST: Duration = Duration::from_secs(20);

/// A method that does nothing in two steps and traps in the third; `learns` is an import that makes it one that learns.
fn harmless(learns: bool) -> String {
    let learn = r#"(import "tunebox:method/learn@0.2.0" "rate" (func (result f64)))"#;
    let learn = if learns { learn } else { "" };
    format!(
        "{learn}
(global $steps (mut i32) (i32.const 0))
(func $step (param i32) (result i32)
  (global.set $steps (i32.add (global.get $steps) (i32.const 1)))
  (if (i32.eq (global.get $steps) (i32.const 3)) (then (unreachable)))
  (call $done))"
    )
}

/// What is of interest about one run of the program.
struct Ended {
    status: ExitStatus,
    told: String,
    took: Duration,
    peak: u64,
}

/// Waits for a child, and returns its peak of memory as well.
#[expect(unsafe_code, reason = "the standard library does not say what a child took")]
fn wait(mut child: Child, begun: Instant) -> Ended {
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    let mut status = 0;
    // SAFETY: all bytes zero are a usage; the system writes a status and a usage to where they are.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert!(libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) > 0);
        usage
    };
    let status = std::os::unix::process::ExitStatusExt::from_raw(status);
    Ended { status, told, took: begun.elapsed(), peak: usage.ru_maxrss as u64 * 1024 }
}

/// Trains with a method for three steps, with a checkpoint after the second.
fn train(place: &Workspace, name: &str, granted: bool, more: &[&str]) -> Ended {
    let method = format!("{name}.wasm");
    let mut command = place.tunebox(&["train", "--model", "model", "--data", "answers.jsonl", "--method", &method]);
    for set in [
        "train.steps=3",
        "train.save-every=2",
        "train.keep=3",
        "train.batch=2",
        "limits.step-seconds=1",
        "limits.init-seconds=1",
        "limits.sampled-tokens=4096",
        "limits.parameter-state-bytes=4194304",
        // Methods that learn from rewards need one.
        "verifier.0.use=number",
    ] {
        command.args(["--set", set]);
    }
    if granted {
        command.args(["--set", "method.grants=[\"weights\", \"text\"]"]);
    }
    command.args(more).stdout(std::process::Stdio::null());
    let begun = Instant::now();
    wait(command.spawn().unwrap(), begun)
}

/// The files of a folder, with their bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), std::fs::read(&path).unwrap_or_default())).collect()
}

/// Makes the run `name` with a checkpoint of the harmless method `base` that the component `bytes` resumes.
fn prepare(place: &Workspace, base: &str, name: &str, bytes: &[u8]) -> PathBuf {
    let (from, to) = (place.path(&format!("runs/{base}")), place.path(&format!("runs/{name}")));
    let copied = std::process::Command::new("cp").arg("-r").args([&from, &to]).status().unwrap();
    assert!(copied.success());
    let checkpoint = to.join("steps/000002");
    let digest = |bytes: &[u8]| tunebox_package::digest::sha256(bytes);
    let of_base = digest(&std::fs::read(place.path(&format!("{base}.wasm"))).unwrap());
    let state = checkpoint.join("state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    assert!(text.contains(&of_base), "{text}");
    std::fs::write(&state, text.replace(&of_base, &digest(bytes))).unwrap();
    checkpoint
}

/// The line of the error that a text ends in, without its numbers; that a run ended if there is none.
fn error_line(told: &str) -> String {
    let line = told.lines().find(|line| line.starts_with("error[")).unwrap_or("ran to its end");
    let line: String = line.chars().filter(|character| !character.is_ascii_digit()).collect();
    line.trim_end().to_owned()
}

/// The line that the program says of an attack: that of `program.txt` beside it if a real run says something else than a fake
/// one, which `expected.txt` has. With `BLESS=1` it is written there first.
fn expected_line(attack: &Attack, told: &str) -> String {
    let file = root().join("tests/attacks").join(&attack.name).join("program.txt");
    let (usual, line) = (error_line(&attack.expected), error_line(told));
    if std::env::var_os("BLESS").is_some() && line != usual {
        std::fs::write(&file, format!("{line}\n")).unwrap();
    }
    std::fs::read_to_string(&file).map_or(usual, |text| error_line(&text))
}

/// What went otherwise than it should, if anything.
fn surprise(place: &Workspace, attack: &Attack, base: &str, way: &[&str]) -> Option<String> {
    let name = format!("{}{}", attack.name, way.join(""));
    let granted = attack.name.starts_with("granted-");
    let bytes = std::fs::read(place.path(&format!("{}.wasm", attack.name))).unwrap();
    let checkpoint = prepare(place, base, &name, &bytes);
    let before = files(&checkpoint);
    let ended = train(place, &attack.name, granted, &[&["--resume", "--name", &name], way].concat());
    let expected = expected_line(attack, &ended.told);
    let codes: &[i32] = match &expected {
        line if line.starts_with("error[sandbox]") => &[3],
        // A file that is no component.
        line if line.starts_with("error[package]") || line.starts_with("error[files]") => &[2, 3],
        _ => &[0],
    };
    let is_told = ended.status.code().is_some_and(|code| codes.contains(&code)) && error_line(&ended.told) == expected;
    let kept = files(&checkpoint) == before;
    let fine = is_told && kept && ended.took < LONGEST && ended.peak < MOST_BYTES;
    (!fine).then(|| {
        let Ended { status, told, took, peak } = ended;
        format!("# {name}: {status}, {took:?}, {peak} bytes, checkpoint kept: {kept}\n## expected\n{expected}\n## told\n{told}")
    })
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are of interest beside the verdict")]
fn every_attack_ends_the_program_in_words_and_leaves_the_last_checkpoint() {
    let place = workspace();
    for (base, learns, granted) in [("plain", false, false), ("learning", true, false), ("granted", false, true)] {
        write_hostile(&place, base, &harmless(learns));
        let ended = train(&place, base, granted, &["--name", base]);
        assert!(place.path(&format!("runs/{base}/steps/000002")).is_dir(), "{}", ended.told);
    }
    let begun = Instant::now();
    let attacks = attacks();
    let mut todo = Vec::new();
    for attack in &attacks {
        let update = if attack.name.starts_with("updates-") { "method" } else { "host" };
        let more = json!({ "metrics": ["loss"], "update": update });
        let bytes = place.write_method(&attack.name, attack.bytes.clone(), more);
        let learns = tunebox_sandbox::imports(&bytes)
            .is_ok_and(|names| names.iter().any(|name| tunebox_training::plan::trains(name)));
        let granted = attack.name.starts_with("granted-");
        let base = if granted {
            "granted"
        } else if learns {
            "learning"
        } else {
            "plain"
        };
        todo.extend([(attack, base, &[][..]), (attack, base, &["--in-process"])]);
    }
    let (count, todo, surprises) = (todo.len(), Mutex::new(todo), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((attack, base, way)) = { todo.lock().unwrap().pop() } {
                    surprises.lock().unwrap().extend(surprise(&place, attack, base, way));
                }
            });
        }
    });
    println!("{count} runs in {:?}", begun.elapsed());
    let surprises = surprises.into_inner().unwrap();
    assert!(surprises.is_empty(), "{} surprises\n{}", surprises.len(), surprises.join("\n"));
}
