//! A method in C, without an SDK: its page is followed, with the generator of bindings as a library.

use std::fs;
use std::path::Path;
use std::process::Command;

use tunebox_package::read_manifest;
use tunebox_sandbox::{Engine, Grants, Limits};

use super::{assert_same_numbers, commands, interfaces, play, print_uncaptured};
use crate::support::absent::absent;
use crate::support::folders::copy;
use crate::support::golden::root;

const PAGE: &str = "examples/11-c/README.md";

/// A C compiler for WebAssembly, if there is one.
fn clang() -> Option<&'static str> {
    let names =
        ["clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14"];
    names.into_iter().find(|name| {
        let targets = Command::new(name).arg("--print-targets").output();
        targets.is_ok_and(|targets| String::from_utf8_lossy(&targets.stdout).contains("wasm32"))
    })
}

/// The bindings that the public generator makes of `wit`, in a folder.
fn bindings(folder: &Path) {
    let mut resolve = wit_bindgen_core::wit_parser::Resolve::default();
    let (package, _) = resolve.push_dir(root().join("wit")).unwrap();
    let world = resolve.select_world(&[package], Some("method")).unwrap();
    let mut files = wit_bindgen_core::Files::default();
    wit_bindgen_c::Opts::default().build().generate(&mut resolve, world, &mut files).unwrap();
    fs::create_dir_all(folder).unwrap();
    for (name, bytes) in files.iter() {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

/// Makes the example's module in a folder with its files, by the command that its page gives.
fn compile(clang: &str, folder: &Path) {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let (_, command) = page.split_once("$ clang ").unwrap();
    let (command, _) = command.split_once("\n```").unwrap();
    let command = command.replace("\\\n", " ");
    let output = Command::new(clang).args(command.split_whitespace()).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The example's files in a folder of their own.
fn copied() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&root().join("examples/11-c"), folder.path());
    folder
}

#[test]
#[ignore = "needs clang"]
fn a_method_in_c_without_an_sdk_gives_the_numbers_of_the_one_in_rust() {
    let clang = clang().unwrap_or_else(|| absent("clang", "none compiles and links for WebAssembly"));
    let folder = copied();
    bindings(&folder.path().join("generated"));
    compile(clang, folder.path());
    let commands = commands(PAGE);
    let [build, inspect, train] = &commands[..] else { panic!("the page has other commands: {commands:?}") };
    play(build, folder.path());
    let inspected = play(inspect, folder.path());
    assert!(inspected.contains("dpo-c"), "{inspected}");
    play(&format!("{train} --set train.steps=2"), folder.path());

    let bytes = fs::read(folder.path().join("dpo-c.wasm")).unwrap();
    assert_eq!(interfaces(&bytes), ["data", "learn", "model", "run", "tensor", "types"]);
    assert!(bytes.len() < 64 << 10, "{} bytes", bytes.len());
    let engine = Engine::new().unwrap();
    let method = engine.admit(&bytes, "dpo-c", &Grants::default(), &Limits::default()).unwrap();
    assert_same_numbers(&engine, &method, &read_manifest(&bytes).unwrap(), 3);
    print_uncaptured(&format!("C: {} bytes", bytes.len()));
}
