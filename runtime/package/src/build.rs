//! Builds a component from a method folder: compiles the source, wraps the core module as a component, puts the
//! manifest at the component's top level, checks the result and writes it.
//!
//! For a method in Rust, the same source and toolchain give the same bytes, wherever the folder lies.

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

use self::failure::{build_error, no_method_error};
use crate::file_lock::lock_exclusive;
use crate::toolchain::{self, Toolchain};
use crate::{Error, Manifest, files};

pub use diagnosis::Warning;
pub use folder::expect_method;
pub(crate) use folder::methods_in;
pub use messages::{cargo_in, find_library_tests};
pub use record::{Record, is_same};

/// The options of a build.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The toolchain; the one that [`toolchain::find`] finds when none is given.
    pub toolchain: Option<Toolchain>,
    /// The file to write; `<folder>/<name>.wasm` when none is given.
    pub output: Option<PathBuf>,
    /// Whether a component in Rust keeps function names and line numbers, so that errors and profiles show them.
    pub debug: bool,
    /// Whether cargo uses no network: a dependency that is not on this machine is then an error.
    pub offline: bool,
    /// Whether to compile everything anew in an empty target folder, since another program may have put other code into
    /// the usual one.
    pub clean: bool,
}

/// A method that was built.
#[derive(Debug, Clone)]
pub struct Built {
    /// The component file; empty if [`compile`] built the component in memory only.
    pub path: PathBuf,
    /// The manifest of the method.
    pub manifest: Manifest,
    /// The full names of the interfaces that the component imports.
    pub imports: Vec<String>,
    /// The bytes of the component.
    pub bytes: Vec<u8>,
    /// The compiler's warnings about the method's own source.
    pub warnings: Vec<Warning>,
}

/// A progress event of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The build waits for another one, which holds the lock of this file.
    Waiting(&'a Path),
    /// A dependency of the method with this name was compiled; not sent for crates that were up to date.
    Compiled(&'a str),
    /// The types of a method in Python were not checked, for this reason.
    TypesNotChecked(&'a str),
}

/// The function that gets the events of a build.
pub type Watch<'a> = dyn FnMut(Event<'_>) + 'a;

/// How long to wait for another build. The longest ones also compile the standard library, on a busy machine.
const BUILD_LOCK_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Takes the exclusive lock of the open file `file` at `path`; dropping the returned file releases it. If another build
/// holds the lock, sends `Event::Waiting` to `watch` once and waits for up to 15 minutes. Errors: the file cannot be
/// locked, or [`Error::Held`] if the other build keeps the lock for longer.
fn wait_for_build(file: File, path: &Path, watch: &mut Watch<'_>) -> Result<File, Error> {
    lock_exclusive(file, path, Instant::now() + BUILD_LOCK_TIMEOUT, || watch(Event::Waiting(path)))
}

/// Builds a method folder, or wraps the core module file that `folder` names, and writes the component atomically to
/// [`Options::output`], by default to `<name>.wasm` in the folder or beside the file; `<name>` is the method's name.
/// Replaces an existing file, but does not touch one that has these bytes already.
///
/// Takes a second if the SDK is compiled already, some seconds the first time, two minutes where the standard library
/// has to be built. `watch` gets the events of the build. Errors: those of [`compile`], an output path that is the
/// module file itself, or a file that cannot be written.
pub fn build(folder: &Path, options: &Options, watch: &mut Watch<'_>) -> Result<Built, Error> {
    let built = compile(folder, options, watch)?;
    let path = output_path(folder, options.output.as_deref(), &built.manifest.name)?;
    files::replace_if_changed(&path, &built.bytes)?;
    Ok(Built { path, ..built })
}

/// Returns the file to write: `output` if given, else `<name>.wasm` in `folder`, or beside it if `folder` is a module
/// file. `name` is the method's name. Writes nothing. Errors: the result resolves to the same file as `folder`, so that
/// the component would overwrite its module.
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

/// Builds a component in memory without writing the component file. A folder holds a method, in Python if it has
/// `pyproject.toml` and no `Cargo.toml`, else in Rust, and is compiled. A file is a core module of another compiler,
/// which is wrapped and must hold the contract's types and a manifest. Compiling a folder still writes cargo's own
/// files, the SDK and the files for editors. `options` matter only for a method in Rust, and [`Options::output`] never.
/// `watch` gets the events of the build. Errors: no method, no toolchain, source that does not compile, a manifest or
/// an import that breaks a rule.
pub fn compile(folder: &Path, options: &Options, watch: &mut Watch<'_>) -> Result<Built, Error> {
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
    Ok(Built { warnings, ..componentize::componentize(&module, &record)? })
}

/// Returns the file that [`build`] writes for a folder by default, `<folder>/<name>.wasm`, without compiling. `<name>`
/// is the package's name in `Cargo.toml`, or the project's in `pyproject.toml`. Errors: the folder holds no method, or
/// that file cannot be parsed or has no name.
pub fn component_path(folder: &Path) -> Result<PathBuf, Error> {
    expect_method(folder)?;
    if python::is_python(folder) {
        return Ok(simplify(&folder.join(python::component_name(folder)?)));
    }
    let text = files::read_text(&folder.join("Cargo.toml"))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| no_method_error(folder, error.message()))?;
    match table.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str) {
        Some(name) => Ok(simplify(&folder.join(format!("{name}.wasm")))),
        None => Err(no_method_error(folder, "it names no package")),
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
            files::replace_if_changed(&path, bytes).unwrap();
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
