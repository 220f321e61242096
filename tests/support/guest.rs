//! Guests written as text: the bodies of core modules, made into components of the contract.
//!
//! A body holds only what is special about a guest: some of the functions `$init`, `$step`,
//! `$finish`, `$save-state`, `$load-state`. `ordinary.wat` and the others are added here.

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// What a method that does nothing offers: the function, its parameters, its body.
const CPU_DEFAULT: [(&str, &str, &str); 5] = [
    ("init", "(param i32 i32)", "(call $done)"),
    ("step", "(param i32)", "(call $done)"),
    ("finish", "", "(call $done)"),
    ("save-state", "", "(i64.store (i32.const 0) (i64.const 0)) (i32.const 0)"),
    ("load-state", "(param i32 i32)", "(call $done)"),
];

/// What a guest may have in the place of the ordinary: the sign that it does, and the ordinary.
const REPLACEABLE: [(&str, &str); 2] = [
    ("\"cabi_realloc\"", include_str!("allocate.wat")),
    ("(func $give-back", "(func $give-back (param i32) (call $drop-batch (local.get 0)))"),
];

/// The contract that guests are made for.
const CONTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit");

/// The bytes of a component. Text that begins with `(component` or `(module` is taken as it is; a line that begins with
/// `@` and a number stands for as many lines.
pub(crate) fn component(text: &str) -> Vec<u8> {
    component_for(text, Path::new(CONTRACT), "0.2.0")
}

/// The same for the contract of another folder, in its version.
pub(crate) fn component_for(text: &str, contract: &Path, version: &str) -> Vec<u8> {
    let text = &repeated(text);
    let start = text.lines().find(|line| !line.trim_start().starts_with(";;")).unwrap_or("");
    if start.starts_with("(component") || start.starts_with("(module") {
        return wat::parse_str(text).unwrap();
    }
    let text = module(text).replace("@0.2.0", &format!("@{version}"));
    let mut module = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"));
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(contract).unwrap();
    let world = resolve.select_world(&[package], Some("method")).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap()
}

fn repeated(text: &str) -> String {
    let times = |line: &str| -> (usize, String) {
        let repeat = line.strip_prefix('@').and_then(|rest| rest.split_once(' '));
        repeat.map_or((1, format!("{line}\n")), |(times, line)| (times.parse().unwrap(), format!("{line}\n")))
    };
    text.lines().map(times).map(|(times, line)| line.repeat(times)).collect()
}

/// The body with what is ordinary around it: imports first, as the text format wants it.
fn module(body: &str) -> String {
    let missing = CPU_DEFAULT.iter().filter(|(name, ..)| !body.contains(&format!("(func ${name}")));
    let added: String = missing
        .map(|(name, parameters, answer)| format!("(func ${name} {parameters} (result i32) {answer})\n"))
        .collect();
    let replaceable = REPLACEABLE.iter().filter(|(sign, _)| !body.contains(sign)).map(|(_, ordinary)| *ordinary);
    let added = replaceable.fold(added, |added, ordinary| added + ordinary + "\n");
    let drop = r#"(import "tunebox:method/data@0.2.0" "[resource-drop]batch" (func $drop-batch (param i32)))"#;
    format!("(module\n{drop}\n{body}\n{}\n{added})", include_str!("ordinary.wat"))
}
