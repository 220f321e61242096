//! Simplified and resolved paths, suggestions for misspelled ones, and messages for errors of the file system.

use std::io::{Error, ErrorKind};
use std::path::{Component, Path, PathBuf};

use crate::nearest::nearest;

/// Returns the parent folder of a path; `.` for a bare name, for the root and for an empty path.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes every `.` component and every repeated or trailing slash: `././method` becomes `method`. `.` and an empty
/// path become `.`. Keeps `..`, because after a symbolic link only the file system knows where it leads. Does not touch
/// the file system.
#[must_use]
pub fn simplify(path: &Path) -> PathBuf {
    let plain: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    if plain.as_os_str().is_empty() { PathBuf::from(".") } else { plain }
}

/// Makes a path absolute, by the current folder, and resolves symbolic links and `..` in its longest part that exists
/// and can be read; the rest is appended as written, `..` included. All paths to an existing file or folder give the
/// same result. An empty path stays empty.
#[must_use]
pub fn resolve(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for above in path.ancestors() {
        if let Ok(real) = above.canonicalize() {
            let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
            return real.components().chain(rest.components()).collect();
        }
    }
    path
}

/// Finds the entry of the path's parent folder whose name is most similar to the path's last component by [`nearest`],
/// but not equal to it; of equally similar ones the first by name. Returns the entry's path without `.` components.
/// `None` if no name is similar enough, or the parent folder cannot be listed.
#[must_use]
pub fn similar_entry(path: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(parent(path)).ok()?.flatten();
    let mut others: Vec<PathBuf> = entries.map(|entry| simplify(&entry.path())).collect();
    others.sort();
    most_similar(path, &others)
}

/// Finds the path among `others` whose last component is most similar to that of `path` by [`nearest`], so that it is
/// probably a misspelling; the first of equals. Skips paths whose last component equals that of `path` or is not UTF-8.
/// `None` if no other component is similar enough.
#[must_use]
pub fn most_similar(path: &Path, others: &[PathBuf]) -> Option<PathBuf> {
    let last = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
    let name = last(path)?;
    let names: Vec<String> = others.iter().filter_map(|other| last(other)).filter(|other| *other != name).collect();
    let found = nearest(&name, names.iter().map(String::as_str))?;
    others.iter().find(|other| last(other).as_deref() == Some(found)).cloned()
}

/// Returns the hint "did you mean `…`?" with the entry that [`similar_entry`] finds. `None` if it finds none.
#[must_use]
pub fn did_you_mean(path: &Path) -> Option<String> {
    similar_entry(path).map(|meant| format!("did you mean `{}`?", meant.display()))
}

/// Describes an error of the file system in plain words, without the path: not found, no permission, a folder where a
/// file is meant and the reverse, a full disk or quota, and a file beyond the system's size limit. Returns the text of
/// the system for any other error.
#[must_use]
pub fn describe_io_error(error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file or folder".into(),
        ErrorKind::PermissionDenied => "this user has no permission".into(),
        ErrorKind::IsADirectory => "it is a folder, not a file".into(),
        ErrorKind::NotADirectory => "a part of the path is a file, not a folder".into(),
        ErrorKind::StorageFull => "the disk is full".into(),
        ErrorKind::QuotaExceeded => "this user's share of the disk is full".into(),
        // Our own bounded reads use this kind too, without a system error number, and have their own text.
        ErrorKind::FileTooLarge if error.raw_os_error().is_some() => {
            "the file would pass the largest size allowed here".into()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::Explain as _;
    use crate::files::FileError;

    #[test]
    fn steps_to_where_one_is_are_left_out() {
        for (written, read) in
            [("././method", "method"), ("./.", "."), (".", "."), ("a/./b", "a/b"), ("../a", "../a"), ("/./a", "/a")]
        {
            assert_eq!(simplify(Path::new(written)), Path::new(read), "{written}");
        }
    }

    #[test]
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
            assert_eq!(resolve(&root.join(written)), root.join(there), "{written}");
        }
        assert_eq!(resolve(Path::new(".")), std::env::current_dir().unwrap().canonicalize().unwrap());
    }

    #[test]
    fn a_slip_in_the_last_part_of_a_path_finds_what_lies_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("me.key"), "").unwrap();

        let (key, path) = (folder.path().join("me.key"), folder.path().join("me.kee"));
        assert_eq!(similar_entry(&path), Some(key.clone()));
        let question = Some(format!("did you mean `{}`?", key.display()));
        assert_eq!(did_you_mean(&folder.path().join("./me.kee")), question);
        assert_eq!(did_you_mean(&folder.path().join("answers.jsonl")), None);
        assert_eq!(similar_entry(&folder.path().join("answers.jsonl")), None);
        assert_eq!(similar_entry(&folder.path().join("nowhere/me.kee")), None);

        let error = std::fs::read(&path).unwrap_err();
        assert_eq!(describe_io_error(&error), "there is no such file or folder");
        assert_eq!(FileError::at("read", &path)(error).hint(), question);
        let large = Error::new(ErrorKind::FileTooLarge, "4 bytes; at most 3 are read");
        assert_eq!(describe_io_error(&large), "4 bytes; at most 3 are read");
    }

    #[test]
    fn of_paths_that_are_given_the_one_with_the_closest_last_part_is_found() {
        let others = ["methods/calm", "methods/fresh", "frsh"].map(PathBuf::from);
        assert_eq!(most_similar(Path::new("methods/frsh"), &others), Some("methods/fresh".into()), "never itself");
        assert_eq!(most_similar(Path::new("methods/elsewhere"), &others), None);
    }
}
