//! Calling cargo for a method folder.
//!
//! The profile is ours, whatever the folder's workspace says; no flag of the environment reaches
//! the compiler; paths of this machine are left out of the bytes. The target folder is our own, so
//! that a build inside `cargo test` waits for no lock of the outer cargo. The SDK is the program's own
//! where the folder has it in its place (`sources`); `Cargo.lock` names no place of such a crate.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use semver::{Version, VersionReq};
use serde_json::Value;

use super::command::cargo_in;
use super::diagnosis::explain;
use super::messages::{compiled, list, messages, run, text};
use super::{BuildError, Options};
use crate::toolchain::{Library, TARGET, Toolchain};
use crate::{Error, sources};

/// The profile of every method: small, one unit, no unwinding.
const PROFILE: [&str; 5] = [
    r#"profile.method.inherits="release""#,
    r#"profile.method.opt-level="s""#,
    "profile.method.lto=true",
    "profile.method.codegen-units=1",
    r#"profile.method.panic="abort""#,
];

/// What is published: no names.
const STRIPPED: [&str; 2] = ["profile.method.strip=true", "profile.method.debug=false"];

/// What an author looks into: names and lines beside the same code.
const NAMED: [&str; 2] = ["profile.method.strip=false", r#"profile.method.debug="line-tables-only""#];

/// A folder to be compiled, and by what.
struct Job<'a> {
    folder: &'a Path,
    toolchain: &'a Toolchain,
    options: &'a Options,
}

/// What cargo knows about a folder.
struct Package {
    /// Its name.
    name: String,
    /// Its version.
    version: String,
    /// The root of its workspace.
    root: PathBuf,
    /// Where cargo would put what it builds.
    target: PathBuf,
    /// The folders of its dependencies by path.
    paths: Vec<PathBuf>,
}

/// Compiles a method folder to a core module, and names every crate beside it that has to be compiled, once it is.
pub(super) fn build(
    folder: &Path,
    toolchain: &Toolchain,
    options: &Options,
    beside: &mut dyn FnMut(&str),
) -> Result<Vec<u8>, Error> {
    supply(folder)?;
    let job = Job { folder, toolchain, options };
    let package = job.describe()?;
    // Two folders that share a target folder share the module's path: nobody may build between us and the file.
    let _turn = take_turn(&package.target)?;
    job.follow_version(&package)?;
    let empty =
        options.afresh.then(tempfile::tempdir).transpose().map_err(Error::file("write into", &std::env::temp_dir()))?;
    let target = empty.as_ref().map_or_else(|| package.target.join("guest"), |folder| folder.path().to_owned());
    let module = job.compile(&package, &target, beside)?;
    std::fs::read(&module).map_err(Error::file("read", &module))
}

/// Waits for other builds into this target folder; the turn ends when the file is closed.
fn take_turn(target: &Path) -> Result<File, Error> {
    std::fs::create_dir_all(target).map_err(Error::file("create", target))?;
    let path = target.join("guest.lock");
    let file = File::create(&path).map_err(Error::file("create", &path))?;
    file.lock().map_err(Error::file("lock", &path))?;
    Ok(file)
}

/// Puts the program's own SDK where the folder has it, if it has it in the place for it. One that it takes from
/// elsewhere is its own affair. Errors: another version is asked for, a folder that cannot be written.
fn supply(folder: &Path) -> Result<(), Error> {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let manifest: toml::Table = manifest.parse().unwrap_or_default();
    let sdk = manifest.get("dependencies").and_then(|dependencies| dependencies.get(sources::CRATE)?.as_table());
    let word = |key: &str| sdk.and_then(|sdk| sdk.get(key)?.as_str());
    let Some(root) = word("path").and_then(|path| workspace_of(folder, path)) else { return Ok(()) };
    let wanted = word("version").unwrap_or("*");
    let carried = Version::parse(sources::VERSION).ok();
    let fits = VersionReq::parse(wanted).ok().zip(carried).is_none_or(|(wanted, carried)| wanted.matches(&carried));
    if !fits {
        return Err(BuildError::Sdk { folder: folder.to_owned(), wanted: wanted.to_owned() }.into());
    }
    if sources::is_supplied(&root) {
        return Ok(());
    }
    let _turn = take_turn_below(&root, folder)?;
    sources::supply(&root)
}

/// Waits for others that put the SDK below this root, which may build into other folders than this one does.
fn take_turn_below(root: &Path, folder: &Path) -> Result<File, Error> {
    // A file that is there in any case: one of its own would be left in somebody's folder.
    let manifest = |folder: &Path| folder.join("Cargo.toml");
    let path = Some(manifest(root)).filter(|path| path.is_file()).unwrap_or_else(|| manifest(folder));
    let file = File::open(&path).map_err(Error::file("open", &path))?;
    file.lock().map_err(Error::file("lock", &path))?;
    Ok(file)
}

/// The root of the workspace whose place for the SDK a path names, such as `../../.tunebox/sdk/rust`.
fn workspace_of(folder: &Path, path: &str) -> Option<PathBuf> {
    let place = format!("{}/{}", sources::FOLDER, sources::PLACE);
    let above = path.trim_end_matches('/').strip_suffix(&place)?;
    let up = above.trim_end_matches('/');
    let is_above = up.split('/').all(|part| matches!(part, "" | "." | "..")) && !above.starts_with('/');
    is_above.then(|| folder.join(up))
}

impl Job<'_> {
    /// Asks cargo about the folder, without resolving dependencies.
    fn describe(&self) -> Result<Package, Error> {
        let manifest = self.folder.join("Cargo.toml");
        let output = self.cargo()?.args(["metadata", "--no-deps", "--format-version", "1"]).output();
        let output = self.succeeded(self.folder, output)?;
        let problem =
            |problem: &str| BuildError::Package { folder: self.folder.to_owned(), problem: problem.to_owned() };
        let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| problem(&error.to_string()))?;
        let manifest = manifest.canonicalize().map_err(Error::file("find", &manifest))?;
        let here =
            |package: &&Value| text(package, "manifest_path").is_some_and(|path| same(Path::new(path), &manifest));
        let package = list(&metadata, "packages").find(here).ok_or_else(|| problem("it names no package"))?;

        let path =
            |key| text(&metadata, key).map(PathBuf::from).ok_or_else(|| problem("cargo does not say where it builds"));
        let paths = list(package, "dependencies").filter_map(|dependency| text(dependency, "path").map(PathBuf::from));
        let word = |key| text(package, key).unwrap_or_default().to_owned();
        let (name, version) = (word("name"), word("version"));
        Ok(Package {
            name,
            version,
            root: path("workspace_root")?,
            target: path("target_directory")?,
            paths: paths.collect(),
        })
    }

    /// Lets `Cargo.lock` follow a version that its author has raised: its own line of it, and nothing else.
    fn follow_version(&self, package: &Package) -> Result<(), Error> {
        let lock = std::fs::read_to_string(package.root.join("Cargo.lock")).unwrap_or_default();
        let lock: toml::Table = lock.parse().unwrap_or_default();
        let entries = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
        let is =
            |entry: &toml::Value, key: &str, value: &str| entry.get(key).and_then(toml::Value::as_str) == Some(value);
        let own = entries.into_iter().find(|entry| is(entry, "name", &package.name) && entry.get("source").is_none());
        if own.is_none_or(|entry| is(entry, "version", &package.version)) {
            return Ok(());
        }
        let output = self.cargo()?.args(["update", "--workspace", "--offline", "--quiet"]).output();
        self.succeeded(&package.root, output).map(|_| ())
    }

    /// Runs the build itself into a target folder, and finds the module.
    fn compile(&self, package: &Package, target: &Path, beside: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
        let mut cargo = self.cargo()?;
        cargo.args(["build", "--lib", "--profile", "method", "--target", TARGET, "--message-format", "json"]);
        let detail = if self.options.debug { NAMED } else { STRIPPED };
        cargo.args(PROFILE.iter().chain(&detail).flat_map(|entry| ["--config", *entry]));
        if self.toolchain.library == Library::FromSource {
            cargo.arg("-Zbuild-std=std,panic_abort").env("RUSTC_BOOTSTRAP", "1");
        }
        if package.root.join("Cargo.lock").is_file() {
            cargo.arg("--locked");
        }
        cargo.env("CARGO_TARGET_DIR", target);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags(self.toolchain, package)).env("CARGO_INCREMENTAL", "0");
        if let Some(linker) = &self.toolchain.linker {
            cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
        }
        let own = package.name.replace('-', "_");
        let output = run(&mut cargo, &mut |message| {
            if let Some(name) = compiled(message).filter(|name| *name != own) {
                beside(name);
            }
        });
        let output = self.succeeded(&package.root, output)?;
        let module = artifact(&output.stdout, &own);
        module.ok_or_else(|| BuildError::NoModule { folder: self.folder.to_owned() }.into())
    }

    fn cargo(&self) -> Result<Command, Error> {
        cargo_in(self.folder, self.toolchain, self.options.offline)
    }

    /// What cargo answered, if it could do what it was asked for. `root` is that of the workspace.
    fn succeeded(&self, root: &Path, output: std::io::Result<Output>) -> Result<Output, Error> {
        let output = output.map_err(Error::file("start", &self.toolchain.cargo))?;
        if output.status.success() { Ok(output) } else { Err(explain(self.folder, root, &output).into()) }
    }
}

/// Compiler flags that replace every folder of this machine by a name, in cargo's encoding.
fn flags(toolchain: &Toolchain, package: &Package) -> OsString {
    let mut names: Vec<(PathBuf, &str)> = vec![(package.root.clone(), ".")];
    names.extend(package.paths.iter().map(|path| (path.clone(), "tunebox")));
    // Cargo names it from the workspace's root on, as it names the SDK in its own repository.
    names.push((Path::new(sources::FOLDER).join("sdk"), "sdk"));
    names.extend(sources().into_iter().map(|path| (path, "dependencies")));
    let library = toolchain.sysroot.join("lib/rustlib/src/rust");
    names.extend(library.canonicalize().ok().map(|path| (path, "rust")));
    names.push((library, "rust"));

    let mut flags = OsString::new();
    for (index, (path, name)) in names.iter().enumerate() {
        flags.push(if index == 0 { "--remap-path-prefix=" } else { "\u{1f}--remap-path-prefix=" });
        flags.push(path);
        flags.push("=");
        flags.push(name);
    }
    flags
}

/// The folders where cargo unpacks dependencies.
fn sources() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let Some(home) = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))) else { return Vec::new() };
    let entries = home.join("registry/src").read_dir().into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.push(home.join("git/checkouts"));
    folders.sort();
    folders
}

/// The module among what cargo says it made of a library.
fn artifact(told: &[u8], library: &str) -> Option<PathBuf> {
    messages(told)
        .filter(|message| text(message, "reason") == Some("compiler-artifact"))
        .filter(|message| text(message, "manifest_path").is_some())
        .filter(|message| message.get("target").and_then(|target| text(target, "name")) == Some(library))
        .flat_map(|message| {
            list(&message, "filenames").filter_map(|file| file.as_str().map(PathBuf::from)).collect::<Vec<_>>()
        })
        .find(|file| file.extension().is_some_and(|extension| extension == "wasm"))
}

/// Whether a path is a file, given by its resolved path.
fn same(path: &Path, resolved: &Path) -> bool {
    path.canonicalize().is_ok_and(|path| path == resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_a_network_tells_cargo_so() {
        let toolchain = Toolchain {
            cargo: "cargo".into(),
            rustc: "rustc".into(),
            release: String::new(),
            library: Library::Installed,
            sysroot: PathBuf::new(),
            linker: None,
        };
        let told = |offline: bool| {
            let options = Options { offline, ..Options::default() };
            let job = Job { folder: Path::new("."), toolchain: &toolchain, options: &options };
            let cargo = job.cargo().unwrap();
            cargo.get_envs().any(|(name, value)| name == "CARGO_NET_OFFLINE" && value == Some("true".as_ref()))
        };
        assert_eq!([told(true), told(false)], [true, false]);
    }

    #[test]
    fn builds_that_begin_at_once_put_the_sdk_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = "[package]\nname = \"calm\"\n[dependencies]\ntunebox = { path = \".tunebox/sdk/rust\" }\n";
        std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            let begin = || {
                start.wait();
                supply(folder.path())
            };
            let begun: Vec<_> = (0..8).map(|_| scope.spawn(begin)).collect();
            for thread in begun {
                thread.join().unwrap().unwrap();
            }
        });
        assert!(sources::is_supplied(folder.path()));
        assert_eq!(std::fs::read_to_string(folder.path().join("Cargo.toml")).unwrap(), manifest);
    }

    #[test]
    fn the_sdk_is_put_below_the_folder_that_the_manifest_means_and_nowhere_else() {
        let method = Path::new("/methods/calm");
        let root = |path: &str| workspace_of(method, path);
        assert_eq!(root(".tunebox/sdk/rust"), Some(method.join("")));
        assert_eq!(root("./.tunebox/sdk/rust/"), Some(method.join(".")));
        assert_eq!(root("../../.tunebox/sdk/rust"), Some(method.join("../..")));
        for elsewhere in ["../../sdk/rust", "/.tunebox/sdk/rust", "other/.tunebox/sdk/rust", "x.tunebox/sdk/rust"] {
            assert_eq!(root(elsewhere), None, "{elsewhere}");
        }
    }
}
