//! The code beside what is said of it: who knows whom, what files are called, how long they are, where they are unsafe.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::golden::root;

/// Who may know whom. An arrow that is not here is a mistake.
const ARROWS: &[(&str, &[&str])] = &[
    ("tunebox-explain-derive", &[]),
    ("tunebox-foundation", &["tunebox-explain-derive"]),
    ("tunebox-ranks", &["tunebox-foundation"]),
    ("tunebox-compute", &["tunebox-foundation"]),
    ("tunebox-model", &["tunebox-compute", "tunebox-foundation"]),
    ("tunebox-contract", &[]),
    ("tunebox-sandbox", &["tunebox-model", "tunebox-compute", "tunebox-foundation"]),
    ("tunebox-package", &["tunebox-foundation"]),
    (
        "tunebox-training",
        &[
            "tunebox-package",
            "tunebox-ranks",
            "tunebox-sandbox",
            "tunebox-model",
            "tunebox-compute",
            "tunebox-foundation",
        ],
    ),
    (
        "tunebox-cli",
        &[
            "tunebox-ranks",
            "tunebox-training",
            "tunebox-package",
            "tunebox-sandbox",
            "tunebox-model",
            "tunebox-compute",
            "tunebox-foundation",
        ],
    ),
    (
        "tunebox-fuzz",
        &[
            "tunebox-training",
            "tunebox-package",
            "tunebox-sandbox",
            "tunebox-model",
            "tunebox-compute",
            "tunebox-foundation",
        ],
    ),
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
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version=1", "--no-deps", "--manifest-path"]).arg(root().join("Cargo.toml"));
    let metadata: Value = serde_json::from_slice(&cargo.output().unwrap().stdout).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let normal = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap();
        all.iter().filter(|d| d["kind"].is_null()).map(name).collect()
    };
    metadata["packages"].as_array().unwrap().iter().map(|package| (name(package), normal(package))).collect()
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

fn visit_files(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        visit(&path);
        if path.is_dir() && !path.ends_with("target") {
            visit_files(&path, visit);
        }
    }
}

#[test]
fn nothing_is_called_by_a_name_that_says_nothing() {
    let empty = ["common", "core", "utils", "util", "helpers", "helper", "misc", "extras"];
    for room in ["runtime", "sdk", "methods", "tests"] {
        visit_files(&root().join(room), &mut |path| {
            let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
            assert!(!empty.contains(&stem), "`{}` says nothing", path.display());
        });
    }
}

#[test]
fn files_stay_small_and_say_what_they_are_for() {
    for room in ["runtime", "sdk", "methods", "tests", "examples"] {
        visit_files(&root().join(room), &mut |path| {
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
    ("runtime/compute/patches/cudarc/src/driver.rs", 2),
    ("runtime/compute/src/accelerator/cuda/compile.rs", 8),
    ("runtime/compute/src/accelerator/cuda/context.rs", 23),
    ("runtime/compute/src/accelerator/cuda/energy.rs", 4),
    ("runtime/compute/src/accelerator/cuda/launch.rs", 3),
    ("runtime/compute/src/accelerator/cuda/library.rs", 4),
    ("runtime/compute/src/accelerator/cuda/sys.rs", 2),
    ("runtime/compute/src/accelerator/metal.rs", 3),
    ("runtime/compute/src/allocator.rs", 1),
    ("runtime/compute/src/fused/integer/x86/avx2.rs", 1),
    ("runtime/compute/src/fused/integer/x86/avx512.rs", 1),
    ("runtime/compute/src/fused/prefetch.rs", 1),
    ("runtime/compute/src/fused/product.rs", 1),
    ("runtime/compute/src/fused/product/bf16/amx.rs", 4),
    ("runtime/compute/src/fused/product/bf16/kernel.rs", 4),
    ("runtime/compute/src/fused/product/bf16/pack.rs", 4),
    ("runtime/compute/src/fused/product/tile.rs", 1),
    ("runtime/model/src/weights/mapped.rs", 2),
    ("runtime/ranks/src/mpi/functions.rs", 10),
    ("runtime/ranks/src/mpi/library.rs", 7),
    ("runtime/ranks/src/mpi/mod.rs", 7),
    ("runtime/sandbox/src/child.rs", 1),
    ("runtime/sandbox/src/confinement/linux.rs", 2),
    ("runtime/sandbox/src/precompiled.rs", 1),
];

#[test]
fn unsafe_code_is_where_the_list_says_and_says_why_it_is_sound() {
    let mut found = Vec::new();
    for room in ["runtime", "sdk", "methods"] {
        visit_files(&root().join(room), &mut |path| {
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
