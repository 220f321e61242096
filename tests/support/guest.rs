//! Guests written as text: the bodies of core modules, made into components of the contract.
//!
//! A body holds only what is special about a guest: some of the functions `$init`, `$step`,
//! `$finish`, `$save-state`, `$load-state`. `ordinary.wat` and the others are added here, and the imports of the functions
//! that the body calls by their names in the contract: `$tensor/ones`, `$tensor/tensor.exp` for a method, `$tensor/scope.new`
//! for a constructor, `$tensor/scope.drop` to give a handle back.

use std::collections::BTreeSet;
use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Resolve, TypeDefKind, WorldId, WorldItem};

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
    let (resolve, world) = read_world(contract, "method");
    let text = module(&(imports(text, &resolve, world) + text)).replace("@0.2.0", &format!("@{version}"));
    encode(&text, &resolve, world)
}

/// The contract in a folder, and one of its worlds.
pub(crate) fn read_world(contract: &Path, name: &str) -> (Resolve, WorldId) {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(contract).unwrap();
    let world = resolve.select_world(&[package], Some(name)).unwrap();
    (resolve, world)
}

/// The component of a world that a module written as text becomes.
pub(crate) fn encode(text: &str, resolve: &Resolve, world: WorldId) -> Vec<u8> {
    let mut module = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"));
    embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap()
}

fn repeated(text: &str) -> String {
    let times = |line: &str| -> (usize, String) {
        let repeat = line.strip_prefix('@').and_then(|rest| rest.split_once(' '));
        repeat.map_or((1, format!("{line}\n")), |(times, line)| (times.parse().unwrap(), format!("{line}\n")))
    };
    text.lines().map(times).map(|(times, line)| line.repeat(times)).collect()
}

/// The imports of the functions of a world that a body names.
fn imports(body: &str, resolve: &Resolve, world: WorldId) -> String {
    let named: BTreeSet<&str> = body.split([' ', '\n', '(', ')']).filter_map(|word| word.strip_prefix('$')).collect();
    let mut text = String::new();
    for item in resolve.worlds[world].imports.values() {
        let WorldItem::Interface { id, .. } = item else { panic!("a world imports interfaces only") };
        let (interface, module) = (&resolve.interfaces[*id], resolve.id_of(*id).unwrap());
        let functions = interface.functions.values().map(|function| {
            let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
            (function.name.clone(), signature.params, signature.results)
        });
        let resources =
            interface.types.iter().filter(|(_, id)| matches!(resolve.types[**id].kind, TypeDefKind::Resource));
        let drops = resources.map(|(name, _)| (format!("[resource-drop]{name}"), vec![WasmType::I32], Vec::new()));
        for (key, parameters, results) in functions.chain(drops) {
            let name = match key.split_once(']') {
                None => key.clone(),
                Some(("[constructor", resource)) => format!("{resource}.new"),
                Some(("[resource-drop", resource)) => format!("{resource}.drop"),
                Some((_, method)) => method.to_owned(),
            };
            let name = format!("{}/{name}", interface.name.as_deref().unwrap());
            if named.contains(name.as_str()) {
                let (parameters, results) = (flat("param", &parameters), flat("result", &results));
                text += &format!("(import \"{module}\" \"{key}\" (func ${name}{parameters}{results}))\n");
            }
        }
    }
    text
}

/// Types of parameters or results in the text format.
fn flat(what: &str, types: &[WasmType]) -> String {
    let name = |ty: &WasmType| match ty {
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
        _ => "i32",
    };
    types.iter().map(|ty| format!(" ({what} {})", name(ty))).collect()
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
