//! From a method folder to a component: compile, wrap, lift the manifest, check, write.
//!
//! The same source and toolchain give the same bytes, wherever the folder lies; for Rust, that is.

pub mod approval;
mod cargo;
mod componentize;
mod diagnosis;
mod failure;
mod folder;
mod messages;
pub mod python;
mod record;
mod sdk;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tunebox_foundation::paths::simplify;

use self::failure::{build_error, no_package};
use crate::file_lock::lock_exclusive;
use crate::toolchain::{self, Toolchain};
use crate::{Error, Manifest, files};

pub use diagnosis::Warning;
pub use folder::expect_method;
pub(crate) use folder::methods_in;
pub use messages::cargo_in;
pub use record::{Record, is_same};

/// How to build.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The toolchain; the one that [`toolchain::find`] finds when none is given.
    pub toolchain: Option<Toolchain>,
    /// The file to write; `<folder>/<name>.wasm` when none is given.
    pub output: Option<PathBuf>,
    /// Whether a method in Rust keeps names and lines, so that faults and profiles show them.
    pub debug: bool,
    /// Whether crates that are not here yet stay where they are.
    pub offline: bool,
    /// Whether nothing counts that was compiled before: another program that writes into the target folder may have left it there.
    pub afresh: bool,
}

/// A method that was built and written.
#[derive(Debug, Clone)]
pub struct Built {
    /// The file.
    pub path: PathBuf,
    /// What the method says about itself.
    pub manifest: Manifest,
    /// The full names of the interfaces that it asks for.
    pub imports: Vec<String>,
    /// The component.
    pub bytes: Vec<u8>,
    /// What the compiler warned of in its source.
    pub warnings: Vec<Warning>,
}

/// A component, not yet written.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// What the method says about itself.
    pub manifest: Manifest,
    /// The full names of the interfaces that it asks for.
    pub imports: Vec<String>,
    /// The component.
    pub bytes: Vec<u8>,
    /// What the compiler warned of in its source.
    pub warnings: Vec<Warning>,
}

/// What a build tells while it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// Another build holds the lock of this file, and is waited for.
    Waiting(&'a Path),
    /// A crate beside the method had to be compiled, and is.
    Compiled(&'a str),
}

/// Who hears of it.
pub type Watch<'a> = dyn FnMut(Event<'_>) + 'a;

/// How long another build may take: the longest compile the standard library as well, on machines with much to do.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Takes the exclusive lock of the open file `file` at `path`; dropping the returned file releases it. If another build
/// holds the lock, sends `Event::Waiting` to `watch` once and waits for up to 15 minutes. Errors: the file cannot be
/// locked, or the other build does not end in time.
fn wait_for_build(file: File, path: &Path, watch: &mut Watch<'_>) -> Result<File, Error> {
    lock_exclusive(file, path, Instant::now() + PATIENCE, || watch(Event::Waiting(path)))
}

/// Builds a method folder (or wraps a core module file) and writes the component atomically to [`Options::output`], by
/// default to `<folder>/<name>.wasm`. A file that has these bytes already is not touched.
///
/// Costs a compilation: a second when the SDK is compiled already, some seconds the first time, two minutes where the
/// standard library has to be built. Errors: no toolchain, source that does not compile, a method that asks for more
/// than the contract, a disk that is full. `watch` gets the events of the build.
pub fn build(folder: &Path, options: &Options, watch: &mut Watch<'_>) -> Result<Built, Error> {
    let Compiled { manifest, imports, bytes, warnings } = compile(folder, options, watch)?;
    let path = output_path(folder, options.output.as_deref(), &manifest.name)?;
    files::update(&path, &bytes)?;
    Ok(Built { path, manifest, imports, bytes, warnings })
}

/// Returns the file to write: `output` if given, else `<name>.wasm` in the method's folder, or beside the module if
/// `folder` is a module file. Errors: the component would overwrite that module.
fn output_path(folder: &Path, output: Option<&Path>, name: &str) -> Result<PathBuf, Error> {
    let path = match output {
        Some(path) => path.to_owned(),
        None if folder.is_file() => folder.with_file_name(format!("{name}.wasm")),
        None => simplify(&folder.join(format!("{name}.wasm"))),
    };
    match (path.canonicalize(), folder.canonicalize()) {
        (Ok(there), Ok(module)) if there == module => {
            let what = format!("the component would be written over its own module, `{}`", path.display());
            Err(build_error(what, "name another file with `--out`"))
        }
        _ => Ok(path),
    }
}

/// Builds a component in memory without writing it: wraps `folder` if it is a core module file that another compiler
/// made, which must hold the contract's types and a manifest, else compiles the method in it, in Python or Rust. Cargo's
/// own files, the SDK and the files for editors are written. `watch` gets the events of the build. Errors: no method, no
/// toolchain, source that does not compile, a manifest or an import that breaks a rule.
pub fn compile(folder: &Path, options: &Options, watch: &mut Watch<'_>) -> Result<Compiled, Error> {
    if folder.is_file() {
        let module = files::read(folder)?;
        let (toolchain, source) = ("a module given".to_owned(), crate::digest::sha256(&module));
        let record = Record { toolchain, source, debug: false };
        return componentize::componentize(&module, &record);
    }
    expect_method(folder)?;
    if python::is_python(folder) {
        return python::compile(folder, watch);
    }
    let toolchain = match &options.toolchain {
        Some(toolchain) => toolchain.clone(),
        None => toolchain::find()?,
    };
    let (name, source) = (toolchain.name(), crate::digest::source(folder)?);
    let record = Record { toolchain: name, source, debug: options.debug };
    let (module, warnings) = cargo::build(folder, &toolchain, options, watch)?;
    let compiled = componentize::componentize(&module, &record)?;
    Ok(Compiled { warnings, ..compiled })
}

/// Returns the file that [`build`] writes for a folder by default, `<folder>/<name>.wasm`, without compiling. Errors:
/// the folder holds no method, or its `Cargo.toml` or `pyproject.toml` has no name.
pub fn component_path(folder: &Path) -> Result<PathBuf, Error> {
    expect_method(folder)?;
    if python::is_python(folder) {
        return Ok(simplify(&folder.join(python::component_name(folder)?)));
    }
    let text = files::read_text(&folder.join("Cargo.toml"))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| no_package(folder, error.message()))?;
    match table.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str) {
        Some(name) => Ok(simplify(&folder.join(format!("{name}.wasm")))),
        None => Err(no_package(folder, "it names no package")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_over_module(path: Result<PathBuf, Error>) -> bool {
        path.unwrap_err().to_string().starts_with("the component would be written over its own module")
    }

    #[test]
    fn a_module_is_not_overwritten_however_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("calm.wasm");
        std::fs::write(&module, "").unwrap();
        let (same, other) = (folder.path().join("./calm.wasm"), folder.path().join("calmer.wasm"));
        assert!(is_over_module(output_path(&module, Some(&same), "calm")));
        assert!(is_over_module(output_path(&module, None, "calm")));
        assert_eq!(output_path(&module, None, "calmer").unwrap(), other);
        assert_eq!(output_path(folder.path(), None, "calm").unwrap(), module);
    }

    #[test]
    fn what_is_there_already_keeps_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calm.wasm");
        let written = |bytes: &[u8]| {
            files::update(&path, bytes).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
            std::fs::metadata(&path).unwrap().modified().unwrap()
        };
        written(b"one");
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(written(b"one"), long_ago);
        assert_ne!(written(b"two"), long_ago);
    }
}
