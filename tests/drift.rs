//! Pairs that must not drift apart: the crate graph and its picture, the contract and its page,
//! the commands and theirs, the README and the method it shows.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/golden.rs"]
mod golden;
#[path = "support/method_table.rs"]
mod method_table;
#[path = "support/picture.rs"]
mod picture;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use golden::{assert_file, between, root};
use wit_parser::{Docs, Interface, InterfaceId, Resolve, Type, TypeDefKind, TypeId, WorldItem};

/// Who may know whom. An arrow that is not here is a mistake.
const ARROWS: &[(&str, &[&str])] = &[
    ("tunebox-compute", &[]),
    ("tunebox-model", &["tunebox-compute"]),
    ("tunebox-sandbox", &["tunebox-model", "tunebox-compute"]),
    ("tunebox-package", &["tunebox-compute"]),
    ("tunebox-training", &["tunebox-package", "tunebox-sandbox", "tunebox-model", "tunebox-compute"]),
    ("tunebox-cli", &["tunebox-training", "tunebox-package", "tunebox-sandbox", "tunebox-model", "tunebox-compute"]),
    ("tunebox-fuzz", &["tunebox-training", "tunebox-package", "tunebox-sandbox", "tunebox-model", "tunebox-compute"]),
    ("tunebox-derive", &[]),
    ("tunebox-mirror", &[]),
    ("tunebox", &["tunebox-derive", "tunebox-mirror"]),
];

/// Where a dependency that shapes a room may be named.
const ROOMS: &[(&str, &[&str])] = &[
    ("wasmtime", &["tunebox-sandbox"]),
    ("clap", &["tunebox-cli"]),
    ("indicatif", &["tunebox-cli"]),
    ("tokenizers", &["tunebox-model"]),
    ("hf-hub", &["tunebox-model"]),
    ("ureq", &["tunebox-package"]),
];

fn normal_dependencies() -> BTreeMap<String, Vec<String>> {
    let metadata =
        cargo_metadata::MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap();
    let normal = |package: &cargo_metadata::Package| {
        let kept = package.dependencies.iter().filter(|d| d.kind == cargo_metadata::DependencyKind::Normal);
        kept.map(|d| d.name.clone()).collect()
    };
    metadata.packages.iter().map(|package| (package.name.to_string(), normal(package))).collect()
}

#[test]
fn arrows_point_down_only() {
    for (name, found) in normal_dependencies() {
        let ours = found.iter().filter(|d| d.starts_with("tunebox"));
        let allowed = ARROWS.iter().find(|(from, _)| *from == name).map_or(&["tunebox"][..], |(_, to)| to);
        for target in ours {
            assert!(allowed.contains(&target.as_str()), "`{name}` must not know `{target}`");
        }
    }
}

#[test]
fn the_sandbox_the_terminal_and_the_network_stay_in_their_rooms() {
    for (name, found) in normal_dependencies() {
        for (dependency, rooms) in ROOMS {
            let named = found.iter().any(|d| d == dependency);
            assert!(!named || rooms.contains(&name.as_str()), "`{dependency}` is named in `{name}`");
        }
    }
}

fn walk(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        visit(&path);
        if path.is_dir() && !path.ends_with("target") {
            walk(&path, visit);
        }
    }
}

#[test]
fn nothing_is_called_by_a_name_that_says_nothing() {
    let empty = ["common", "core", "utils", "util", "helpers", "helper", "misc", "extras"];
    for room in ["runtime", "sdk", "methods", "tests"] {
        walk(&root().join(room), &mut |path| {
            let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
            assert!(!empty.contains(&stem), "`{}` says nothing", path.display());
        });
    }
}

#[test]
fn files_stay_small_and_say_what_they_are_for() {
    for room in ["runtime", "sdk", "methods", "tests", "examples"] {
        walk(&root().join(room), &mut |path| {
            if path.extension().is_none_or(|e| e != "rs") {
                return;
            }
            let text = std::fs::read_to_string(path).unwrap();
            // A `tests.rs` belongs to the file that it is named after.
            assert!(
                text.starts_with("//!") || path.ends_with("tests.rs"),
                "`{}` does not open with its purpose",
                path.display()
            );
            let lines = text.lines().count();
            assert!(lines <= 600, "`{}` has {lines} lines", path.display());
        });
    }
}

/// The only files that may hold unsafe code, and how often.
const UNSAFE: &[(&str, usize)] = &[
    ("runtime/compute/patches/cudarc/src/cublas.rs", 5),
    ("runtime/compute/patches/cudarc/src/cublas/result.rs", 1),
    ("runtime/compute/patches/cudarc/src/driver/context.rs", 12),
    ("runtime/compute/patches/cudarc/src/driver/launch.rs", 1),
    ("runtime/compute/patches/cudarc/src/driver/module.rs", 4),
    ("runtime/compute/patches/cudarc/src/driver/result.rs", 3),
    ("runtime/compute/patches/cudarc/src/driver/slice.rs", 1),
    ("runtime/compute/patches/cudarc/src/driver/stream.rs", 14),
    ("runtime/compute/patches/cudarc/src/library.rs", 4),
    ("runtime/compute/patches/cudarc/src/nvrtc.rs", 10),
    ("runtime/compute/src/accelerator/cuda/launch.rs", 1),
    ("runtime/compute/src/accelerator/cuda/memory.rs", 1),
    ("runtime/compute/src/accelerator/cuda/probe.rs", 1),
    ("runtime/compute/src/accelerator/cuda/product.rs", 1),
    ("runtime/compute/src/accelerator/metal/memory.rs", 3),
    ("runtime/compute/src/allocator.rs", 1),
    ("runtime/compute/src/fused/fetch.rs", 1),
    ("runtime/compute/src/fused/fixed/vnni/instruction.rs", 1),
    ("runtime/compute/src/fused/product.rs", 2),
    ("runtime/model/src/weights/mapped.rs", 2),
    ("runtime/sandbox/src/precompiled.rs", 1),
];

#[test]
fn unsafe_code_is_where_the_list_says_and_says_why_it_is_sound() {
    let mut found = Vec::new();
    for room in ["runtime", "sdk", "methods"] {
        walk(&root().join(room), &mut |path| {
            if path.extension().is_none_or(|e| e != "rs") {
                return;
            }
            let text = std::fs::read_to_string(path).unwrap();
            let count = text.matches("unsafe {").count() + text.matches("unsafe impl").count();
            let reasons = text.matches("// SAFETY:").count();
            assert!(reasons >= count, "`{}` does not say why it is sound", path.display());
            let allows = text.contains("(unsafe_code");
            if count > 0 || allows {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
                found.push((name.to_owned(), text.matches("unsafe {").count()));
            }
        });
    }
    found.sort();
    let listed: Vec<_> = UNSAFE.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    assert_eq!(found, listed);
}

fn docs(docs: &Docs, owner: &str) -> String {
    docs.contents.clone().unwrap_or_else(|| panic!("`{owner}` has no documentation")).trim().to_owned()
}

fn type_name(resolve: &Resolve, ty: &Type) -> String {
    match ty {
        Type::Id(id) => definition(resolve, *id),
        Type::String => "string".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn definition(resolve: &Resolve, id: TypeId) -> String {
    let def = &resolve.types[id];
    let optional = |ty: &Option<Type>| ty.as_ref().map_or("_".into(), |ty| type_name(resolve, ty));
    match (&def.name, &def.kind) {
        (Some(name), _) => name.clone(),
        (_, TypeDefKind::Result(r)) => format!("result<{}, {}>", optional(&r.ok), optional(&r.err)),
        (_, TypeDefKind::Option(ty)) => format!("option<{}>", type_name(resolve, ty)),
        (_, TypeDefKind::List(ty)) => format!("list<{}>", type_name(resolve, ty)),
        (_, TypeDefKind::Tuple(t)) => {
            format!("tuple<{}>", t.types.iter().map(|ty| type_name(resolve, ty)).collect::<Vec<_>>().join(", "))
        }
        (_, TypeDefKind::Handle(wit_parser::Handle::Borrow(id))) => format!("borrow<{}>", definition(resolve, *id)),
        (_, TypeDefKind::Handle(wit_parser::Handle::Own(id))) => definition(resolve, *id),
        (_, kind) => kind.as_str().to_owned(),
    }
}

/// The text of a flag: what a method of the same name gives is said there.
fn flag(resolve: &Resolve, interface: &Interface, name: &str) -> Option<String> {
    interface.types.values().find_map(|id| match &resolve.types[*id].kind {
        TypeDefKind::Flags(flags) => flags.flags.iter().find(|flag| flag.name == name)?.docs.contents.clone(),
        _ => None,
    })
}

/// One interface as a section: its text, then every function with its signature and text.
fn section(resolve: &Resolve, id: InterfaceId) -> String {
    let interface = &resolve.interfaces[id];
    let name = interface.name.clone().unwrap();
    let mut text = format!("## {name}\n\n{}\n", docs(&interface.docs, &name));
    for (kind, id) in &interface.types {
        let def = &resolve.types[*id];
        if !matches!(def.kind, TypeDefKind::Type(_)) {
            let _ = write!(text, "\n**`{}` {kind}** {}\n", def.kind.as_str(), docs(&def.docs, kind));
        }
    }
    for (key, function) in &interface.functions {
        let parameters = function.params.iter().filter(|p| p.name != "self");
        let parameters: Vec<String> =
            parameters.map(|p| format!("{}: {}", p.name, type_name(resolve, &p.ty))).collect();
        let result = function.result.as_ref().map_or(String::new(), |ty| format!(" -> {}", type_name(resolve, ty)));
        let title = key.rsplit(']').next().unwrap_or(key);
        let what = if key.starts_with("[constructor]") { "constructor " } else { "" };
        let method = title.rsplit('.').next().unwrap_or(title);
        let about = function.docs.contents.clone().or_else(|| flag(resolve, interface, method)).unwrap_or_default();
        assert!(!about.trim().is_empty() || !what.is_empty(), "`{name}.{key}` has no documentation");
        let _ = write!(
            text,
            "\n`{what}{title}({}){result}`  \n{}\n",
            parameters.join(", "),
            about.trim().replace('\n', " ")
        );
    }
    text
}

#[test]
fn the_page_of_the_contract_is_the_contract() {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(root().join("wit")).unwrap();
    let mut page = String::from("# The contract `tunebox:method@0.1.0`\n\n");
    let _ = write!(page, "Generated from the files beside it; `BLESS=1 cargo test` rewrites it.\n\n");
    let released = folders("wit/released").join(", ");
    let _ = write!(page, "Released, and frozen in [`released/`](released/README.md): {released}.\n\n");
    for (name, world) in &resolve.packages[package].worlds {
        let world = &resolve.worlds[*world];
        let named = |(key, _): (&wit_parser::WorldKey, &WorldItem)| resolve.name_world_key(key);
        let imports: Vec<String> = world.imports.iter().map(named).collect();
        let exports: Vec<String> = world.exports.iter().map(named).collect();
        let _ = write!(page, "**World `{name}`.** {}", docs(&world.docs, name));
        let _ = write!(
            page,
            " Imports: {}. Exports: {}.\n\n",
            if imports.is_empty() { "nothing".into() } else { imports.join(", ") },
            exports.join(", ")
        );
    }
    let sections: Vec<String> =
        resolve.packages[package].interfaces.values().map(|id| section(&resolve, *id)).collect();
    page += &sections.join("\n");
    assert_file("wit/README.md", &page);
}

fn help(words: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tunebox")).args(words).arg("--help").env("COLUMNS", "100").output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_of_the_commands_is_their_help() {
    let overview = help(&[]);
    let commands =
        overview.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1).take_while(|line| !line.is_empty());
    // A line that goes on from the one above is indented further.
    let named = commands.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let names: Vec<String> =
        named.filter_map(|line| line.split(' ').next().map(str::to_owned)).filter(|n| n != "help").collect();
    assert!(names.len() >= 10, "{names:?}");
    let mut page = format!(
        "# The commands\n\nGenerated from `--help`; `BLESS=1 cargo test` rewrites it.\n\n```text\n{overview}\n```\n"
    );
    for name in names {
        let _ = write!(page, "\n## {name}\n\n```text\n{}\n```\n", help(&[&name]));
    }
    assert_file("runtime/cli/README.md", &page);
}

#[test]
fn the_readme_shows_the_method_as_it_is() {
    let source = std::fs::read_to_string(root().join("methods/lora/src/lib.rs")).unwrap();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let wanted = between(&readme, "method", &format!("```rust\n{}\n```\n", source.trim_end()));
    assert_file("README.md", &wanted);
}

#[test]
fn the_readme_lists_the_methods_by_what_their_components_say() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let wanted = between(&readme, "methods", &format!("{}\n", method_table::table(&root())));
    assert_file("README.md", &wanted);
}

/// The folders of `attacks/`, by name.
fn attacks() -> Vec<String> {
    folders("tests/attacks")
}

/// The folders in a folder of the repository, by name.
fn folders(parent: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(parent)).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = entries
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn every_row_of_the_wall_names_attacks_that_are_there() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, table) = readme.split_once("<!-- wall:begin -->\n").unwrap();
    let (table, _) = table.split_once("<!-- wall:end -->").unwrap();
    let (attacks, mut rows) = (attacks(), 0);
    for row in table.lines().skip(2) {
        let tried = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for name in tried.split(", ") {
            let name = name.trim_matches('`');
            assert!(attacks.iter().any(|attack| attack == name), "`{name}` is no folder of `tests/attacks`: {row}");
        }
        rows += 1;
    }
    assert!(rows >= 12, "the table has {rows} rows");
}

#[test]
fn the_page_of_the_attacks_is_what_their_folders_say() {
    let mut page = String::from(
        "# The attacks\n\nEach folder holds a hostile method and the end that it must come to; `tests/wall.rs` plays them all.\n\
         Generated from the folders; `BLESS=1 cargo test` rewrites it.\n\n| attack | what it does | its end |\n|---|---|---|\n",
    );
    for name in attacks() {
        let read = |file: &str| std::fs::read_to_string(root().join("tests/attacks").join(&name).join(file)).unwrap();
        let component = read("component.wat");
        let does = component.lines().next().and_then(|line| line.strip_prefix(";; ")).unwrap_or_default().to_owned();
        assert!(!does.is_empty(), "`{name}` does not say what it does in its first line");
        let expected = read("expected.txt");
        let end = expected.lines().next().unwrap_or_default().trim_start_matches("error[sandbox]: ");
        let _ = writeln!(page, "| `{name}` | {does} | {} |", end.replace('|', "\\|"));
    }
    assert_file("tests/attacks/README.md", &page);
}

#[test]
fn the_picture_of_a_run_is_of_the_first_walk() {
    let page = std::fs::read_to_string(root().join("examples/2-first-adapter/README.md")).unwrap();
    assert_file("examples/2-first-adapter/training.svg", &picture::of_first_block(&page));
}

#[test]
fn ci_calls_the_test_command_of_the_readme() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let script = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    let command =
        readme.lines().filter_map(|line| line.strip_prefix("$ ")).find(|line| line.contains("cargo test")).unwrap();
    assert_eq!(script.lines().last().unwrap().replace(" --locked", ""), command);
}
