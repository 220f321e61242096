//! Runs cargo, and reads its messages about a build: one JSON object on each line.

use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::Error;
use crate::toolchain::{Toolchain, command, path_folders};

/// The environment variable that tells cargo to use no network, whatever its subcommand.
const OFFLINE_VARIABLE: &str = "CARGO_NET_OFFLINE";

/// Prepares, but does not run, a call of the toolchain's cargo in a folder: with the toolchain's compiler in `RUSTC`,
/// with the folder of its cargo first on `PATH`, and without the variables that an outer cargo set. `offline` forbids
/// the use of a network. Errors: no such folder.
pub fn cargo_in(folder: &Path, toolchain: &Toolchain, offline: bool) -> Result<Command, Error> {
    let folder = folder.canonicalize().map_err(Error::file("found", folder))?;
    let mut cargo = command(&toolchain.cargo);
    let own = toolchain.cargo.parent().map(Path::to_owned);
    if let Ok(path) = std::env::join_paths(own.into_iter().chain(path_folders())) {
        cargo.env("PATH", path);
    }
    cargo.env("RUSTC", &toolchain.rustc).current_dir(folder);
    if offline {
        cargo.env(OFFLINE_VARIABLE, "true");
    }
    Ok(cargo)
}

/// Runs cargo to its end, without input, and calls `on_message` with each JSON message on standard output as it comes.
/// Returns the exit status and both streams in full. Errors: cargo does not start or cannot be read from; a status of
/// failure is no error here.
pub(super) fn run(cargo: &mut Command, on_message: &mut dyn FnMut(&Value)) -> io::Result<Output> {
    // Standard error goes to a file: cargo blocks when a pipe that is not being read is full.
    let mut words = tempfile::tempfile()?;
    let mut child = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(words.try_clone()?).spawn()?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    for line in child.stdout.take().into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n')) {
        let line = line?;
        parse_messages(&line).for_each(|message| on_message(&message));
        stdout.extend(line);
        stdout.push(b'\n');
    }
    let status = child.wait()?;
    words.rewind()?;
    words.read_to_end(&mut stderr)?;
    Ok(Output { status, stdout, stderr })
}

/// Iterates over cargo's JSON messages, one a line. Lines that are not JSON are skipped.
pub(super) fn parse_messages(output: &[u8]) -> impl Iterator<Item = Value> {
    output.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

/// Returns the name of the crate that a message of cargo reports as just compiled. `None` for other messages, for
/// crates that were up to date, and for build scripts.
pub(super) fn compiled_crate(message: &Value) -> Option<&str> {
    let target = message.get("target")?;
    let is_script = list_items(target, "kind").any(|kind| kind == "custom-build");
    let was_there = message.get("fresh")?.as_bool()?;
    let counts = text_field(message, "reason") == Some("compiler-artifact") && !was_there && !is_script;
    if counts { text_field(target, "name") } else { None }
}

/// Whether an object of cargo is about the package whose `Cargo.toml` resolves to `manifest`, a canonical path.
pub(super) fn is_of_package(object: &Value, manifest: &Path) -> bool {
    text_field(object, "manifest_path")
        .is_some_and(|path| Path::new(path).canonicalize().is_ok_and(|path| path == manifest))
}

/// Finds the executable with the tests of the library of the package at `manifest`, a canonical path, in the `output`
/// of `cargo test --no-run`. `None` if cargo made no such executable.
pub fn find_library_tests(output: &[u8], manifest: &Path) -> Option<PathBuf> {
    let is_library =
        |target: &Value| list_items(target, "kind").any(|kind| kind.as_str().is_some_and(|kind| kind.ends_with("lib")));
    let is_it = |message: &Value| {
        message.get("target").is_some_and(is_library)
            && message.pointer("/profile/test") == Some(&Value::Bool(true))
            && is_of_package(message, manifest)
    };
    parse_messages(output).filter(is_it).find_map(|message| text_field(&message, "executable").map(PathBuf::from))
}

/// Returns the string that a JSON object has under `key`, or `None` if there is no string.
pub(super) fn text_field<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// Iterates over the array that a JSON object has under `key`; over nothing if there is no array.
pub(super) fn list_items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_heard_one_by_one_and_both_streams_are_kept() {
        let mut reasons = Vec::new();
        let script = r#"echo '{"reason":"a"}'; echo no message; echo words >&2; echo '{"reason":"b"}'; exit 3"#;
        let output = run(Command::new("sh").args(["-c", script]), &mut |message| {
            reasons.extend(text_field(message, "reason").map(str::to_owned));
        });
        let output = output.unwrap();
        assert_eq!(reasons, ["a", "b"]);
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(3), &b"words\n"[..]));
        assert_eq!(parse_messages(&output.stdout).count(), 2);
    }

    #[test]
    fn what_was_there_already_and_what_is_only_a_script_was_not_compiled() {
        let message = |kind: &str, fresh: bool| {
            serde_json::json!({
                "reason": "compiler-artifact", "target": { "kind": [kind], "name": "syn" }, "fresh": fresh,
            })
        };
        assert_eq!(compiled_crate(&message("lib", false)), Some("syn"));
        assert_eq!(
            (compiled_crate(&message("lib", true)), compiled_crate(&message("custom-build", false))),
            (None, None)
        );
    }

    #[test]
    fn the_tests_of_the_library_are_found_in_messages_of_cargo() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().canonicalize().unwrap().join("Cargo.toml");
        std::fs::write(&manifest, "").unwrap();
        let found = |kind: &str, test: bool| {
            let message = serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": manifest, "executable": "/target/calm-1",
                "target": { "kind": [kind] }, "profile": { "test": test },
            });
            find_library_tests(message.to_string().as_bytes(), &manifest)
        };
        assert_eq!(found("cdylib", true), Some(PathBuf::from("/target/calm-1")));
        assert_eq!((found("cdylib", false), found("test", true)), (None, None));
        assert_eq!(find_library_tests(br#"{"reason":"build-finished"}"#, &manifest), None);
    }
}
