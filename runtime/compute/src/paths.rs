//! Paths as people read them, and the one that somebody probably meant.

use std::io::{Error, ErrorKind};
use std::path::{Component, Path, PathBuf};

use crate::nearest::nearest;

/// A path without its steps to where it is already: `././method` is `method`. `..` stays: what it leads to is for the
/// file system to say.
#[must_use]
pub fn plain(path: &Path) -> PathBuf {
    let plain: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    if plain.as_os_str().is_empty() { PathBuf::from(".") } else { plain }
}

/// What lies beside a path that leads nowhere and is called almost as its last part; written as the path is.
#[must_use]
pub fn meant(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(above).ok()?.flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    let found = nearest(name, names.iter().map(String::as_str).filter(|found| *found != name))?;
    Some(plain(&path.with_file_name(found)))
}

/// Why the system refused a file or folder, in words.
#[must_use]
pub fn why(error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file or folder".into(),
        ErrorKind::PermissionDenied => "this user may not do that there".into(),
        ErrorKind::IsADirectory => "it is a folder, not a file".into(),
        ErrorKind::NotADirectory => "a part of the path is a file, not a folder".into(),
        ErrorKind::StorageFull => "the disk is full".into(),
        ErrorKind::QuotaExceeded => "this user's share of the disk is full".into(),
        // Others say by this kind that they read no more.
        ErrorKind::FileTooLarge if error.raw_os_error().is_some() => {
            "the file would pass the largest size allowed here".into()
        }
        _ => error.to_string(),
    }
}

/// What to do about a file or folder that the system refused, where that is known.
#[must_use]
pub fn hint(path: &Path, error: &Error) -> Option<String> {
    if error.kind() != ErrorKind::NotFound {
        return None;
    }
    let meant = meant(path).map(|meant| format!("did you mean `{}`?", meant.display()));
    Some(meant.unwrap_or_else(|| "check the path".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_to_where_one_is_are_left_out() {
        for (written, read) in
            [("././method", "method"), ("./.", "."), (".", "."), ("a/./b", "a/b"), ("../a", "../a"), ("/./a", "/a")]
        {
            assert_eq!(plain(Path::new(written)), Path::new(read), "{written}");
        }
    }

    #[test]
    fn a_slip_in_the_last_part_of_a_path_finds_what_lies_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("me.key"), "").unwrap();

        assert_eq!(meant(&folder.path().join("me.kee")), Some(folder.path().join("me.key")));
        assert_eq!(meant(&folder.path().join("answers.jsonl")), None);
        assert_eq!(meant(&folder.path().join("nowhere/me.kee")), None);
    }

    #[test]
    fn what_the_system_refuses_is_told_in_words_with_what_was_meant() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("me.key"), "").unwrap();
        let path = folder.path().join("me.kee");
        let error = std::fs::read(&path).unwrap_err();

        assert_eq!(why(&error), "there is no such file or folder");
        assert_eq!(hint(&path, &error), Some(format!("did you mean `{}`?", folder.path().join("me.key").display())));
        assert_eq!(why(&Error::new(ErrorKind::FileTooLarge, "4 bytes, 3 are read")), "4 bytes, 3 are read");
    }
}
