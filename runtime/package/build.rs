//! Finds the methods that stand beside the runtime, by folder, and lists them for embedding.
//! Nothing names them: a folder `methods/<name>` with a `<name>.wasm` in it is a built-in method, and
//! one below `methods/verifiers` a built-in verifier.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let methods = here.join("../../methods");
    println!("cargo:rerun-if-changed={}", methods.display());
    let output = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::write(output.join("builtin.rs"), list(&methods)?)?;
    fs::write(output.join("verifiers.rs"), list(&methods.join("verifiers"))?)
}

/// The components in the folders of a folder, as the source of a list.
fn list(parent: &Path) -> io::Result<String> {
    let mut list = String::from("&[\n");
    for name in folders(parent)? {
        let component = parent.join(&name).join(format!("{name}.wasm"));
        println!("cargo:rerun-if-changed={}", component.display());
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
