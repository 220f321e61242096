//! Finds a Rust toolchain that can compile methods: one with the target's standard library installed, or one
//! that builds that library from its own source.
//!
//! Both kinds of machine are common: rustup can install the target, while a distribution's Rust often has only the
//! source of its library.

mod install;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use tunebox_foundation::explain::{Explain, Explanation};

pub use install::install;

use crate::Error;
use crate::constants::TARGET;

/// Where the standard library of the target comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// It is installed with the compiler.
    Installed,
    /// Cargo builds it from the compiler's own source.
    FromSource,
}

/// A Rust that can compile methods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// The cargo to call.
    pub cargo: PathBuf,
    /// The rustc in the same folder.
    pub rustc: PathBuf,
    /// The version that the compiler states, such as `1.95.0 (59807616e 2026-04-14)`.
    pub release: String,
    /// Where the standard library comes from.
    pub library: Library,
    /// The folder that `rustc --print sysroot` prints.
    pub sysroot: PathBuf,
    /// A linker from outside of the toolchain, if the toolchain needs one and has none of its own.
    pub linker: Option<PathBuf>,
}

impl Toolchain {
    /// Describes everything that decides the bytes of a build: compiler, target, standard library and linker, without
    /// any path of this machine. Runs the linker for its version if it is not the toolchain's own.
    pub fn name(&self) -> String {
        let library = match self.library {
            Library::Installed => "installed",
            Library::FromSource => "built from source",
        };
        let linker = self.linker.as_ref().map(|linker| format!(", linked by {}", linker_version(linker)));
        format!("rustc {}, {TARGET}, standard library {library}{}", self.release, linker.unwrap_or_default())
    }
}

/// Returns the toolchain that builds use, the first of [`all`]. Errors: there is no Rust, or none that can compile for
/// the target.
pub fn find() -> Result<Toolchain, Error> {
    if let Some(toolchain) = all().into_iter().next() {
        return Ok(toolchain);
    }
    let compilers: Vec<_> = cargo_and_rustc_pairs().iter().filter_map(|(_, rustc)| rustc_version(rustc)).collect();
    if compilers.is_empty() {
        let error = Explanation::new("build", "no Rust on this machine")
            .with_why("`cargo` is not on the path, and a method is compiled by it");
        return Err(error.with_hint("install Rust from https://rustup.rs, then `tunebox doctor --fix`").into());
    }
    let found = compilers.iter().map(|release| format!("rustc {release}")).collect::<Vec<_>>().join(" and ");
    let why = format!("{found} has neither the standard library of that target nor its source");
    Err(no_target(&why, &format!("`tunebox doctor --fix`, or `rustup target add {TARGET}`")))
}

/// Makes the error for a Rust that cannot compile for [`TARGET`].
pub(crate) fn no_target(why: &str, hint: &str) -> Error {
    let error = Explanation::new("build", "no WebAssembly target for this Rust");
    error.with_location(format!("cargo build --target {TARGET}")).with_why(why).with_hint(hint).into()
}

/// Returns every toolchain on this machine that can compile methods: first those with an installed library, then those
/// that build it from source. Runs the compilers to ask them.
pub fn all() -> Vec<Toolchain> {
    let candidates = cargo_and_rustc_pairs();
    let installed = candidates.iter().filter_map(|(cargo, rustc)| describe(cargo, rustc, Library::Installed));
    let from_source = candidates.iter().filter_map(|(cargo, rustc)| describe(cargo, rustc, Library::FromSource));
    installed.chain(from_source).collect()
}

/// Returns lines for a person: the name of each toolchain, or what is missing and why.
pub fn report() -> Vec<String> {
    match find() {
        Ok(_) => all().iter().map(Toolchain::name).collect(),
        Err(error) => [Some(error.to_string()), error.why()].into_iter().flatten().collect(),
    }
}

/// Describes the toolchain of a cargo and a rustc that gets the standard library in the way `library`. `None` if the
/// library, or its source, is not installed, or if no linker is found. Runs rustc.
fn describe(cargo: &Path, rustc: &Path, library: Library) -> Option<Toolchain> {
    let (release, sysroot) = (rustc_version(rustc)?, PathBuf::from(first_output_line(rustc, &["--print", "sysroot"])?));
    let linker = match library {
        Library::Installed => {
            has_standard_library(&sysroot.join("lib/rustlib").join(TARGET).join("lib")).then_some(None)?
        }
        Library::FromSource => {
            sysroot.join("lib/rustlib/src/rust/library/Cargo.lock").is_file().then_some(())?;
            if find_bundled_linker(&sysroot).is_some() { None } else { Some(find_other_linker()?) }
        }
    };
    Some(Toolchain { cargo: cargo.into(), rustc: rustc.into(), release, library, sysroot, linker })
}

/// Whether a folder holds a compiled standard library, a file `libstd-…`.
fn has_standard_library(folder: &Path) -> bool {
    folder
        .read_dir()
        .into_iter()
        .flatten()
        .flatten()
        .any(|file| file.file_name().to_string_lossy().starts_with("libstd-"))
}

/// Finds the `rust-lld` in a toolchain's own folder. `None` if it has none.
fn find_bundled_linker(sysroot: &Path) -> Option<PathBuf> {
    let hosts = sysroot.join("lib/rustlib").read_dir().ok()?;
    hosts.flatten().map(|host| host.path().join("bin").join("rust-lld")).find(|linker| linker.is_file())
}

/// Finds a linker for a toolchain without one: `rust-lld` of another toolchain, else `rust-lld` or `wasm-ld` on `PATH`.
fn find_other_linker() -> Option<PathBuf> {
    let carried = cargo_and_rustc_pairs().into_iter().find_map(|(_, rustc)| {
        let sysroot = first_output_line(&rustc, &["--print", "sysroot"])?;
        find_bundled_linker(Path::new(&sysroot))
    });
    carried.or_else(|| ["rust-lld", "wasm-ld"].into_iter().find_map(find_on_path))
}

/// Returns the paths of cargo and rustc, as (cargo, rustc), in the folders of `PATH`, in its order, and then in
/// `/usr/bin`. Skips a folder that lacks one of them, and a cargo that is the same program as one found before. Runs
/// neither.
fn cargo_and_rustc_pairs() -> Vec<(PathBuf, PathBuf)> {
    let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
    for folder in path_folders().into_iter().chain([PathBuf::from("/usr/bin")]) {
        let pair = (folder.join("cargo"), folder.join("rustc"));
        let known = found.iter().any(|(cargo, _)| is_same_program(cargo, &pair.0));
        if pair.0.is_file() && pair.1.is_file() && !known {
            found.push(pair);
        }
    }
    found
}

/// Finds a program on `PATH`. `None` if it is not there.
fn find_on_path(name: &str) -> Option<PathBuf> {
    find_program(name, path_folders())
}

/// Returns the folders of `PATH`.
pub(crate) fn path_folders() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect()
}

/// Returns the path of the first program of this name in the folders, in their order. `None` if no folder has it.
pub(crate) fn find_program(name: &str, folders: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Whether two paths lead to the same file and end in the same name. Programs of rustup are one file under several
/// names.
fn is_same_program(left: &Path, right: &Path) -> bool {
    matches!((left.canonicalize(), right.canonicalize()), (Ok(left), Ok(right)) if left == right)
        && left.file_name() == right.file_name()
}

/// Returns the version that rustc states, such as `1.95.0 (59807616e 2026-04-14)`, without what a distribution adds
/// behind it. `None` if it cannot be run or prints no line that begins with `rustc `.
fn rustc_version(rustc: &Path) -> Option<String> {
    let line = first_output_line(rustc, &["--version"])?;
    let words = line.strip_prefix("rustc ")?;
    // A distribution adds how it was built, which changes no bytes.
    let end = words.find(')').map_or(words.len(), |end| end + 1);
    Some(words[..end].to_owned())
}

/// Runs a linker and returns the version that it states, up to the first `(`, such as `LLD 14.0.6`; `an unknown linker`
/// if it states none.
fn linker_version(linker: &Path) -> String {
    let line = first_output_line(linker, &["-flavor", "wasm", "--version"])
        .or_else(|| first_output_line(linker, &["--version"]));
    let line = line.unwrap_or_else(|| "an unknown linker".to_owned());
    line.split_once('(').map_or(line.as_str(), |(release, _)| release).trim().to_owned()
}

/// Runs a program and returns the first line of its stdout, trimmed; an empty text if it prints nothing. `None` if it
/// cannot be run, fails or prints what is not UTF-8.
pub(crate) fn first_output_line(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = command(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success()).then(|| text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Prepares a call of a program without the environment variables by which an outer cargo would change what the program
/// builds: `CARGO`, `RUSTC`, `RUSTFLAGS`, `CARGO_ENCODED_RUSTFLAGS`, the two wrappers of rustc, and those that begin
/// with `CARGO_PKG_`, `CARGO_MANIFEST_`, `CARGO_PROFILE_`, `CARGO_BUILD_`, `CARGO_TARGET_WASM32_` or `CARGO_BIN_`.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if is_set_by_outer_cargo(&name) {
            command.env_remove(name);
        }
    }
    command
}

/// Whether [`command`] removes an environment variable, because it would change what a nested cargo builds.
fn is_set_by_outer_cargo(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    let exact = ["CARGO", "RUSTC", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"];
    let families =
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_PROFILE_", "CARGO_BUILD_", "CARGO_TARGET_WASM32_", "CARGO_BIN_"];
    exact.contains(&name.as_ref()) || families.iter().any(|family| name.starts_with(family))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_toolchain_holds_no_path() {
        for toolchain in all() {
            assert!(!toolchain.name().contains('/'), "{}", toolchain.name());
        }
    }

    #[test]
    fn flags_of_an_outer_cargo_do_not_reach_the_inner_one() {
        assert!(is_set_by_outer_cargo(&"CARGO_PROFILE_RELEASE_LTO".into()));
        assert!(is_set_by_outer_cargo(&"RUSTFLAGS".into()));
        assert!(!is_set_by_outer_cargo(&"CARGO_HOME".into()));
        assert!(!is_set_by_outer_cargo(&"CARGO_TARGET_DIR".into()));
    }
}
