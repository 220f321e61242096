//! What a name probably means that means nothing, or two things.

use std::path::Path;

use tunebox_foundation::paths;

use super::stored;
use crate::builtin::Builtin;
use crate::store::{self, Stored};
use crate::{Error, build};
use tunebox_foundation::nearest::nearest;

/// The error for a name that is both a package in the store and the folder of a method.
pub(super) fn ambiguous(package: &Stored) -> Error {
    let there = vec![package.to_string(), format!("the folder `./{}`", package.name)];
    store::ambiguous(&package.name, &there, None)
}

/// Returns what a person probably meant by a name that was not found: `.` if `base` is itself a method's folder of that
/// name, else the nearest name among stored packages, method folders in `base` and `built_in`. `None` if no name is
/// near, or if several are about as near to a name of at most three letters.
pub(super) fn suggest(text: &str, base: &Path, built_in: &[Builtin]) -> Result<Option<String>, Error> {
    if paths::resolve(base).file_name().is_some_and(|name| name == text) && build::expect_method(base).is_ok() {
        return Ok(Some(".".to_owned()));
    }
    let (packages, folders) = (stored::packages()?, build::methods_in(base));
    let folders = folders.iter().filter_map(|folder| folder.file_name()?.to_str());
    let own: Vec<&str> = packages.iter().map(|package| package.name.as_str()).chain(folders).collect();
    let all = || own.iter().copied().chain(built_in.iter().map(|method| method.name));
    let Some(found) = nearest(text, all()) else { return Ok(None) };
    // Names of three letters all differ by one or two: one that several are as near to is none of them.
    let alone = text.chars().count() > 3
        || own.contains(&found)
        || nearest(text, all().filter(|name| *name != found)).is_none();
    Ok(alone.then(|| found.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Reference;

    fn failure(text: &str) -> Error {
        Reference::parse(text, Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err()
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_one_that_exists() {
        assert!(matches!(failure("lorra"), Error::NoMethod { nearest: Some(name), .. } if name == "lora"));
    }

    #[test]
    fn a_misspelt_folder_is_answered_with_the_one_that_lies_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("calm-one/src")).unwrap();
        let error = Reference::parse("calm-oen", folder.path()).unwrap_err();
        assert!(matches!(error, Error::NoMethod { nearest: None, .. }), "a folder without a method");
        fs::write(folder.path().join("calm-one/Cargo.toml"), "").unwrap();
        let error = Reference::parse("calm-oen", folder.path()).unwrap_err();
        assert!(matches!(error, Error::NoMethod { nearest: Some(name), .. } if name == "calm-one"));
        let Ok(Reference::Folder(found)) = Reference::parse("./.", Path::new(".")) else { panic!("no folder") };
        assert_eq!(found, Path::new("."));
    }

    #[test]
    fn a_short_name_that_is_near_to_several_means_none_of_them() {
        assert!(matches!(failure("npo"), Error::NoMethod { nearest: None, .. }), "both `cpo` and `dpo` are as near");
        assert!(matches!(failure("dop"), Error::NoMethod { nearest: Some(name), .. } if name == "dpo"));
    }

    #[test]
    fn the_name_of_the_folder_where_one_is_means_that_folder() {
        let folder = tempfile::tempdir().unwrap();
        let calm = folder.path().join("calm-one");
        fs::create_dir_all(calm.join("src")).unwrap();
        fs::write(calm.join("Cargo.toml"), "").unwrap();
        let error = Reference::parse("calm-one", &calm).unwrap_err();
        assert!(matches!(error, Error::NoMethod { nearest: Some(name), .. } if name == "."));
    }
}
