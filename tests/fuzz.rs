//! Runs every fuzz target of `fuzz/` on its committed inputs and on thousands of generated ones, the same on every
//! machine. Longer searches are described in `fuzz/README.md`.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::print_stdout, reason = "the last file that was begun is the one that failed")]

#[path = "support/guest.rs"]
mod guest;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tunebox_fuzz::{TARGETS, corpus, find, folder, search};

/// Far more than any input takes, on a busy machine as well.
const PATIENCE: Duration = Duration::from_secs(20);

fn accepts_every_input(name: &str) {
    let target = find(name).unwrap();
    let inputs = corpus(name);
    assert!(!inputs.is_empty(), "`{name}` has no committed inputs");
    for (file, bytes) in &inputs {
        println!("{name}/{file}");
        (target.run)(bytes);
    }
    let tally = search(target, 1, 0, |made| made < target.quick);
    assert_eq!(tally.inputs, target.quick);
    assert!(tally.slowest < PATIENCE, "an input of `{name}` took {:?}", tally.slowest);
}

/// One test a target, so that they run beside each other and say which one it was.
macro_rules! takes {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            accepts_every_input(stringify!($name));
        })*

        const TESTED: &[&str] = &[$(stringify!($name)),*];
    };
}

takes! {
    adapter admission checkpoint configuration continuation data_file gguf lock manifest operations publishers record
    run_file run_lock safetensors session signature statement template tokenizer verifiers worker
}

/// The program counts what it allocates; this process runs several targets at once.
#[test]
fn sessions_allocate_no_more_than_their_account_allows() {
    let inputs = std::fs::read_dir(folder("session")).unwrap().map(|entry| entry.unwrap().path());
    let output = Command::new(env!("CARGO_BIN_EXE_tunebox-fuzz")).arg("session").args(inputs).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let stem = |entry: std::fs::DirEntry| entry.path().file_stem().unwrap().to_str().unwrap().to_owned();
    let mut names: Vec<String> = entries.map(|entry| stem(entry.unwrap())).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn files_inputs_dictionaries_tests_and_the_page_name_the_same_targets() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/targets"));
    let listed: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    let files: Vec<String> = names(root).into_iter().filter(|name| name != "mod").collect();
    assert_eq!(files, listed, "files of `src/targets`");
    assert_eq!(names(folder("").as_path()), listed, "folders of `corpus`");
    assert_eq!(TESTED, listed, "tests of `tests/fuzz.rs`");
    // The others read programs, not text.
    let with_words: Vec<&str> =
        listed.iter().copied().filter(|name| !["operations", "session"].contains(name)).collect();
    assert_eq!(names(folder("../words").as_path()), with_words, "dictionaries of `words`");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    for name in listed {
        assert!(page.contains(&format!("| `{name}` |")), "`{name}` is not in `tests/fuzz/README.md`");
    }
}

#[test]
fn the_fuzzer_is_built_with_what_the_runtime_is_built_with() {
    let lock = |path: &str| {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let version = |name: &str| {
            let entry = text.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{name}\"\n")));
            entry.and_then(|entry| entry.lines().find(|line| line.starts_with("version"))).unwrap().to_owned()
        };
        ["wasmtime", "candle-core", "minijinja", "safetensors", "tokenizers", "toml", "serde_json"].map(version)
    };
    assert_eq!(lock("libfuzzer/Cargo.lock"), lock("../../Cargo.lock"), "`cargo update` in one workspace only");
}

#[test]
fn the_ordinary_method_of_the_corpus_is_that_of_the_contract() {
    let wanted = [&[0], guest::component("").as_slice()].concat();
    let path = folder("admission").join("ordinary");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == wanted, "`BLESS=1 cargo test --test fuzz` rewrites it");
}
