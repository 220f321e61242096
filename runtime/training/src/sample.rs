//! The embedded sample: a tiny model, a run file, and data for each method.
//!
//! The build script embeds the files of this crate's folder `sample`. A run reads them as unpacked files.

use std::path::{Path, PathBuf};

use tunebox_foundation::files::{self, Draft};
use tunebox_package::digest::sha256;
use tunebox_package::{builtin, read_manifest};

use crate::configuration::RunSettings;
use crate::error::{Error, path_error};

/// Every file of the crate's folder `sample`: its path in that folder, and its bytes.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/sample.rs"));

/// The folder that the sample is unpacked to; no run can have this name.
const SAMPLE_FOLDER: &str = ".sample";

/// The run file for methods without their own.
pub const RUN_FILE: &str = include_str!("../sample/run.toml");

/// Whether a folder is an unpacked sample or a folder in it, judged by its path, or that of a run on the sample: it
/// then holds a `run.toml` that [`RunSettings::load`] accepts and whose `data.path` is of a sample.
#[must_use]
pub fn is_sample(folder: &Path) -> bool {
    let uses_sample = |run: RunSettings| is_of_sample(&run.path("data.path", &run.file.data.path));
    is_of_sample(folder) || RunSettings::load(&folder.join("run.toml"), &[]).is_ok_and(uses_sample)
}

/// Returns the text of the sample's run file for the built-in method named `method`; `None` if the sample has none for
/// it.
#[must_use]
pub fn run_file_of(method: &str) -> Option<&'static str> {
    embedded_text(&format!("{method}.toml"))
}

/// The text of the sample's run file of the first built-in method whose manifest names `shape` and that needs no
/// teacher; `None` if there is none.
#[must_use]
pub fn run_file_of_shape(shape: &str) -> Option<&'static str> {
    builtin::list().iter().find_map(|other| {
        let text = run_file_of(other.name).filter(|text| !text.contains("[[teacher]]"))?;
        (read_manifest(other.bytes).ok()?.shape == shape).then_some(text)
    })
}

/// Unpacks the embedded files into the folder `.sample` of `runs` and returns the path of `.sample`. Does nothing if
/// all of them are there and unchanged; otherwise replaces the whole folder atomically, and creates `runs` if it does
/// not exist.
///
/// # Errors
/// A folder that cannot be written.
pub fn unpack(runs: &Path) -> Result<PathBuf, Error> {
    let folder = runs.join(SAMPLE_FOLDER);
    let same = |(name, bytes): &(&str, &[u8])| {
        files::read(&folder.join(name), bytes.len() as u64).is_ok_and(|found| sha256(&found) == sha256(bytes))
    };
    if FILES.iter().all(same) {
        return Ok(folder);
    }
    files::create_folder(runs)?;
    let draft = Draft::begin(&folder)?;
    for (name, bytes) in FILES {
        if let Some(above) = Path::new(name).parent() {
            files::create_folder(&draft.path().join(above))?;
        }
        draft.write(name, bytes)?;
    }
    draft.commit()?;
    Ok(folder)
}

/// Whether a path leads to a file or folder of an unpacked sample, judged by the path alone: below a folder named
/// `.sample`, it is the path of an embedded file or of a folder above one, or it is `.sample` itself. It need not
/// exist.
pub(crate) fn is_of_sample(path: &Path) -> bool {
    split_at_sample(path).is_some_and(|(_, inside)| FILES.iter().any(|(name, _)| Path::new(name).starts_with(inside)))
}

/// Returns the path, in the same unpacked sample as `path`, of the first data file whose first line satisfies `fits`,
/// in the order of the embedded run files that name the data. Tests the embedded data, not the unpacked files. `None`
/// if `path` is not of a sample or no file fits.
pub(crate) fn find_data_beside(path: &Path, fits: impl Fn(&[u8]) -> bool) -> Option<PathBuf> {
    let (sample, _) = split_at_sample(path).filter(|_| is_of_sample(path))?;
    let data = |(name, text): &(&str, &[u8])| {
        let table: toml::Table = std::str::from_utf8(text).ok().filter(|_| name.ends_with(".toml"))?.parse().ok()?;
        table.get("data")?.get("path")?.as_str().map(str::to_owned)
    };
    let first = |name: &String| {
        embedded_text(name).and_then(|text| text.lines().next()).is_some_and(|line| fits(line.as_bytes()))
    };
    FILES.iter().filter_map(data).find(first).map(|name| sample.join(name))
}

/// Splits a path into the nearest folder named `.sample` above it, or the path itself, and the path below that folder.
/// `None` if there is no such folder.
fn split_at_sample(path: &Path) -> Option<(&Path, &Path)> {
    let sample = path.ancestors().find(|above| above.file_name().is_some_and(|name| name == SAMPLE_FOLDER))?;
    Some((sample, path.strip_prefix(sample).ok()?))
}

/// Fails if a path does not exist but leads to a file or folder of an unpacked sample ([`is_of_sample`]). The error
/// shows the command that unpacks the sample again. Does nothing for all other paths, whether they exist or not. A
/// sample is missing, for example, in a project that was copied without its runs.
pub(crate) fn check_present(path: &Path) -> Result<(), Error> {
    if path.exists() || !is_of_sample(path) {
        return Ok(());
    }
    let runs = split_at_sample(path).and_then(|(sample, _)| sample.parent());
    let project = runs.and_then(Path::parent).filter(|project| !project.as_os_str().is_empty());
    let option = project.map_or_else(String::new, |project| format!("-C {} ", project.display()));
    let what = "the model and data that come with tunebox are not here";
    let why = "they are unpacked by `--sample` and kept out of what is shared";
    Err(path_error(path, what, why, format!("`tunebox {option}train --sample --dry-run` puts them back")))
}

/// Returns the text of an embedded file, by its path in the folder `sample`; `None` if there is none or it is not
/// UTF-8.
fn embedded_text(name: &str) -> Option<&'static str> {
    let (_, bytes) = FILES.iter().find(|(path, _)| *path == name)?;
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    #[test]
    fn the_sample_is_unpacked_again_if_a_file_was_changed() {
        let runs = tempfile::tempdir().unwrap();
        let folder = unpack(runs.path()).unwrap();
        std::fs::write(folder.join("run.toml"), "damaged").unwrap();
        unpack(runs.path()).unwrap();

        assert_eq!(std::fs::read_to_string(folder.join("run.toml")).unwrap(), RUN_FILE);
    }

    #[test]
    fn files_of_the_sample_that_are_gone_are_told_with_what_puts_them_back() {
        let hint = |path: &str| check_present(Path::new(path)).unwrap_err().hint().unwrap();

        assert_eq!(hint("runs/.sample/model"), "`tunebox train --sample --dry-run` puts them back");
        assert_eq!(hint("calm/runs/.sample/model"), "`tunebox -C calm train --sample --dry-run` puts them back");
        assert!(check_present(Path::new("runs/nothing/model")).is_ok());
    }

    #[test]
    fn what_learned_from_the_sample_is_told_from_what_did_not() {
        let runs = tempfile::tempdir().unwrap();
        let run = runs.path().join("mine-1");
        std::fs::create_dir(&run).unwrap();
        assert!(is_sample(&runs.path().join(".sample/model")) && !is_sample(&run));
        for (data, learned) in [(".sample/lora.jsonl", true), ("mine.jsonl", false)] {
            let data = runs.path().join(data);
            let data = data.display();
            let text = format!("[model]\npath = \"m\"\n[data]\npath = \"{data}\"\n[method]\nuse = \"lora\"\n");
            std::fs::write(run.join("run.toml"), text).unwrap();
            assert_eq!(is_sample(&run), learned, "{data}");
        }
    }

    #[test]
    fn a_folder_of_the_user_with_the_name_of_the_samples_is_not_one() {
        let own = ["runs/.sample/model", "runs/.sample/lora.jsonl", "/at/home/.sample/model/config.json"];
        let other = [".sample/mine.jsonl", "/at/.sample/home/runs/model", "runs/sample/lora.jsonl"];
        for path in [own, other].concat() {
            assert_eq!(is_of_sample(Path::new(path)), own.contains(&path), "{path}");
        }
    }

    #[test]
    fn the_data_of_a_sample_that_fit_lie_beside_those_that_do_not() {
        let labeled =
            |line: &[u8]| line.starts_with(b"{\"prompt\"") && line.windows(7).any(|word| word == b"\"label\"");
        let beside = |path: &str| find_data_beside(Path::new(path), labeled);
        assert_eq!(beside("calm/runs/.sample/lora.jsonl"), Some(PathBuf::from("calm/runs/.sample/kto.jsonl")));
        assert_eq!(beside("calm/lora.jsonl"), None);
    }
}
