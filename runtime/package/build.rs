//! Puts into the program what stands beside the runtime: the components of the methods and their source, the SDK that
//! they are written with, and what a new method begins as.
//!
//! No list names them: a folder `methods/<name>` with a `<name>.wasm` in it is a built-in method, such a folder in
//! `methods/verifiers` is a built-in verifier, a folder of `sdk` with a `Cargo.toml` is a crate of the SDK, and every
//! file below `sdk/template/<language>` is a file of a new method.

#[path = "build/bindings.rs"]
mod bindings;
#[path = "build/embed.rs"]
mod embed;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use embed::{Named, below, embedded, slice};

/// Writes the files that the crate includes to `OUT_DIR`: `builtin.rs` and `verifiers.rs` (the built-in methods and
/// verifiers, with their source), `bindings.rs`, `sdk.toml` and `contract.py` (generated files of the SDKs),
/// and `python.rs`, `sdk.rs` and `template.rs` (files to embed). Cargo runs it again if `methods`, `sdk`, `wit` or the
/// workspace's `Cargo.toml` changes.
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
    write("bindings.rs", bindings::module(&root.join("wit"))?)?;
    write("sdk.toml", bindings::manifest(&fs::read_to_string(sdk.join("rust/Cargo.toml"))?)?)?;
    write("contract.py", bindings::python(&root.join("wit"))?)?;
    write("python.rs", embedded(&python(&sdk.join("python"), &output)?))?;
    write("sdk.rs", embedded(&toolkit(&root, &sdk, &output)?))?;
    write("template.rs", embedded(&below(&sdk.join("template"), "")?))
}

/// Returns Rust source for a slice of `Builtin`: one for each folder `<name>` in `parent` that holds `<name>.wasm`, by
/// name. Its source are the files below `src`, `Cargo.toml`, and `README.md` if there is one. Folders without
/// `<name>.wasm` are left out. Errors: such a folder without `src`.
fn list(parent: &Path) -> io::Result<String> {
    let mut list = Vec::new();
    for name in folders(parent)? {
        let folder = parent.join(&name);
        let component = folder.join(format!("{name}.wasm"));
        if component.is_file() {
            let mut files = below(&folder.join("src"), "src/")?;
            files.extend(["Cargo.toml", "README.md"].map(|file| (folder.join(file), file.to_owned())));
            files.retain(|(path, _)| path.is_file());
            let (path, source) = (component.canonicalize()?, embedded(&files));
            list.push(format!("Builtin {{ name: {name:?}, bytes: include_bytes!({path:?}), source: {source} }},\n"));
        }
    }
    Ok(slice(list))
}

/// Lists the files to embed as the SDK: the workspace's `Cargo.toml`, the `.wit` files directly in `wit` as
/// `sdk/rust/wit/<file>`, and every file of each folder of `sdk` with a `Cargo.toml`, except those in its `tests`. The
/// contents of `sdk/rust/src/bindings.rs` and `sdk/rust/Cargo.toml` come from the folder `output`, where this script
/// has written the generated ones.
fn toolkit(root: &Path, sdk: &Path, output: &Path) -> io::Result<Vec<Named>> {
    let mut files = vec![(root.join("Cargo.toml"), "Cargo.toml".to_owned())];
    // The folder of the contract in the SDK is a link.
    let contract = below(&root.join("wit"), "sdk/rust/wit/")?;
    // Earlier versions of the contract are in folders of their own.
    let is_present = |name: &str| name.ends_with(".wit") && name.matches('/').count() == 3;
    files.extend(contract.into_iter().filter(|(_, name)| is_present(name)));
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

/// Lists the files of the Python SDK to embed: the `.py` and `.pyi` files of `stubs` and `native` (named by their paths
/// there) and of `tunebox` (below `tunebox/`), `README.md` and `COOKBOOK.md`. The module `tunebox.contract` comes from
/// the folder `output`, where this script has written it.
fn python(sdk: &Path, output: &Path) -> io::Result<Vec<Named>> {
    let mut files = below(&sdk.join("stubs"), "")?;
    files.extend(below(&sdk.join("native"), "")?);
    files.extend(below(&sdk.join("tunebox"), "tunebox/")?);
    files.push((output.join("contract.py"), "tunebox/contract.py".to_owned()));
    files.retain(|(_, name)| name.ends_with(".py") || name.ends_with(".pyi"));
    files.extend(["README.md", "COOKBOOK.md"].map(|page| (sdk.join(page), page.to_owned())));
    Ok(files)
}

/// Returns the sorted names of the folders directly in `parent`, without names that are not UTF-8.
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
