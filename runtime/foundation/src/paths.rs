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

/// The whole path of a place, which is one however somebody got there: without links and `..`, as far as there is
/// something.
#[must_use]
pub fn whole(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for above in path.ancestors() {
        if let Ok(real) = above.canonicalize() {
            let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
            return unmarked(real).components().chain(rest.components()).collect();
        }
    }
    path
}

/// A path as people write it, where the system marks the form that may be longest.
fn unmarked(path: PathBuf) -> PathBuf {
    match path.to_str().and_then(|text| text.strip_prefix(r"\\?\")).filter(|text| !text.starts_with("UNC")) {
        Some(text) => PathBuf::from(text),
        None => path,
    }
}

/// What lies beside a path that leads nowhere and is called almost as its last part; written as the path is.
#[must_use]
pub fn meant(path: &Path) -> Option<PathBuf> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(above).ok()?.flatten();
    let mut others: Vec<PathBuf> = entries.map(|entry| plain(&entry.path())).collect();
    others.sort();
    closest(path, &others)
}

/// The one of some paths whose last part is almost that of a path that leads nowhere.
#[must_use]
pub fn closest(path: &Path, others: &[PathBuf]) -> Option<PathBuf> {
    let last = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
    let name = last(path)?;
    let names: Vec<String> = others.iter().filter_map(|other| last(other)).filter(|other| *other != name).collect();
    let found = nearest(&name, names.iter().map(String::as_str))?;
    others.iter().find(|other| last(other).as_deref() == Some(found)).cloned()
}

/// The question whether somebody meant what lies beside a path that leads nowhere.
#[must_use]
pub fn did_you_mean(path: &Path) -> Option<String> {
    meant(path).map(|meant| format!("did you mean `{}`?", meant.display()))
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
    Some(did_you_mean(path).unwrap_or_else(|| "check the path".into()))
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
    #[cfg(unix)]
    fn all_ways_to_a_place_are_one_path_and_a_link_is_followed_before_what_stands_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("far/stick")).unwrap();
        std::os::unix::fs::symlink(root.join("far/stick"), root.join("link")).unwrap();
        for (written, there) in [
            ("far/stick", "far/stick"),
            ("./link/", "far/stick"),
            ("far/stick/../../link/new/one", "far/stick/new/one"),
            ("link/../new", "far/new"),
            ("new/../link", "new/../link"),
        ] {
            assert_eq!(whole(&root.join(written)), root.join(there), "{written}");
        }
        assert_eq!(whole(Path::new(".")), std::env::current_dir().unwrap().canonicalize().unwrap());
    }

    #[test]
    fn a_slip_in_the_last_part_of_a_path_finds_what_lies_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("me.key"), "").unwrap();

        let key = folder.path().join("me.key");
        assert_eq!(meant(&folder.path().join("me.kee")), Some(key.clone()));
        let question = format!("did you mean `{}`?", key.display());
        assert_eq!(did_you_mean(&folder.path().join("./me.kee")), Some(question));
        assert_eq!(did_you_mean(&folder.path().join("answers.jsonl")), None);
        assert_eq!(meant(&folder.path().join("answers.jsonl")), None);
        assert_eq!(meant(&folder.path().join("nowhere/me.kee")), None);
    }

    #[test]
    fn of_paths_that_are_given_the_one_with_the_closest_last_part_is_found() {
        let others = ["methods/calm", "methods/fresh", "frsh"].map(PathBuf::from);
        assert_eq!(closest(Path::new("methods/frsh"), &others), Some("methods/fresh".into()), "never itself");
        assert_eq!(closest(Path::new("methods/elsewhere"), &others), None);
    }

    #[test]
    fn what_the_system_refuses_is_told_in_words_with_what_was_meant() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("me.key"), "").unwrap();
        let path = folder.path().join("me.kee");
        let error = std::fs::read(&path).unwrap_err();

        assert_eq!(why(&error), "there is no such file or folder");
        assert_eq!(hint(&path, &error), Some(format!("did you mean `{}`?", folder.path().join("me.key").display())));
        assert_eq!(
            why(&Error::new(ErrorKind::FileTooLarge, "4 bytes; at most 3 are read")),
            "4 bytes; at most 3 are read"
        );
    }
}
