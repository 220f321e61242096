//! Resolves what a person names as a method: a built-in one, a folder, a `.wasm` file, or a package in this user's
//! store.
//!
//! Nothing here uses a network: a name in a registry means the package in the store that was pulled from there. Whether
//! a package from the store may be used is decided in `trust`.

mod stored;
mod suggestion;

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use tunebox_foundation::explain::Explanation;
use tunebox_foundation::{bounded, paths};

use crate::builtin::{self, Builtin};
use crate::constants::MAX_SIGNATURE_FILE_BYTES;
use crate::signature::{Signed, Signer};
use crate::store::{Stored, ambiguous};
use crate::trust::refusal::locate;
use crate::{Error, Manifest, World, build, component, digest, files, manifest, read_manifest};
use suggestion::suggest;

/// The first bytes of machine code that the engine compiled from a component: those of an ELF object file.
const PRECOMPILED: &[u8] = b"\x7fELF";

/// Where a method is.
#[derive(Debug, Clone)]
pub enum Reference {
    /// A method or verifier that is embedded in this program.
    Builtin(&'static Builtin),
    /// A folder with the method's source and the component built from it.
    Folder(PathBuf),
    /// A component file.
    File(PathBuf),
    /// A package in the store.
    Stored(Stored),
}

impl Reference {
    /// Resolves the text by which a person names a method; relative paths start at `base`. A name without a slash is a
    /// built-in method first, then a built-in verifier, then the package that the lock in `base` pins or the newest in
    /// the store, then a path; `NAME@VERSION` and `registry/namespace/name:VERSION` are in the store or nowhere.
    /// Errors: neither a built-in method, nor in the store, nor an existing path; a name in a registry without its
    /// version; the name of a stored package that is also the name of a method's folder in `base`; a name whose pinned
    /// package is not in the store.
    pub fn parse(text: &str, base: &Path) -> Result<Self, Error> {
        Self::resolve_name("method", [builtin::list(), builtin::verifiers()], text, base)
    }

    /// Whether a text has the form of a package in the store, `NAME@VERSION` or `registry/namespace/name:VERSION`. Such
    /// a text is never read as a path.
    #[must_use]
    pub fn means_package(text: &str) -> bool {
        stored::parse_registry_name(text).is_some_and(|name| name.tag.is_some()) || stored::is_versioned(text)
    }

    /// Returns a path as text that [`parse`](Self::parse) reads as that path in the present folder. Puts `./` in front
    /// if the text alone would mean something else; an absolute path, and one that begins with a dot, stays as it is.
    #[must_use]
    pub fn path_argument(path: &Path) -> String {
        let text = path.display().to_string();
        match Self::parse(&text, Path::new(".")) {
            Ok(Self::Folder(_) | Self::File(_)) => text,
            _ if path.is_absolute() || text.starts_with('.') => text,
            _ => format!("./{text}"),
        }
    }

    /// Resolves the name of a verifier by the rules of [`parse`](Self::parse), but built-in verifiers come before
    /// built-in methods. A method may be returned: the caller checks its world. Errors: the name means nothing, or two
    /// things, as listed at [`parse`](Self::parse).
    pub fn verifier(text: &str, base: &Path) -> Result<Self, Error> {
        Self::resolve_name("verifier", [builtin::verifiers(), builtin::list()], text, base)
    }

    /// Resolves the name of an environment by the rules of [`parse`](Self::parse). None is built in; a method may be
    /// returned: the caller checks its world. Errors: the name means nothing, or two things, as listed at
    /// [`parse`](Self::parse).
    pub fn environment(text: &str, base: &Path) -> Result<Self, Error> {
        Self::resolve_name("environment", [&[], builtin::list()], text, base)
    }

    /// Resolves a name by the rules of [`parse`](Self::parse). `kind` is `method`, `verifier` or `environment`, for
    /// errors. `lists` are the built-ins of this kind, which are searched first and suggested for unknown names, and
    /// the built-ins of the other kind.
    fn resolve_name(
        kind: &'static str,
        lists: [&'static [Builtin]; 2],
        text: &str,
        base: &Path,
    ) -> Result<Self, Error> {
        if let Some(found) = lists.iter().copied().flatten().find(|builtin| builtin.name == text) {
            return Ok(Self::Builtin(found));
        }
        // The spelling decides first: a file or folder whose name reads like a package must not be used in place of a
        // package.
        if let Some(name) = stored::parse_registry_name(text) {
            return Ok(Self::Stored(stored::find_pulled(&name)?));
        }
        if stored::is_versioned(text) {
            return Ok(Self::Stored(stored::find_versioned(text)?));
        }
        let path = paths::simplify(&base.join(text));
        if manifest::check_name("it", text).is_ok()
            && let Some(package) = stored::find_by_name(text, base)?
        {
            // The author of a method may have pulled it as well. The pulled package must not silently replace the
            // edited folder.
            return if build::expect_method(&path).is_err() {
                Ok(Self::Stored(package))
            } else {
                let there = [package.to_string(), format!("the folder `./{text}`")];
                Err(ambiguous(text, &there, None))
            };
        }
        if path.is_dir() {
            return Ok(Self::Folder(path));
        }
        if path.is_file() {
            return Ok(Self::File(path));
        }
        if text.contains(['/', '\\']) || text.ends_with(".wasm") {
            fs::metadata(&path).map_err(Error::file("found", &path))?;
            return Ok(Self::File(path));
        }
        // Spelt as a package, of a version that is none: the store says which ones it has.
        if text.split_once('@').is_some_and(|(name, _)| manifest::check_name("it", name).is_ok()) {
            return Ok(Self::Stored(stored::find_versioned(text)?));
        }
        Err(Error::NoMethod { kind, name: text.to_owned(), nearest: suggest(text, base, lists[0])? })
    }

    /// Reads the component, its manifest and its signature, and verifies the signature, without running anything. Only
    /// a file, which may have a signature beside it, and a package of the store can be signed. Errors: a folder that
    /// was not built since it changed, machine code in place of a component, a signature that does not fit the bytes,
    /// and bytes that are no component with a usable manifest.
    pub fn open(&self) -> Result<Package, Error> {
        let (bytes, origin, signature, source) = match self {
            Self::Builtin(method) => (Cow::Borrowed(method.bytes), "built in".to_owned(), None, None),
            Self::Folder(folder) => {
                let path = built_component(folder)?;
                (Cow::Owned(files::read(&path)?), path.display().to_string(), None, None)
            }
            Self::File(path) => {
                (Cow::Owned(files::read(path)?), path.display().to_string(), read_signature(path)?, None)
            }
            Self::Stored(package) => {
                let artifact = stored::read(package)?;
                let (source, origin) = (package.source.clone(), format!("the store, from {}", package.source));
                (Cow::Owned(artifact.wasm), origin, artifact.signature, Some(source))
            }
        };
        if bytes.starts_with(PRECOMPILED) {
            return Err(Error::Precompiled);
        }
        let place = source.as_deref().unwrap_or(&origin);
        let signer = signature.as_ref().map(|text| Signed::verify(&bytes, text)).transpose();
        let signer = signer.map_err(|error| locate(error, "", place))?;
        let manifest = read_manifest(&bytes)?;
        let imports = component::interfaces(&bytes)?.imports;
        Ok(Package { manifest, imports, digest: digest::sha256(&bytes), bytes, origin, signature, signer, source })
    }
}

/// A method or verifier that was read and checked, but not run.
#[derive(Debug, Clone)]
pub struct Package {
    /// The manifest.
    pub manifest: Manifest,
    /// The full names of the interfaces that the component imports.
    pub imports: Vec<String>,
    /// The SHA-256 of the bytes, in hexadecimal.
    pub digest: String,
    /// The bytes of the component.
    pub bytes: Cow<'static, [u8]>,
    /// Where it came from, for people.
    pub origin: String,
    /// The text of the `.minisig` file, which was verified; `None` for an unsigned package.
    pub signature: Option<String>,
    /// Who signed the package. Whether this signer may sign a package of this name is decided in `trust`.
    pub signer: Option<Signer>,
    /// Where a package of the store was pulled from; `None` for one that is built in or was read from a path.
    pub source: Option<String>,
}

impl Package {
    /// Fails unless the component belongs to `world`. The hint says where a run file names a component of that world,
    /// and one of its own.
    pub fn expect_world(&self, world: World) -> Result<(), Error> {
        if self.manifest.world == world {
            return Ok(());
        }
        let [(found, own), (wanted, here)] = [self.manifest.world, world].map(|world| match world {
            World::Method => ("a method", "[method]"),
            World::Verifier => ("a verifier", "[[verifier]]"),
            World::Environment => ("an environment", "[environment]"),
        });
        let hint = format!("a run file names {found} in `{own}`, and {wanted} in `{here}`");
        let what = format!("`{}` is {found}, {wanted} is wanted here", self.manifest.name);
        Err(Explanation::new("package", what).with_hint(hint).into())
    }
}

/// Returns the path of a package's signature: the package's path with `.minisig` appended.
#[must_use]
pub fn signature_path(package: &Path) -> PathBuf {
    package.with_added_extension("minisig")
}

/// Reads the signature beside a package. `None` if there is no such file. Errors: those of [`signature_in`].
fn read_signature(package: &Path) -> Result<Option<String>, Error> {
    match signature_in(&signature_path(package)) {
        Err(Error::File(error)) if error.source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Reads the text of a signature file. Errors: a file that cannot be read, is no UTF-8, or has more than 4 KiB.
pub fn signature_in(path: &Path) -> Result<String, Error> {
    bounded::read_text(path, MAX_SIGNATURE_FILE_BYTES).map_err(Error::file("read", path))
}

/// Returns the path of the component built from a method's folder. Errors: no method, [`Error::NotBuilt`] if there is
/// no component, [`Error::Stale`] if the source has changed since or the component has no record of its build.
fn built_component(folder: &Path) -> Result<PathBuf, Error> {
    build::expect_method(folder)?;
    let path = build::component_path(folder)?;
    if !path.is_file() {
        return Err(Error::NotBuilt { folder: folder.to_owned() });
    }
    match build::Record::read(&files::read(&path)?)? {
        Some(record) if record.source == digest::source(folder)? => Ok(path),
        _ => Err(Error::Stale { folder: folder.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    fn failure(text: &str) -> Error {
        Reference::parse(text, Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err()
    }

    #[test]
    fn a_built_in_method_is_found_by_its_name() {
        let package = Reference::parse("lora", Path::new("/")).unwrap().open().unwrap();
        assert_eq!(package.manifest.shape, "supervised");
        assert!(package.signer.is_none() && package.source.is_none());
    }

    #[test]
    fn a_path_is_written_so_that_it_is_read_as_one() {
        for (path, written) in
            [("dpo", "./dpo"), ("registry.example/me/calm", "./registry.example/me/calm"), ("src", "src"), ("..", "..")]
        {
            assert_eq!(Reference::path_argument(Path::new(path)), written);
        }
    }

    #[test]
    fn a_path_that_is_not_there_is_an_error_of_that_path() {
        assert!(matches!(failure("./nowhere.wasm"), Error::File(_)));
    }

    #[test]
    fn a_package_of_a_version_that_is_none_is_looked_for_in_the_store() {
        let error = failure("calm-nobody@0.1");
        assert_eq!(error.to_string(), "there is no package `calm-nobody@0.1` here");
        assert!(matches!(failure("Calm Nobody@0.1"), Error::NoMethod { .. }));
    }

    #[test]
    fn a_folder_of_this_repository_opens_because_its_component_was_built_from_it() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../methods");
        let package = Reference::parse("./lora", &folder).unwrap().open().unwrap();
        assert_eq!(package.manifest.name, "lora");
    }

    #[test]
    fn a_file_that_is_called_like_a_package_never_stands_in_for_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("registry.example/nobody")).unwrap();
        for name in ["registry.example/nobody/calm:1.0.0", "registry.example/nobody/calm", "calm@1.0.0"] {
            fs::write(folder.path().join(name), builtin::find("lora").unwrap().bytes).unwrap();
            assert!(Reference::parse(name, folder.path()).is_err(), "{name}");
            assert!(matches!(Reference::parse(&format!("./{name}"), folder.path()), Ok(Reference::File(_))), "{name}");
        }
    }

    #[test]
    fn a_file_whose_signature_is_another_text_does_not_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lora.wasm");
        fs::write(&path, builtin::find("lora").unwrap().bytes).unwrap();
        assert!(Reference::File(path.clone()).open().is_ok());
        fs::write(signature_path(&path), "untrusted comment: nothing\n").unwrap();
        assert!(Reference::File(path).open().is_err_and(|error| error.category() == "trust"));
    }
}
