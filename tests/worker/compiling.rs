//! What an untrusted component may take to compile, and where compiled code is kept.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{workspace, write_hostile};
use crate::support::workspace::errors;

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
    let place = workspace();
    write_hostile(&place, "slow", &slow_to_compile());
    let words = ["train", "--model", "model", "--data", "answers.jsonl", "--method", "slow.wasm", "--dry-run"];
    for more in [&[][..], &["--name", "slow"]] {
        let mut words: Vec<&str> = words.iter().chain(more).copied().collect();
        words.retain(|word| more.is_empty() || *word != "--dry-run");
        let begun = Instant::now();
        let output = place.tunebox(&words).args(["--set", "limits.compile-seconds=0.1"]).output().unwrap();
        let text = errors(&output);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("error[sandbox]: `slow` takes too long to compile"), "{text}");
        assert!(text.contains("more than 0.1 s") && text.contains("limits.compile-seconds=1"), "{text}");
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(!place.path("runs").exists());
    }
    let output = place.tunebox(&words).args(["--set", "limits.compile-memory=67108864"]).output().unwrap();
    let text = errors(&output);
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
fn compiled_code_is_private_repaired_and_never_taken_from_a_package() {
    let place = workspace();
    let check = |more: &[&str]| {
        let output = place.tunebox(&["check", "stranger.wasm"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        errors(&output)
    };
    check(&[]);
    let cache = place.path("cache/compiled");
    let [entry] = &entries(&cache)[..] else { panic!("{:?}", entries(&cache)) };
    let whole = std::fs::read(entry).unwrap();
    assert_eq!(cache.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    // Changed code is not run: it is compiled anew.
    for broken in [&whole[..whole.len() / 2], &[whole.as_slice(), b"\0"].concat(), b""] {
        std::fs::write(entry, broken).unwrap();
        check(&[]);
        assert!(std::fs::read(entry).unwrap() == whole, "it was not repaired");
    }
    // The very code that the program would run, given as a package.
    const HEADER: usize = 32;
    assert!(whole[HEADER..].starts_with(b"\x7fELF"));
    for name in ["./code.wasm", "./code.cwasm"] {
        std::fs::write(place.path(name), &whole[HEADER..]).unwrap();
        let words = ["train", "--model", "model", "--data", "answers.jsonl", "--method", name];
        let output = place.tunebox(&words).output().unwrap();
        let text = errors(&output);
        assert!(text.contains("error[package]: this is code that was compiled beforehand"), "{name}: {text}");
        assert_eq!(output.status.code(), Some(3), "{name}: {text}");
    }
    // A folder that others may enter is no place for code.
    std::fs::remove_file(entry).unwrap();
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(check(&[]).contains("Warning compiled methods are not kept"));
    assert_eq!(entries(&cache), Vec::<PathBuf>::new());
}
