//! Compiles a method folder with cargo.
//!
//! The cargo profile is always this program's, whatever the folder's workspace says. No compiler flag of the
//! environment reaches the compiler, and no path of this machine gets into the module. Cargo builds into the subfolder
//! `guest` of the target folder, so that a build inside `cargo test` does not wait for the lock of the outer cargo. If
//! the method's `Cargo.toml` takes the SDK from the expected path, this program writes its own SDK there (see
//! `sources`); `Cargo.lock` names no source of such a crate.

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::diagnosis::{Warning, explain, warnings};
use super::failure::{build_error, no_method_error};
use super::messages::{cargo_in, compiled_crate, is_of_package, list_items, parse_messages, run, text_field};
use super::sdk::write_sdk;
use super::{Event, Options, Watch, wait_for_build};
use crate::constants::TARGET;
use crate::toolchain::{Library, Toolchain};
use crate::{Error, files, sources};

/// The settings of the cargo profile `method`: optimized for size, one codegen unit, no unwinding.
const PROFILE: [&str; 5] = [
    r#"profile.method.inherits="release""#,
    r#"profile.method.opt-level="s""#,
    "profile.method.lto=true",
    "profile.method.codegen-units=1",
    r#"profile.method.panic="abort""#,
];

/// The profile settings of a component to publish: without function names and line numbers.
const STRIPPED: [&str; 2] = ["profile.method.strip=true", "profile.method.debug=false"];

/// The profile settings with [`Options::debug`]: function names and line numbers beside the same code.
const NAMED: [&str; 2] = ["profile.method.strip=false", r#"profile.method.debug="line-tables-only""#];

/// A method folder, with the toolchain and the options to compile it.
struct Job<'a> {
    folder: &'a Path,
    toolchain: &'a Toolchain,
    options: &'a Options,
}

/// The package of a method folder, from `cargo metadata`.
struct Package {
    /// Its name.
    name: String,
    /// The root of its workspace.
    root: PathBuf,
    /// The target folder that cargo chooses for this package.
    target: PathBuf,
    /// The folders of its path dependencies.
    paths: Vec<PathBuf>,
}

/// Compiles a method folder in Rust. Returns the bytes of the core module, and the compiler's warnings about the
/// method's own package. First writes the SDK into the workspace, if [`write_sdk`] has to. Compiles into the subfolder
/// `guest` of the package's target folder, or into an empty temporary folder with [`Options::clean`], and holds the
/// lock of the target folder meanwhile in both cases. `watch` gets an event for a wait, and one for every other crate
/// once it is compiled. Errors: those of [`write_sdk`], cargo fails, the crate makes no WebAssembly module, or another
/// build holds the lock for 15 minutes.
pub(super) fn build(
    folder: &Path,
    toolchain: &Toolchain,
    options: &Options,
    watch: &mut Watch<'_>,
) -> Result<(Vec<u8>, Vec<Warning>), Error> {
    write_sdk(folder, watch)?;
    let job = Job { folder, toolchain, options };
    let package = job.describe()?;
    // Two folders that share a target folder share the module's path: no other build may start before we have read the
    // file.
    let _turn = lock_target(&package.target, watch)?;
    let empty =
        options.clean.then(tempfile::tempdir).transpose().map_err(Error::file("written to", &std::env::temp_dir()))?;
    let target = empty.as_ref().map_or_else(|| package.target.join("guest"), |folder| folder.path().to_owned());
    let (module, warnings) = job.compile(&package, &target, watch)?;
    let module = std::fs::read(&module).map_err(Error::file("read", &module))?;
    Ok((module, warnings))
}

/// Takes the exclusive build lock of a target folder, the file `guest.lock` in it. Waits for other builds for up to 15
/// minutes; `watch` gets one event if it waits. Creates folder and file if missing. Dropping the returned file releases
/// the lock.
fn lock_target(target: &Path, watch: &mut Watch<'_>) -> Result<File, Error> {
    files::create_folder(target)?;
    let path = target.join("guest.lock");
    let file = File::create(&path).map_err(Error::file("created", &path))?;
    wait_for_build(file, &path, watch)
}

impl Job<'_> {
    /// Asks cargo for the package of this folder with `cargo metadata --no-deps`. Errors: cargo fails, or the folder's
    /// `Cargo.toml` is not that of a package.
    fn describe(&self) -> Result<Package, Error> {
        let manifest = self.folder.join("Cargo.toml");
        let output = self.cargo_command()?.args(["metadata", "--no-deps", "--format-version", "1"]).output();
        let output = self.require_success(self.folder, output)?;
        let problem = |problem: &str| no_method_error(self.folder, problem);
        let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| problem(&error.to_string()))?;
        let manifest = manifest.canonicalize().map_err(Error::file("found", &manifest))?;
        let mut packages = list_items(&metadata, "packages");
        let package = packages.find(|package| is_of_package(package, &manifest));
        let package = package.ok_or_else(|| problem("it names no package"))?;

        let path = |key| {
            text_field(&metadata, key).map(PathBuf::from).ok_or_else(|| problem("cargo does not say where it builds"))
        };
        Ok(Package {
            name: text_field(package, "name").unwrap_or_default().to_owned(),
            root: path("workspace_root")?,
            target: path("target_directory")?,
            paths: list_items(package, "dependencies")
                .filter_map(|found| text_field(found, "path"))
                .map(PathBuf::from)
                .collect(),
        })
    }

    /// Runs `cargo rustc` for [`TARGET`] with the profile `method` into the folder `target`; this adds to `Cargo.lock`
    /// what it lacks. Returns the path of the module, and the warnings about the method's own package. `watch` gets
    /// every other crate once it is compiled. Errors: cargo fails, or the crate makes no WebAssembly module.
    fn compile(
        &self,
        package: &Package,
        target: &Path,
        watch: &mut Watch<'_>,
    ) -> Result<(PathBuf, Vec<Warning>), Error> {
        let mut cargo = self.cargo_command()?;
        cargo.args(["rustc", "--lib", "--profile", "method", "--target", TARGET, "--message-format", "json"]);
        let detail = if self.options.debug { NAMED } else { STRIPPED };
        cargo.args(PROFILE.iter().chain(&detail).flat_map(|entry| ["--config", *entry]));
        if self.toolchain.library == Library::FromSource {
            cargo.arg("-Zbuild-std=std,panic_abort").env("RUSTC_BOOTSTRAP", "1");
        }
        cargo.env("CARGO_TARGET_DIR", target);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", self.rust_flags(package)).env("CARGO_INCREMENTAL", "0");
        if let Some(linker) = &self.toolchain.linker {
            cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
        }
        cargo.arg("--").arg(remap_flag(&package.root, "."));
        let own = package.name.replace('-', "_");
        let output = run(&mut cargo, &mut |message| {
            if let Some(name) = compiled_crate(message).filter(|name| *name != own) {
                watch(Event::Compiled(name));
            }
        });
        let output = self.require_success(&package.root, output)?;
        let module = find_artifact(&output.stdout, &own);
        let module = module.ok_or_else(|| {
            let what = format!("`{}` compiles, but to no WebAssembly module", self.folder.display());
            build_error(what, "`Cargo.toml` needs `[lib]` with `crate-type = [\"cdylib\"]`")
        })?;
        Ok((module, warnings(self.folder, &package.root, &output.stdout)))
    }

    /// Returns the `--remap-path-prefix` flags of all crates, so that no path of this machine gets into the module.
    /// They are separated by 0x1F, as `CARGO_ENCODED_RUSTFLAGS` expects. Path dependencies outside of `.tunebox` become
    /// `tunebox`, the SDK becomes `sdk`, the folders of unpacked dependencies `dependencies`, and the standard
    /// library's source `rust`.
    ///
    /// Cargo compiles the standard library and the SDK again wherever these flags differ. So they leave out the
    /// method's workspace, which [`Job::compile`] adds for the method's own crate only. With [`Options::debug`] they
    /// include it if a path dependency lies in it, because the line tables of that crate name it.
    fn rust_flags(&self, package: &Package) -> OsString {
        let sdk = package.root.join(sources::FOLDER);
        let elsewhere = package.paths.iter().filter(|path| !path.starts_with(&sdk));
        let named = self.options.debug && package.paths.iter().any(|path| path.starts_with(&package.root));
        let mut flags: Vec<OsString> = named.then(|| remap_flag(&package.root, ".")).into_iter().collect();
        flags.extend(elsewhere.map(|path| remap_flag(path, "tunebox")));
        // Cargo names it from the workspace's root on, as it names the SDK in its own repository.
        flags.push(remap_flag(&Path::new(sources::FOLDER).join("sdk"), "sdk"));
        flags.extend(dependency_folders().iter().map(|path| remap_flag(path, "dependencies")));
        let library = self.toolchain.sysroot.join("lib/rustlib/src/rust");
        flags.extend(library.canonicalize().ok().map(|path| remap_flag(&path, "rust")));
        flags.push(remap_flag(&library, "rust"));
        flags.join(OsStr::new("\u{1f}"))
    }

    /// Prepares, but does not run, a call of the toolchain's cargo in the method's folder: with the toolchain's
    /// compiler, with the folder of its cargo first on `PATH`, without variables of an outer cargo, and without a
    /// network if the options say so. Errors: no such folder.
    fn cargo_command(&self) -> Result<Command, Error> {
        cargo_in(self.folder, self.toolchain, self.options.offline)
    }

    /// Returns cargo's output if its exit status is success. Errors: cargo did not start, or the error that [`explain`]
    /// makes of its messages. `root` is the root of the workspace, from which the compiler names files.
    fn require_success(&self, root: &Path, output: std::io::Result<Output>) -> Result<Output, Error> {
        let output = output.map_err(Error::file("started", &self.toolchain.cargo))?;
        if output.status.success() { Ok(output) } else { Err(explain(self.folder, root, &output)) }
    }
}

/// Returns the flag `--remap-path-prefix=PATH=NAME`, by which the compiler writes `name` in place of `path` where a
/// path begins with it.
fn remap_flag(path: &Path, name: &str) -> OsString {
    let mut flag = OsString::from("--remap-path-prefix=");
    flag.extend([path.as_os_str(), OsStr::new("="), OsStr::new(name)]);
    flag
}

/// Returns the folders where cargo unpacks dependencies, sorted: each one in `registry/src`, and `git/checkouts`, below
/// `CARGO_HOME` or `~/.cargo`. Empty if there is no home folder.
fn dependency_folders() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let Some(home) = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))) else { return Vec::new() };
    let entries = home.join("registry/src").read_dir().into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.push(home.join("git/checkouts"));
    folders.sort();
    folders
}

/// Finds the first `.wasm` file of the library `library` in cargo's `output`, one JSON message a line. `library`
/// is the crate's name with underscores. `None` if cargo made no such file.
fn find_artifact(output: &[u8], library: &str) -> Option<PathBuf> {
    parse_messages(output)
        .filter(|message| text_field(message, "reason") == Some("compiler-artifact"))
        .filter(|message| message.get("target").and_then(|target| text_field(target, "name")) == Some(library))
        .flat_map(|message| {
            list_items(&message, "filenames").filter_map(|file| file.as_str().map(PathBuf::from)).collect::<Vec<_>>()
        })
        .find(|file| file.extension().is_some_and(|extension| extension == "wasm"))
}
