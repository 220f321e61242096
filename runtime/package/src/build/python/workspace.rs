//! A temporary folder with everything that a build of a method in Python reads.
//!
//! The copies have a fixed modification time, and the component contains no path of this machine. So what it keeps of
//! the files does not depend on where the method's folder lies.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::super::failure::no_method_error;
use super::{WORLD_FILE, contract_files, native_modules, package_modules};
use crate::digest::{COMPILED_PYTHON, files_below, is_of_editor};
use crate::files::{self, create_folder, write};
use crate::{Error, World};

/// The name of the Python module that the component starts from.
pub(super) const ENTRY: &str = "tunebox_entry";

/// The folder of the contract's WIT files.
pub(super) const CONTRACT: &str = "wit";
/// The folder of the method's own modules.
pub(super) const SOURCE: &str = "source";
/// The folder of the package `tunebox` and of the module that the component starts from.
pub(super) const PACKAGE: &str = "package";
/// The folder of the modules of a native process, with which Python imports the source. None gets into the component.
pub(super) const NATIVE: &str = "native";
/// The folder of a virtual environment without packages, for methods that have no `.venv`.
pub(super) const EMPTY_ENVIRONMENT: &str = "environment";

/// The modification time of every copy, from the Unix epoch: the first second of 1980, which every file system can
/// store.
const MODIFICATION_TIME: Duration = Duration::from_secs(315_532_800);

/// The temporary folder of one build; deleted when dropped.
pub(super) struct Workspace {
    folder: TempDir,
}

impl Workspace {
    /// Returns the path of the temporary folder.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of a folder in the workspace, by a name of this module such as [`CONTRACT`].
    pub(super) fn subfolder(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes the module that the component starts from, which loads `module`: that of a component of `world`. Errors:
    /// the file cannot be written.
    pub(super) fn write_entry(&self, world: World, module: &str) -> Result<(), Error> {
        let (serving, class) = match world {
            World::Method => ("component", "Training"),
            World::Verifier => ("verify", "Verify"),
            World::Environment => ("respond", "Respond"),
        };
        let entry = format!("from tunebox.{serving} import {class}, load\n\nload(\"{module}\")\n");
        write(&self.subfolder(PACKAGE).join(ENTRY).with_extension("py"), entry.as_bytes())?;
        self.set_times()
    }

    /// Sets the modification times of the folder's modules and of the package to [`MODIFICATION_TIME`].
    fn set_times(&self) -> Result<(), Error> {
        [SOURCE, PACKAGE].iter().try_for_each(|tree| set_modification_times(&self.subfolder(tree)))
    }

    /// Rewrites the workspace's `world.wit` from the contract, so that the world `method` imports only these
    /// interfaces. Other worlds keep their imports. Errors: the file cannot be written.
    pub(super) fn limit_imports(&self, interfaces: &BTreeSet<String>) -> Result<(), Error> {
        let text = contract_files().find(|(name, _)| *name == WORLD_FILE).map_or(&b""[..], |(_, text)| text);
        write(
            &self.subfolder(CONTRACT).join(WORLD_FILE),
            world_with_imports(&String::from_utf8_lossy(text), interfaces).as_bytes(),
        )
    }
}

/// Creates a temporary folder with copies of the method's `src`, the package `tunebox`, the modules of a native process
/// and the contract, and with an empty virtual environment. Leaves out `__pycache__` and the files of [`is_of_editor`].
/// Sources and package get the modification time [`MODIFICATION_TIME`]. Errors: `src` has neither `<module>.py` nor
/// `<module>/__init__.py`, or a file cannot be read or written.
pub(super) fn create_workspace(folder: &Path, module: &str) -> Result<Workspace, Error> {
    let place = tempfile::tempdir().map_err(Error::file("created", std::env::temp_dir()))?;
    let place = Workspace { folder: place };
    let source = folder.join("src");
    if !source.join(format!("{module}.py")).is_file() && !source.join(module).join("__init__.py").is_file() {
        let problem = format!("`src/{module}.py` is missing, where `@method`, `@verifier` or `@environment` stands");
        return Err(no_method_error(folder, &problem));
    }
    let files = files_below(&source, Path::new(""), COMPILED_PYTHON)?;
    for file in files.iter().filter(|file| !is_of_editor(file)) {
        write(&place.subfolder(SOURCE).join(file), &files::read(&source.join(file))?)?;
    }
    for (name, text) in contract_files() {
        write(&place.subfolder(CONTRACT).join(name), text)?;
    }
    for (name, text) in package_modules() {
        write(&place.subfolder(PACKAGE).join(name), text)?;
    }
    for (name, text) in native_modules() {
        write(&place.subfolder(NATIVE).join(name), text)?;
    }
    create_folder(&place.subfolder(EMPTY_ENVIRONMENT).join("lib").join("site-packages"))?;
    place.set_times()?;
    Ok(place)
}

/// Returns `text`, the content of `world.wit`, without the lines `import NAME;` of the world `method` whose name is not
/// in `interfaces`. Lines of other worlds stay.
fn world_with_imports(text: &str, interfaces: &BTreeSet<String>) -> String {
    let mut inside = false;
    let kept = text.lines().filter(|line| {
        inside = line.starts_with("world method ") || (inside && !line.starts_with('}'));
        let import = line.trim().strip_prefix("import ").and_then(|rest| rest.strip_suffix(';'));
        !inside || import.is_none_or(|import| interfaces.contains(import))
    });
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// Sets the modification time of a folder and of everything below it to [`MODIFICATION_TIME`], the innermost first. A
/// folder that the system does not let change keeps its time.
fn set_modification_times(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        for entry in fs::read_dir(path).map_err(Error::file("read", path))? {
            set_modification_times(&entry.map_err(Error::file("read", path))?.path())?;
        }
    }
    let file = if path.is_dir() { File::open(path) } else { File::options().write(true).open(path) };
    match file.and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH + MODIFICATION_TIME)) {
        // Not every system lets a folder be opened; its own time then stays.
        Err(error) if !path.is_dir() => Err(Error::file("written", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrowed_world_imports_what_is_named_and_the_other_world_stays() {
        let text = "world method {\n  import types;\n  import text;\n\n  export training;\n}\n\nworld verifier {\n  \
                    import text;\n}\n";
        let wanted =
            "world method {\n  import types;\n\n  export training;\n}\n\nworld verifier {\n  import text;\n}\n";
        assert_eq!(world_with_imports(text, &BTreeSet::from(["types".to_owned()])), wanted);
    }

    #[test]
    fn copies_have_one_time_and_leave_out_what_is_no_source() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("src/calm.py"), b"").unwrap();
        write(&folder.path().join("src/__pycache__/calm.pyc"), b"").unwrap();
        // A lock of Emacs leads nowhere.
        std::os::unix::fs::symlink("somebody@here.1", folder.path().join("src/.#calm.py")).unwrap();
        let place = create_workspace(folder.path(), "calm").unwrap();
        let time = fs::metadata(place.subfolder(SOURCE).join("calm.py")).unwrap().modified().unwrap();
        assert_eq!(time, SystemTime::UNIX_EPOCH + MODIFICATION_TIME);
        assert!(!place.subfolder(SOURCE).join("__pycache__").exists());
        place.write_entry(World::Verifier, "calm").unwrap();
        let entry = place.subfolder(PACKAGE).join("tunebox_entry.py");
        assert_eq!(fs::metadata(&entry).unwrap().modified().unwrap(), time);
        assert!(fs::read_to_string(entry).unwrap().contains("from tunebox.verify import Verify, load"));
        assert!(create_workspace(folder.path(), "storm").is_err());
    }
}
