//! The folder where a person's packages, known signers and the sources of the SDK are kept.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use tunebox_compute::explain::Explain;

use crate::Error;

/// The variable that names the folder.
pub const VARIABLE: &str = "TUNEBOX_HOME";

/// Why there is no such folder, or none that can be trusted.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// Nothing says where it is.
    #[error("there is no place to keep packages in")]
    Nowhere,
    /// Others can put into it what they like.
    #[error("others may write into `{path}`", path = path.display())]
    Open {
        /// The folder.
        path: PathBuf,
    },
}

impl Explain for HomeError {
    fn area(&self) -> &'static str {
        "trust"
    }

    fn why(&self) -> Option<String> {
        Some(match self {
            Self::Nowhere => format!("neither `{VARIABLE}` nor a home folder is set"),
            Self::Open { .. } => "it says which signers are trusted, so it must be this user's alone to change".into(),
        })
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Nowhere => format!("set `{VARIABLE}` to a folder of your own"),
            Self::Open { path } => format!("`chmod 700 {}`, if all that it holds is yours", path.display()),
        })
    }
}

/// The folder, made if need be and for this user alone: `TUNEBOX_HOME`, else `tunebox` among the person's data.
/// Errors: no place for it, a file in its place, a folder that others may write into.
pub fn home() -> Result<PathBuf, Error> {
    let path = place(&|name| env::var_os(name), env::home_dir()).ok_or(HomeError::Nowhere)?;
    let path = std::path::absolute(&path).map_err(Error::file("find", &path))?;
    make(&path)?;
    Ok(path)
}

/// The folder, if it is there already; nothing is made. Errors: as [`home`].
pub fn existing() -> Result<Option<PathBuf>, Error> {
    match place(&|name| env::var_os(name), env::home_dir()) {
        Some(path) if path.is_dir() => home().map(Some),
        _ => Ok(None),
    }
}

/// Where the folder is, by the variables of the environment and the person's own folder.
fn place(variable: &dyn Fn(&str) -> Option<OsString>, person: Option<PathBuf>) -> Option<PathBuf> {
    let named = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = named(VARIABLE) {
        return Some(path);
    }
    let person = person.filter(|path| !path.as_os_str().is_empty());
    let data = if cfg!(windows) {
        named("LOCALAPPDATA").or_else(|| Some(person?.join("AppData").join("Local")))
    } else {
        let absolute = named("XDG_DATA_HOME").filter(|path| path.is_absolute());
        absolute.or_else(|| Some(person?.join(".local").join("share")))
    };
    Some(data?.join("tunebox"))
}

/// Makes a folder for this user alone, with those above it, and refuses one that others may change.
pub(crate) fn make(path: &Path) -> Result<(), Error> {
    let mut folders = fs::DirBuilder::new();
    folders.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut folders, 0o700);
    folders.create(path).map_err(Error::file("make", path))?;
    #[cfg(unix)]
    {
        let about = fs::metadata(path).map_err(Error::file("read", path))?;
        if std::os::unix::fs::MetadataExt::mode(&about) & 0o022 != 0 {
            return Err(HomeError::Open { path: path.to_owned() }.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)], person: Option<&str>) -> Option<PathBuf> {
        let value = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        place(&value, person.map(PathBuf::from))
    }

    #[test]
    #[cfg(not(windows))]
    fn the_variable_of_its_own_comes_before_the_standard_and_the_standard_before_the_default() {
        let both = [("TUNEBOX_HOME", "/t"), ("XDG_DATA_HOME", "/x")];
        assert_eq!(found(&both, Some("/p")).unwrap(), Path::new("/t"));
        assert_eq!(found(&both[1..], Some("/p")).unwrap(), Path::new("/x/tunebox"));
        assert_eq!(
            found(&[("XDG_DATA_HOME", "not/absolute")], Some("/p")).unwrap(),
            Path::new("/p/.local/share/tunebox")
        );
        assert_eq!(found(&[("TUNEBOX_HOME", "")], Some("/p")).unwrap(), Path::new("/p/.local/share/tunebox"));
        assert_eq!(found(&[], None), None);
    }

    #[test]
    #[cfg(unix)]
    fn the_folder_is_made_for_one_user_and_refused_where_others_may_write() {
        use std::os::unix::fs::PermissionsExt;
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("a").join("tunebox");
        make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        let error = make(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("others may write into `{}`", path.display()));
        assert_eq!(error.hint().unwrap(), format!("`chmod 700 {}`, if all that it holds is yours", path.display()));
    }
}
