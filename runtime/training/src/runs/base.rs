//! Finds the model that a run was trained on, and what a run of directions steers.

use std::path::{Path, PathBuf};

use tunebox_foundation::bounded;
use tunebox_foundation::explain::Explanation;

use super::find::ADAPTER;
use crate::error::{Error, path_error};
use crate::learner::directions;
use crate::lock::is_run;

/// The run file in a run's folder, whose paths are absolute.
const RUN_FILE: &str = "run.toml";

/// The most bytes of a [`RUN_FILE`] that are read for the path of its model.
const MAX_RUN_FILE_BYTES: u64 = 1 << 20;

/// Resolves the base model that the `adapter_config.json` in the folder `adapter` names as `name`, so that a run can be
/// used from any folder. Returns an absolute path as it is. For any other name, returns the first of these that exists:
///
/// * the model of the run's `run.toml`, if `adapter` is the folder of a run or of its checkpoint and the last part of
///   that model's path is that of `name`;
/// * `name` in the present folder;
/// * `name` in `adapter` or in one of the four folders above it.
///
/// Otherwise returns `name`, which may be one of a hub.
///
/// # Errors
/// None of these exists, and the run's `run.toml` says that its model was a local one.
pub fn find_base(adapter: &Path, name: &str) -> Result<String, Error> {
    let written = Path::new(name);
    if written.is_absolute() {
        return Ok(name.to_owned());
    }
    let is_same = |path: &PathBuf| written.file_name().is_none_or(|last| path.file_name() == Some(last));
    let recorded = recorded_model(adapter).filter(is_same);
    let above = std::path::absolute(adapter).unwrap_or_else(|_| adapter.to_owned());
    let beside = above.ancestors().take(5).map(|folder| folder.join(written));
    let found = recorded.iter().cloned().chain([written.to_owned()]).chain(beside).find(|path| path.exists());
    match (found, recorded) {
        (Some(found), _) => Ok(found.to_string_lossy().into_owned()),
        (None, None) => Ok(name.to_owned()),
        (None, Some(missing)) => Err(missing_base(&missing)),
    }
}

/// Finds what a finished run that left only directions steers with: the file of its vectors, and the model `base`, or
/// the one that the run read them from if `base` is not given. `None` for any other folder.
///
/// # Errors
/// Without `base`: a run whose `run.toml` cannot be read or names no model, and one whose model was a path of this
/// machine that is not there any more.
pub fn find_steering(folder: &Path, base: Option<&str>) -> Result<Option<(PathBuf, String)>, Error> {
    let vectors = folder.join(directions::FILE);
    let holds = |name: &str| folder.join(name).is_file();
    if !is_run(folder) || !vectors.is_file() || holds(ADAPTER) || holds("config.json") {
        return Ok(None);
    }
    if let Some(base) = base {
        return Ok(Some((vectors, base.to_owned())));
    }
    let model = named_model(folder).ok_or_else(|| {
        let why = "its `run.toml` is missing or names no model";
        let hint = "name it with `--base-model MODEL`";
        path_error(folder, "the model of the run is not known", why, hint)
    })?;
    if Path::new(&model).is_absolute() && !Path::new(&model).exists() {
        return Err(missing_base(Path::new(&model)));
    }
    Ok(Some((vectors, model)))
}

/// The model in the `run.toml` of the run in `folder`, as `NAME@REVISION` if it is one of a hub with a revision; `None`
/// if the file cannot be read or names none.
fn named_model(folder: &Path) -> Option<String> {
    let text = bounded::read_text(&folder.join(RUN_FILE), MAX_RUN_FILE_BYTES).ok()?;
    let file: toml::Table = text.parse().ok()?;
    let model = file.get("model")?;
    let text = |key: &str| Some(model.get(key)?.as_str()?.to_owned());
    let path = text("path")?;
    Some(match text("revision") {
        Some(revision) if !path.contains('@') && !Path::new(&path).is_absolute() => format!("{path}@{revision}"),
        _ => path,
    })
}

/// The error about a base model of a run that was a path of this machine and is gone.
fn missing_base(missing: &Path) -> Error {
    let what = format!("the base model of the run, `{}`, is not there", missing.display());
    let why = "the run trained on a model of this machine, and a hub is never asked for one";
    let hint = "name its folder or file with `--base-model PATH`";
    Explanation::new("training", what).with_why(why).with_hint(hint).into()
}

/// The model's path in the `run.toml` of the run in `adapter`, or two folders above it for a checkpoint; `None` if
/// neither folder holds a run, or the file cannot be read or names no absolute path.
fn recorded_model(adapter: &Path) -> Option<PathBuf> {
    let run = [Some(adapter), adapter.ancestors().nth(2)].into_iter().flatten().find(|folder| is_run(folder))?;
    named_model(run).map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{checkpoint, lock};

    #[test]
    fn the_base_of_a_run_is_found_from_any_folder() {
        let place = tempfile::tempdir().unwrap();
        let (model, project) = (place.path().join("models/small"), place.path().join("project"));
        let run = project.join("runs/one");
        let checkpoint = checkpoint::folder(&run, 10);
        for folder in [&model, &checkpoint, &project.join("models/copy")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(run.join(lock::FILE), "steps = 20\n").unwrap();
        let base = |folder: &Path, name: &str| find_base(folder, name).map(PathBuf::from);
        assert_eq!(base(&run, "models/copy").unwrap(), project.join("models/copy"), "in a folder above the run");
        assert_eq!(base(&run, "owner/small").unwrap(), PathBuf::from("owner/small"), "a name on a hub");

        let record = |path: &Path| {
            fs::write(run.join("run.toml"), format!("[model]\npath = \"{}\"\n", path.display())).unwrap();
        };
        record(&model);
        for folder in [&run, &checkpoint] {
            assert_eq!(base(folder, "models/small").unwrap(), model, "as its run file says");
        }
        assert_eq!(base(&run, "/elsewhere/small").unwrap(), PathBuf::from("/elsewhere/small"), "as it is written");
        assert_eq!(base(&run, "models/copy").unwrap(), project.join("models/copy"), "named by a person since");
        record(&place.path().join("gone/small"));
        let error = base(&run, "weights/small").unwrap_err();
        assert!(error.to_string().contains("gone/small`, is not there"), "{error}");
    }

    #[test]
    fn a_run_that_left_only_directions_steers_the_model_that_it_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(lock::FILE), "left = \"directions\"\n").unwrap();
        let steering =
            |base: Option<&str>| find_steering(folder.path(), base).map(|found| found.map(|(_, model)| model));
        let record = |text: &str| fs::write(folder.path().join(RUN_FILE), format!("[model]\n{text}\n")).unwrap();
        assert_eq!(steering(None).unwrap(), None, "it has no vectors");
        fs::write(folder.path().join(directions::FILE), "").unwrap();
        assert!(steering(None).unwrap_err().to_string().contains("the model of the run is not known"));
        record("path = \"owner/small\"\nrevision = \"v2\"");
        assert_eq!(steering(None).unwrap().as_deref(), Some("owner/small@v2"));
        record("path = \"/gone/small\"");
        assert!(steering(None).unwrap_err().to_string().contains("gone/small`, is not there"));
        assert_eq!(steering(Some("here")).unwrap().as_deref(), Some("here"));
        fs::write(folder.path().join(ADAPTER), "{}").unwrap();
        assert_eq!(steering(None).unwrap(), None, "it has an adapter");
    }
}
