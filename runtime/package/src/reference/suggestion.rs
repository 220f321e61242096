//! The suggestion for a name that means nothing.

use std::path::Path;

use tunebox_foundation::paths;

use super::stored;
use crate::builtin::Builtin;
use crate::{Error, build};
use tunebox_foundation::nearest::nearest;

/// Returns what a person probably meant by a name that was not found: `.` if `base` is itself a method's folder of that
/// name, else the nearest name among stored packages, method folders in `base` and `built_in`. `None` if no name is
/// near. For a text of at most three letters, a built-in name is suggested only if no other name is near. Errors: a
/// store that cannot be read.
pub(super) fn suggest(text: &str, base: &Path, built_in: &[Builtin]) -> Result<Option<String>, Error> {
    if paths::resolve(base).file_name().is_some_and(|name| name == text) && build::expect_method(base).is_ok() {
        return Ok(Some(".".to_owned()));
    }
    let (packages, folders) = (stored::list_packages()?, build::methods_in(base));
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

    /// The name that is suggested for one that is not found in a folder.
    fn nearest(text: &str, base: &Path) -> Option<String> {
        match Reference::parse(text, base) {
            Err(Error::NoMethod { nearest, .. }) => nearest,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_one_that_exists_if_it_is_alone() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(nearest("lorra", here).as_deref(), Some("lora"));
        assert_eq!(nearest("dop", here).as_deref(), Some("dpo"));
        assert_eq!(nearest("npo", here), None, "both `cpo` and `dpo` are as near");
    }

    #[test]
    fn a_folder_is_suggested_where_it_holds_a_method_of_such_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let calm = folder.path().join("calm-one");
        fs::create_dir_all(calm.join("src")).unwrap();
        assert_eq!(nearest("calm-oen", folder.path()), None, "a folder without a method");
        fs::write(calm.join("Cargo.toml"), "").unwrap();
        assert_eq!(nearest("calm-oen", folder.path()).as_deref(), Some("calm-one"));
        assert_eq!(nearest("calm-one", &calm).as_deref(), Some("."), "the folder where one is");
        let Ok(Reference::Folder(found)) = Reference::parse("./.", Path::new(".")) else { panic!("no folder") };
        assert_eq!(found, Path::new("."));
    }
}
