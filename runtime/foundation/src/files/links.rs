//! Checks untrusted folders for symbolic links, which would redirect reads, writes and removals.

use std::fs;
use std::io;
use std::path::Path;

use super::FileError;

/// Fails if `folder`, or an entry at most `depth` levels below it, is a symbolic link or neither a file nor a folder.
/// With `depth` 0 checks `folder` alone. Does nothing if `folder` does not exist; it may be a file.
///
/// # Errors
/// Names the first such entry, or a folder that cannot be listed.
pub fn reject_links(folder: &Path, depth: usize) -> Result<(), FileError> {
    let about = match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(FileError::at("read", folder))?,
    };
    let kind = about.file_type();
    if kind.is_symlink() {
        return Err(FileError::at("used", folder)(io::Error::other("it is a link, and may lead anywhere")));
    }
    if !kind.is_dir() && !kind.is_file() {
        return Err(FileError::at("used", folder)(io::Error::other("it is neither a file nor a folder")));
    }
    if depth == 0 || !kind.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(FileError::at("read", folder))? {
        reject_links(&entry.map_err(FileError::at("read", folder))?.path(), depth - 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_is_found_wherever_it_leads_and_however_deep_it_is() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path().join("run");
        fs::create_dir_all(run.join("steps/000001")).unwrap();
        fs::write(run.join("run.lock"), "").unwrap();
        assert!(reject_links(&run, 3).is_ok() && reject_links(&place.path().join("none"), 3).is_ok());
        for (link, to) in
            [("steps/000001/state.json", "/etc/passwd"), ("metrics.jsonl", "nowhere"), ("steps/000002", "..")]
        {
            symlink(to, run.join(link)).unwrap();
            let error = reject_links(&run, 3).unwrap_err();
            assert_eq!((error.action, error.path), ("used", run.join(link)));
            fs::remove_file(run.join(link)).unwrap();
        }
        symlink(&run, place.path().join("alias")).unwrap();
        assert!(reject_links(&place.path().join("alias"), 3).is_err());
        let pipe = run.join("metrics.jsonl");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(reject_links(&run, 1).is_err());
    }
}
