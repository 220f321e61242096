//! Puts into the program what stands beside the runtime: the components of the methods and their source, the SDK that
//! they are written with, and what a new method begins as.
//!
//! Nothing names them: a folder `methods/<name>` with a `<name>.wasm` in it is a built-in method, one below
//! `methods/verifiers` a built-in verifier; a folder of `sdk` with a `Cargo.toml` is a crate of the SDK, and every file
//! below `sdk/template/<language>` is one of a new method.

#[path = "build/bindings.rs"]
mod bindings;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// A file: where it is, and what it is called in the program.
type Named = (PathBuf, String);

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let root = here.join("../..").canonicalize()?;
    let (methods, sdk) = (root.join("methods"), root.join("sdk"));
    for watched in ["methods", "sdk", "wit", "Cargo.toml"] {
        println!("cargo:rerun-if-changed={}", root.join(watched).display());
    }
    let output = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    let write = |name: &str, text: String| fs::write(output.join(name), text);
    write("builtin.rs", list(&methods)?)?;
    write("verifiers.rs", list(&methods.join("verifiers"))?)?;
    write("sources.rs", sources(&[methods.join("verifiers"), methods])?)?;
    write("bindings.rs", bindings::module(&root.join("wit"))?)?;
    write("sdk.toml", bindings::manifest(&fs::read_to_string(sdk.join("rust/Cargo.toml"))?)?)?;
    write("python.rs", embedded(&python(&sdk.join("python"))?))?;
    write("sdk.rs", embedded(&toolkit(&root, &sdk, &output)?))?;
    write("template.rs", embedded(&below(&sdk.join("template"), "")?))
}

/// The components in the folders of a folder, as the source of a list.
fn list(parent: &Path) -> io::Result<String> {
    let mut list = String::from("&[\n");
    for name in folders(parent)? {
        let component = parent.join(&name).join(format!("{name}.wasm"));
        if component.is_file() {
            list.push_str(&format!(
                "    Builtin {{ name: {name:?}, bytes: include_bytes!({:?}) }},\n",
                component.canonicalize()?
            ));
        }
    }
    list.push_str("]\n");
    Ok(list)
}

/// What the methods and verifiers are made of, as the source of a list.
fn sources(parents: &[PathBuf]) -> io::Result<String> {
    let mut list = String::from("&[\n");
    for parent in parents {
        for name in folders(parent)? {
            let folder = parent.join(&name);
            if folder.join("Cargo.toml").is_file() {
                let mut files = below(&folder.join("src"), "src/")?;
                files.extend(["Cargo.toml", "README.md"].map(|file| (folder.join(file), file.to_owned())));
                files.retain(|(path, _)| path.is_file());
                // Writing to a `String` cannot fail.
                let _ = writeln!(list, "Source {{ name: {name:?}, files: {} }},", embedded(&files));
            }
        }
    }
    list.push_str("]\n");
    Ok(list)
}

/// The crates of the SDK, the contract that they are generated from, and the manifest that they share. The bindings of a
/// component are written out, in the output.
fn toolkit(root: &Path, sdk: &Path, output: &Path) -> io::Result<Vec<Named>> {
    let mut files = vec![(root.join("Cargo.toml"), "Cargo.toml".to_owned())];
    // The folder of the contract in the SDK is a link.
    let contract = below(&root.join("wit"), "sdk/rust/wit/")?;
    files.extend(contract.into_iter().filter(|(_, name)| is_of_the_contract(name)));
    for name in folders(sdk)? {
        let folder = sdk.join(&name);
        if folder.join("Cargo.toml").is_file() {
            let tests = format!("sdk/{name}/tests/");
            let files_of_it = below(&folder, &format!("sdk/{name}/"))?;
            files.extend(files_of_it.into_iter().filter(|(_, name)| !name.starts_with(&tests)));
        }
    }
    for (path, name) in &mut files {
        match name.as_str() {
            "sdk/rust/src/bindings.rs" => *path = output.join("bindings.rs"),
            "sdk/rust/Cargo.toml" => *path = output.join("sdk.toml"),
            _ => {}
        }
    }
    Ok(files)
}

/// The package `tunebox` of Python, its stubs and those of the contract, and the page about them, as an editor finds them.
fn python(sdk: &Path) -> io::Result<Vec<Named>> {
    let mut files = below(&sdk.join("stubs"), "")?;
    files.extend(below(&sdk.join("tunebox"), "tunebox/")?);
    files.retain(|(_, name)| name.ends_with(".py") || name.ends_with(".pyi"));
    files.push((sdk.join("README.md"), "README.md".to_owned()));
    Ok(files)
}

/// Not the copies of earlier versions, nor the page about it.
fn is_of_the_contract(name: &str) -> bool {
    name.ends_with(".wit") && name.matches('/').count() == 3
}

/// Files as the source of a list of names and contents.
fn embedded(files: &[Named]) -> String {
    let mut list = String::from("&[\n");
    for (path, name) in files {
        let _ = writeln!(list, "    ({name:?}, include_bytes!({path:?})),");
    }
    list.push_str("]\n");
    list
}

/// Every file below a folder, in order, without what a build or an editor leaves.
fn below(folder: &Path, prefix: &str) -> io::Result<Vec<Named>> {
    let mut files = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name == "target" || name.starts_with('.') || entry.file_type()?.is_symlink() {
            continue;
        }
        if entry.file_type()?.is_dir() {
            files.extend(below(&entry.path(), &format!("{prefix}{name}/"))?);
        } else {
            files.push((entry.path(), format!("{prefix}{name}")));
        }
    }
    Ok(files)
}

/// The names of the folders in a folder, in order.
fn folders(parent: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort();
    Ok(names)
}
