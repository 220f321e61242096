//! How a person names a method: built-in, a folder, or a `.wasm` file.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use crate::builtin::{self, Builtin};
use crate::nearest::nearest;
use crate::{Error, Manifest, build, component, digest, read_manifest};

/// The largest component that is read.
pub const LARGEST: u64 = 64 << 20;

/// What code begins with that the engine made of a component: it is an object file.
const PRECOMPILED: &[u8] = b"\x7fELF";

/// Where a method is.
#[derive(Debug, Clone)]
pub enum Reference {
    /// In the program.
    Builtin(&'static Builtin),
    /// A folder with the method's source and the component built from it.
    Folder(PathBuf),
    /// A component.
    File(PathBuf),
}

impl Reference {
    /// Reads what a person wrote; relative paths start at `base`. A name without a slash is a
    /// built-in method first, then a built-in verifier. Errors: neither a built-in method nor an existing path.
    pub fn parse(text: &str, base: &Path) -> Result<Self, Error> {
        Self::among([builtin::list(), builtin::verifiers()], text, base)
    }

    /// The same for a verifier. Errors: neither a built-in verifier nor an existing path.
    pub fn verifier(text: &str, base: &Path) -> Result<Self, Error> {
        Self::among([builtin::verifiers(), builtin::list()], text, base).map_err(|error| match error {
            Error::NoMethod { name, nearest } => Error::NoVerifier { name, nearest },
            error => error,
        })
    }

    /// The first list is what is wanted; what is found in the second is for the caller to refuse by name.
    fn among(lists: [&'static [Builtin]; 2], text: &str, base: &Path) -> Result<Self, Error> {
        if let Some(found) = lists.iter().copied().flatten().find(|builtin| builtin.name == text) {
            return Ok(Self::Builtin(found));
        }
        let path = base.join(text);
        if path.is_dir() {
            return Ok(Self::Folder(path));
        }
        let is_path = text.contains(['/', '\\']) || text.ends_with(".wasm");
        if path.is_file() || is_path {
            fs::metadata(&path).map_err(Error::file("find", &path))?;
            return Ok(Self::File(path));
        }
        let known = lists[0].iter().map(|method| method.name);
        Err(Error::NoMethod { name: text.to_owned(), nearest: nearest(text, known).map(str::to_owned) })
    }

    /// Reads the component and its manifest, without running anything.
    /// Errors: a folder that was not built since it changed, and everything wrong with the bytes.
    pub fn open(&self) -> Result<Package, Error> {
        let (bytes, origin) = match self {
            Self::Builtin(method) => (Cow::Borrowed(method.bytes), "built in".to_owned()),
            Self::Folder(folder) => {
                let path = built(folder)?;
                (Cow::Owned(read(&path)?), path.display().to_string())
            }
            Self::File(path) => (Cow::Owned(read(path)?), path.display().to_string()),
        };
        if bytes.starts_with(PRECOMPILED) {
            return Err(Error::Precompiled);
        }
        let manifest = read_manifest(&bytes)?;
        let imports = component::interfaces(&bytes)?.imports;
        Ok(Package { manifest, imports, digest: digest::sha256(&bytes), bytes, origin })
    }
}

/// A method that was read, and has not run.
#[derive(Debug, Clone)]
pub struct Package {
    /// What it says about itself.
    pub manifest: Manifest,
    /// The full names of the interfaces that it asks for.
    pub imports: Vec<String>,
    /// SHA-256 of the bytes.
    pub digest: String,
    /// The component.
    pub bytes: Cow<'static, [u8]>,
    /// Where it came from, for people.
    pub origin: String,
}

/// The component of a folder, if it was built from the source as it is.
fn built(folder: &Path) -> Result<PathBuf, Error> {
    let path = build::component_path(folder)?;
    if !path.is_file() {
        return Err(Error::NotBuilt { folder: folder.to_owned() });
    }
    match build::Record::read(&read(&path)?)? {
        Some(record) if record.source == digest::source(folder)? => Ok(path),
        _ => Err(Error::Stale { folder: folder.to_owned() }),
    }
}

/// The bytes of a component, unless it is larger than any method.
fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let size = fs::metadata(path).map_err(Error::file("read", path))?.len();
    if size > LARGEST {
        return Err(Error::TooLarge { path: path.to_owned(), size, limit: LARGEST });
    }
    fs::read(path).map_err(Error::file("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> Error {
        Reference::parse(text, Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err()
    }

    #[test]
    fn a_built_in_method_is_found_by_its_name() {
        let package = Reference::parse("lora", Path::new("/")).unwrap().open().unwrap();
        assert_eq!(package.manifest.shape, "supervised");
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_one_that_exists() {
        assert!(matches!(failure("lorra"), Error::NoMethod { nearest: Some(name), .. } if name == "lora"));
    }

    #[test]
    fn a_path_that_is_not_there_is_an_error_of_that_path() {
        assert!(matches!(failure("./nowhere.wasm"), Error::File { .. }));
    }

    #[test]
    fn a_folder_of_this_repository_opens_because_its_component_was_built_from_it() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../methods");
        let package = Reference::parse("./lora", &folder).unwrap().open().unwrap();
        assert_eq!(package.manifest.name, "lora");
    }
}
