//! A worker does what the program itself would do, in the same words, and knows less of its caller.

use std::process::Command;

use super::{succeed, train, worker, workspace, write_hostile};
use crate::support::golden::root;
use crate::support::processes::wait_for;
use crate::support::workspace::{Workspace, errors};

/// A transcript without what differs from run to run: names of runs, times, speeds, sizes, energy.
fn steady(text: &str, name: &str) -> String {
    // Only one of the two is confined, and says so.
    let patterns = [
        r#" +Worker .*\n|,"rings":\[[^]]*\]"#,
        r"\d+(\.\d+)? (ms|s|min|Wh)\b",
        r"\d[\d,]*(\.\d+)? ([KMG]iB|B)\b",
        r"(?m)^( {6,}\d+ .*?) +[\d,]+ +\S+$",
        r#""(seconds|tokens_per_second|peak_bytes|runtime|joules)":[^,}]*"#,
    ];
    let text = text.replace(name, "NAME");
    patterns.iter().fold(text, |text, pattern| {
        let shown = if pattern.contains("(?m)") { "$1" } else { "-" };
        regex::Regex::new(pattern).unwrap().replace_all(&text, shown).into_owned()
    })
}

#[test]
fn a_run_in_a_worker_says_and_leaves_what_it_does_without_one() {
    let place = workspace();
    for form in [&["--verbose"][..], &["--json"]] {
        let mut found = Vec::new();
        for (name, more) in [("aside", &[][..]), ("here", &["--in-process"])] {
            let output = succeed(&place, name, &[form, more, &["--set", "train.steps=6"]].concat());
            let told = [errors(&output), String::from_utf8(output.stdout).unwrap()].concat();
            found.push((steady(&told, name), place.adapter(name)));
            std::fs::remove_dir_all(place.path(&format!("runs/{name}"))).unwrap();
        }
        assert_eq!(found[0].0, found[1].0);
        assert!(found[0].1 == found[1].1, "the adapters differ");
    }
}

#[test]
fn a_run_of_an_untrusted_method_is_replayed_in_a_worker_to_the_same_bits_wherever_it_first_ran() {
    let place = workspace();
    for (name, more) in [("guarded", [].as_slice()), ("trusted", &["--in-process"])] {
        succeed(&place, name, more);
        let run = format!("runs/{name}");
        let words = ["verify", &run, "--replay", "--set", "method.use=stranger.wasm"];
        let mut replay = place.tunebox(&words).spawn().unwrap();
        worker(&mut replay);
        let output = replay.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        assert!(errors(&output).contains("every bit of the artifact"), "{}", errors(&output));
    }
    let look = |words: &[&str]| {
        let output = place.tunebox(words).env("TUNEBOX_CACHE", place.path("untouched")).output().unwrap();
        let kept = std::fs::read_dir(place.path("untouched/compiled")).map_or(0, Iterator::count);
        assert_eq!(kept, 0, "it was compiled: {}", errors(&output));
        (output.status.code(), errors(&output))
    };
    // What only the run names is read, and what is recorded of it compared; more than that, a person asks for.
    let (code, told) = look(&["verify", "runs/guarded"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("Artifact 2 of 2") && told.contains("neither compiled nor run"), "{told}");
    assert!(told.contains("Next tunebox verify runs/guarded --replay --set method.use=PATH"), "{told}");
    let (code, told) = look(&["verify", "runs/guarded", "--replay"]);
    assert_eq!(code, Some(4), "{told}");
    assert!(told.contains("error[trust]: only the run's own file names `"), "{told}");

    look_at_what_was_lost(&place, &look);

    std::fs::copy(root().join("methods/orpo/orpo.wasm"), place.path("stranger.wasm")).unwrap();
    let (code, told) = look(&["verify", "runs/guarded"]);
    assert_eq!(code, Some(4), "another method under the same name is another run: {told}");
    assert!(told.contains("Differs method.sha256"), "{told}");
    std::fs::remove_file(place.path("stranger.wasm")).unwrap();
    let (code, told) = look(&["verify", "runs/guarded"]);
    assert_eq!(code, Some(2), "{told}");
    for line in ["Artifact 2 of 2 unchanged", "Inputs ", "Unread ", "`--set` gives its present path"] {
        assert!(told.contains(line), "{told}");
    }
}

/// The program with some words: its exit code, and what it said.
type Look<'a> = dyn Fn(&[&str]) -> (Option<i32>, String) + 'a;

/// What a run's file has lost is told though nothing is planned, and a pipe that it names is not waited for.
fn look_at_what_was_lost(place: &Workspace, look: &Look<'_>) {
    let [lock, file] = ["runs/guarded/run.lock", "runs/guarded/run.toml"].map(|name| place.path(name));
    let [locked, written] = [&lock, &file].map(|path| std::fs::read_to_string(path).unwrap());
    std::fs::write(&lock, format!("{locked}\n[validation]\nrecords = 1\nsha256 = \"0\"\n")).unwrap();
    let (code, told) = look(&["verify", "runs/guarded"]);
    assert_eq!(code, Some(4), "the run's file names no such data any more: {told}");
    assert!(told.contains("Differs validation.sha256") && !told.contains("validation.records"), "{told}");
    std::fs::write(&lock, locked).unwrap();
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    std::fs::write(&file, written.replace("answers.jsonl", "pipe")).unwrap();
    let (code, told) = look(&["verify", "runs/guarded"]);
    assert_eq!(code, Some(2), "a pipe is not waited for: {told}");
    assert!(told.contains("is no ordinary file") && told.contains("`--set data.path=PATH`"), "{told}");
    std::fs::write(&file, written).unwrap();
}

#[test]
fn a_hostile_method_ends_in_the_same_words_in_a_worker_and_here() {
    let place = workspace();
    write_hostile(&place, "loops", include_str!("../cli/loops.wat"));
    let told = |name: &str, more: &[&str]| {
        let mut command = place.tunebox(&["train", "--model", "model", "--data", "answers.jsonl", "--name", name]);
        for set in ["train.steps=6", "train.save-every=2", "limits.step-seconds=0.2"] {
            command.args(["--set", set]);
        }
        let output = command.args(["--method", "loops.wasm"]).args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        steady(&errors(&output), name)
    };
    let aside = told("aside", &[]);

    assert!(aside.contains("error[sandbox]: `loops` used up its time at step 4"), "{aside}");
    assert_eq!(aside, told("here", &["--in-process"]));
}

#[test]
fn a_worker_sees_no_secret_of_its_caller_and_leaves_no_core() {
    let place = workspace();
    let mut command = train(&place, "secrets", &["--set", "train.steps=240"]);
    command.env("HF_TOKEN", "hf_secret").env("AWS_SECRET_ACCESS_KEY", "secret");
    command.env("HF_ENDPOINT", "https://me:secret@hub.example").env_remove("RAYON_NUM_THREADS");
    let mut child = command.spawn().unwrap();
    let process = worker(&mut child);
    wait_for(&mut child, "a step", || (place.steps("secrets") >= 1).then_some(()));
    let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    child.wait_with_output().unwrap();

    assert_eq!(String::from_utf8_lossy(&environment), "", "the environment is empty");
    assert!(place.path("cache/compiled").is_dir(), "the cache is the one that the caller's environment names");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
}

#[test]
fn a_model_in_the_cache_of_a_hub_is_read_within_the_rings() {
    let place = workspace();
    let (cached, commit) = (place.path("hub/models--me--tiny"), "0123456789abcdef0123456789abcdef01234567");
    let snapshot = cached.join("snapshots").join(commit);
    for folder in [&snapshot, &cached.join("blobs"), &cached.join("refs")] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::write(cached.join("refs/main"), commit).unwrap();
    for (number, file) in std::fs::read_dir(place.path("model")).unwrap().flatten().enumerate() {
        std::fs::copy(file.path(), cached.join(format!("blobs/{number}"))).unwrap();
        std::os::unix::fs::symlink(format!("../../blobs/{number}"), snapshot.join(file.file_name())).unwrap();
    }
    let train = ["train", "--model", "me/tiny", "--data", "answers.jsonl", "--set", "train.steps=1"];
    for words in [&["score", "me/tiny", "--text", "Nairobi is in Kenya."][..], &train] {
        let output = place.tunebox(words).arg("--offline").env("HF_HUB_CACHE", place.path("hub")).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", errors(&output));
    }
}
