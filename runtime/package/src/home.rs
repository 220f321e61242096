//! The folder where a person's packages and known signers are kept.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tunebox_foundation::environment;
use tunebox_foundation::explain::Explanation;

use crate::constants::STORE_FOLDER;
use crate::{Error, files};

/// The environment variable that names the folder.
pub const VARIABLE: &str = "TUNEBOX_HOME";

/// Why no other user may own the folder or write to it, for errors.
const WHY_OWNED: &str = "it says which signers are trusted, so only this user may change it";

/// Returns the absolute path of this user's folder: `TUNEBOX_HOME`, else `tunebox` in the user's data folder. Creates
/// it if it is missing, for this user alone. Errors: neither that variable nor a home folder is known; the path is a
/// file; a user other than this one and root owns the folder or the store in it, or group or others may write there.
pub fn home() -> Result<PathBuf, Error> {
    let path = user_folder()?.ok_or_else(|| {
        Explanation::new("trust", "there is no folder to store packages in")
            .with_why(format!("neither `{VARIABLE}` nor a home folder is set"))
            .with_hint(format!("set `{VARIABLE}` to a folder of your own"))
    })?;
    create(&path)?;
    check_owner(&path.join(STORE_FOLDER))?;
    Ok(path)
}

/// Returns the absolute path of this user's folder if it exists, else `None`. Unlike [`home`], creates nothing and does
/// not check who may change the folder. Errors: the current folder, to which the path is relative, is unknown.
pub fn existing() -> Result<Option<PathBuf>, Error> {
    Ok(user_folder()?.filter(|path| path.is_dir()))
}

/// Returns the absolute path of this user's folder, whether it exists or not. `None` if no variable and no home folder
/// says where it is. Errors: the current folder, to which the path is relative, is unknown.
fn user_folder() -> Result<Option<PathBuf>, Error> {
    let path = choose_folder(&environment::variable, environment::home_folder());
    path.map(|path| std::path::absolute(&path).map_err(Error::file("found", &path))).transpose()
}

/// Returns where the user's folder is: `TUNEBOX_HOME`, else `tunebox` in `XDG_DATA_HOME` if that is absolute, else
/// `.local/share/tunebox` in the home folder `home`. `variable` reads an environment variable; an empty one counts as
/// not set, and so does an empty `home`. `None` if nothing is set.
fn choose_folder(variable: &dyn Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Option<PathBuf> {
    let named = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = named(VARIABLE) {
        return Some(path);
    }
    let home = home.filter(|path| !path.as_os_str().is_empty());
    let data = named("XDG_DATA_HOME").filter(|path| path.is_absolute());
    Some(data.or_else(|| Some(home?.join(".local").join("share")))?.join("tunebox"))
}

/// Creates a folder and its missing parents, for this user alone; an existing folder is only checked. Errors: the
/// folder cannot be created, a user other than this one and root owns it, or group or others may write to it.
pub(crate) fn create(path: &Path) -> Result<(), Error> {
    files::create_private_folder(path)?;
    check_owner(path)
}

/// Fails if a user other than this one and root owns a folder or file, or if group or others may write to it. Does
/// nothing if it does not exist.
pub(crate) fn check_owner(path: &Path) -> Result<(), Error> {
    if fs::symlink_metadata(path).is_ok() { check_owned_by(path, rustix::process::geteuid().as_raw()) } else { Ok(()) }
}

/// Fails if `path`, or what it links to, is owned by anybody but `user` and root, or if group or others may write to
/// what it links to. The owner of the link counts too: another user could make it lead elsewhere.
fn check_owned_by(path: &Path, user: u32) -> Result<(), Error> {
    let about = fs::metadata(path).map_err(Error::file("read", path))?;
    let link = fs::symlink_metadata(path).map_err(Error::file("read", path))?;
    let (is_foreign, shown) =
        ([about.uid(), link.uid()].iter().any(|owner| ![user, 0].contains(owner)), path.display());
    let (what, hint) = if is_foreign {
        let own = format!("set `{VARIABLE}` to a folder of your own; or give this one to this user");
        let hint = format!("{own}, if all that it holds is yours: `chown -R \"$(id -u)\" {shown}`");
        (format!("`{shown}` belongs to another user"), hint)
    } else if about.mode() & 0o022 != 0 {
        let hint = format!("`chmod go-w {shown}`, if all that it holds is yours");
        (format!("others may write into `{shown}`"), hint)
    } else {
        return Ok(());
    };
    Err(Explanation::new("trust", what).with_why(WHY_OWNED).with_hint(hint).into())
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    fn found(variables: &[(&str, &str)], person: Option<&str>) -> Option<PathBuf> {
        let value = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        choose_folder(&value, person.map(PathBuf::from))
    }

    #[test]
    fn the_variable_of_its_own_comes_before_the_standard_and_the_standard_before_the_default() {
        let both = [("TUNEBOX_HOME", "/t"), ("XDG_DATA_HOME", "/x")];
        for (variables, path) in [
            (&both[..], "/t"),
            (&both[1..], "/x/tunebox"),
            (&[("XDG_DATA_HOME", "not/absolute")], "/p/.local/share/tunebox"),
            (&[("TUNEBOX_HOME", "")], "/p/.local/share/tunebox"),
        ] {
            assert_eq!(found(variables, Some("/p")).unwrap(), Path::new(path), "{variables:?}");
        }
        assert_eq!(found(&[], None), None);
    }

    #[test]
    fn the_folder_is_made_for_one_user_and_refused_where_others_may_write() {
        use std::os::unix::fs::PermissionsExt;
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("a").join("tunebox");
        create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        let error = create(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("others may write into `{}`", path.display()));
        assert_eq!(error.hint().unwrap(), format!("`chmod go-w {}`, if all that it holds is yours", path.display()));
    }

    #[test]
    fn a_folder_or_a_link_of_another_user_is_refused() {
        use std::os::unix::fs::{lchown, symlink};
        let above = tempfile::tempdir().unwrap();
        let (path, link) = (above.path().join("tunebox"), above.path().join("link"));
        create(&path).unwrap();
        symlink(&path, &link).unwrap();
        let mut owner = fs::metadata(&path).unwrap().uid();
        assert!(check_owned_by(&path, owner).is_ok() && check_owned_by(&link, owner).is_ok());
        if owner == 0 {
            // An administrator's folder belongs to no other user, so the test gives the link away.
            owner = 4242;
            lchown(&link, Some(owner), None).unwrap();
        }
        let error = check_owned_by(&link, owner + 1).unwrap_err();
        assert_eq!(error.to_string(), format!("`{}` belongs to another user", link.display()));
        let hint = error.hint().unwrap();
        assert!(hint.ends_with(&format!("`chown -R \"$(id -u)\" {}`", link.display())), "{hint}");
    }
}
