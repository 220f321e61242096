//! The table of methods in the README, made from what each component says about itself.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// One row a folder of `methods/` with a component: what it does, on which records, with which imports, in how many lines.
pub(crate) fn table(root: &Path) -> String {
    let mut text = String::from("| method | does | records | may use | lines |\n|---|---|---|---|---|\n");
    for name in names(root) {
        let facts = inspect(&name);
        let said = |field: &str| facts["manifest"][field].as_str().unwrap_or_default().to_owned();
        let imports = facts["imports"].as_array().into_iter().flatten().filter_map(|import| import.as_str());
        let interfaces: Vec<&str> = imports
            .filter_map(|import| import.split_once('/')?.1.split('@').next())
            .filter(|interface| *interface != "types")
            .collect();
        let _ = writeln!(
            text,
            "| [`{name}`](methods/{name}/README.md) | {} | {} | {} | {} |",
            said("description"),
            said("shape"),
            interfaces.join(", "),
            lines(&root.join("methods").join(&name).join("src")),
        );
    }
    text
}

fn names(root: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(root.join("methods")).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = folders
        .filter(|folder| folder.path().join("Cargo.toml").is_file())
        .map(|folder| folder.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn inspect(name: &str) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_tunebox")).args(["inspect", name, "--json"]).output().unwrap();
    assert!(output.status.success(), "`{name}`: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Lines of a folder's sources, blank ones and comments too.
fn lines(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| std::fs::read_to_string(path).unwrap().lines().count()).sum()
}
