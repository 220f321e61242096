//! Finds a run or model by the name that the user gave.
//!
//! The name of a run is never looked up on a hub, where it would name the model of another person.

use std::path::{Component, Path, PathBuf};

use tunebox_foundation::explain::Explanation;
use tunebox_foundation::nearest::nearest;
use tunebox_foundation::{files, paths};
use tunebox_model::Source;
use tunebox_model::hub::Hub;

use super::run_lock::is_running;
use crate::checkpoint::{self, State};
use crate::configuration::{ENDLESS, RUNS_FOLDER};
use crate::error::{Error, path_error};
use crate::lock::{self, is_run};

/// A file of every adapter and of no model.
pub(super) const ADAPTER: &str = "adapter_config.json";

/// Names of folders for models and data. Before a `/` such a name is taken for a folder, never for an owner on a hub.
const LOCAL_FOLDERS: [&str; 5] = ["adapters", "checkpoints", "data", "model", "models"];

/// Finds a model: a folder, a GGUF file, or, if no such path exists, a name on the hub. Fetches the files of the hub's
/// model that are not present, unless `offline`. `revision` counts only for a hub name without an `@revision`.
///
/// # Errors
/// A model that does not exist or cannot be fetched, the name of a run that does not exist, and a name that looks like
/// a path of this machine, where nothing is.
pub fn find_model(name: &str, revision: Option<&str>, offline: bool) -> Result<Source, Error> {
    reject_missing_run(Path::new(name))?;
    reject_missing_path(name)?;
    Ok(Source::find(name, revision, &Hub::from_environment(offline))?)
}

/// Finds a reward model: a folder, or, if no such path exists, a name on the hub. Fetches the files of the hub's model
/// that are not present, unless `offline`.
///
/// # Errors
/// A folder that holds no reward model, a model that cannot be fetched, and a name that looks like a path of this
/// machine, where nothing is.
pub(crate) fn find_reward_model(name: &str, offline: bool) -> Result<Source, Error> {
    reject_missing_path(name)?;
    Ok(tunebox_model::reward::find_reward_model(name, &Hub::from_environment(offline))?)
}

/// Finds the folder of a run: the one at the path `name`, else the one of that name in `runs`.
///
/// # Errors
/// Neither is the folder of a run.
pub fn find_run(name: &Path) -> Result<PathBuf, Error> {
    let runs = Path::new(RUNS_FOLDER);
    let places = [name.to_owned(), runs.join(name)];
    if let Some(folder) = places.into_iter().find(|folder| is_run(folder)) {
        return Ok(paths::simplify(&folder));
    }
    let alone = name.file_name().unwrap_or_default().to_string_lossy();
    let hint = nearest_run(&alone, runs)
        .map_or("`tunebox list --runs` shows the runs that are here".into(), |similar| {
            format!("did you mean `{}`?", runs.join(similar).display())
        });
    let why = "neither the path nor a folder of that name in `runs` holds a `run.lock`";
    let what = format!("there is no run `{}`", name.display());
    Err(Explanation::new("training", what).with_why(why).with_hint(hint).into())
}

/// Returns the step and folder of the newest readable checkpoint of an unfinished run, for use as an adapter. `None` if
/// the folder holds no run or a finished one. A state of more than 4 MiB counts as readable without being read.
///
/// # Errors
/// A run without a checkpoint, one that trains all weights, one without an update up to that checkpoint, and one whose
/// folder holds a link.
pub fn newest_checkpoint(folder: &Path) -> Result<Option<(u64, PathBuf)>, Error> {
    if !is_run(folder) || lock::has_finished(folder) {
        return Ok(None);
    }
    checkpoint::reject_links(folder)?;
    let Some((step, checkpoint)) = checkpoint::last_readable(folder) else {
        return Err(unfinished_error(folder, "it has no checkpoint yet"));
    };
    if !checkpoint.join(ADAPTER).is_file() {
        return Err(unfinished_error(folder, "it trains all weights, and leaves a model only at its end"));
    }
    if State::read_small(&checkpoint)?.is_some_and(|state| state.updates == 0) {
        return Err(unfinished_error(folder, "it had learned nothing up to its last checkpoint"));
    }
    Ok(Some((step, checkpoint)))
}

/// Returns the option of `tunebox train` that starts a new run from what `folder` holds, in backticks: `--set
/// model.adapter=…` if it has an `adapter_config.json`, else `--model …` if it has a `config.json`; `None` otherwise.
pub(crate) fn start_option(folder: &Path) -> Option<String> {
    let (shown, holds) = (folder.display(), |name: &str| folder.join(name).is_file());
    if holds(ADAPTER) {
        return Some(format!("`--set model.adapter={shown}`"));
    }
    holds("config.json").then(|| format!("`--model {shown}`"))
}

/// The error about a run that is used in a way that needs a finished run. `why` is the cause. The hint depends on the
/// run: to wait if a process trains it, to train anew if it has no readable checkpoint, else the command that resumes
/// it.
pub(crate) fn unfinished_error(folder: &Path, why: &str) -> Error {
    let name = folder.file_name().unwrap_or_default().display();
    let hint = if is_running(folder) {
        "a process trains it: wait for its end, or for its next checkpoint".to_owned()
    } else if checkpoint::last_readable(folder).is_none() {
        "start a new run: this one saved no checkpoint to continue from".to_owned()
    } else if is_endless(folder) {
        format!("`tunebox dev` continues it with `--resume --name {name}`; `tunebox train` is for runs that end")
    } else {
        format!("`tunebox train {} --resume` finishes it", folder.join("run.toml").display())
    };
    path_error(folder, "the run is not finished", why, hint)
}

/// Whether `steps` in the lock of the run in `folder` is [`ENDLESS`], as in a run that `tunebox dev` starts. False if
/// the lock cannot be read.
pub(crate) fn is_endless(folder: &Path) -> bool {
    let steps = lock::read(folder).and_then(|lock| lock.get("steps")?.as_integer());
    steps == Some(i64::from(ENDLESS))
}

/// Returns the name of the run in a folder of runs whose name equals `name` but for ASCII case, else of the one whose
/// name is most similar by [`nearest`]; `None` if none is similar.
pub(crate) fn nearest_run(name: &str, folder: &Path) -> Option<String> {
    let runs = run_names(folder);
    let alike = runs.iter().find(|run| run.eq_ignore_ascii_case(name)).map(String::as_str);
    alike.or_else(|| nearest(name, runs.iter().map(String::as_str))).map(str::to_owned)
}

/// The names of the runs in a folder; an empty list if the folder cannot be listed.
fn run_names(folder: &Path) -> Vec<String> {
    let names = files::names(folder).unwrap_or_default();
    names.into_iter().filter(|name| is_run(&folder.join(name))).collect()
}

/// Fails if `name` is a relative path without `..` that does not exist and looks like the path of a run: either it has
/// at least two parts and the first one is `runs` or a folder with runs in it, or [`similar_run`] finds the run that it
/// probably means. Accepts every other path.
fn reject_missing_run(name: &Path) -> Result<(), Error> {
    let parts = name.components().filter(|part| *part != Component::CurDir);
    let plain = |part: Component<'_>| match part {
        Component::Normal(part) => part.to_str().map(str::to_owned),
        _ => None,
    };
    let parts = parts.map(plain).collect::<Option<Vec<String>>>().filter(|_| !name.exists());
    let Some(parts) = parts else { return Ok(()) };
    let missing = |similar: Option<PathBuf>| {
        let hint = similar.map_or("`tunebox list` shows the runs that are here".into(), |similar| {
            format!("did you mean `{}`?", similar.display())
        });
        let what = format!("there is no run or model `{}`", name.display());
        let why = "there is no such folder, and a hub is never asked for a run";
        Err(Explanation::new("training", what).with_why(why).with_hint(hint).into())
    };
    if let [folder, _, ..] = parts.as_slice()
        && (folder == RUNS_FOLDER || !run_names(Path::new(folder)).is_empty())
    {
        return missing(paths::similar_entry(name));
    }
    match similar_run(&parts, &run_names(Path::new(RUNS_FOLDER))) {
        Some(similar) => missing(Some(similar)),
        None => Ok(()),
    }
}

/// Fails if `name`, which does not exist, looks like a path of this machine although it has the form `owner/model` of
/// names on a hub: its first part is a folder here, or one of [`LOCAL_FOLDERS`]. A name with `@revision` is one of a
/// hub.
fn reject_missing_path(name: &str) -> Result<(), Error> {
    let Some((first, _)) = name.split_once('/').filter(|_| !name.contains('@') && !Path::new(name).exists()) else {
        return Ok(());
    };
    // No name on a hub begins so.
    let is_only_path = first.is_empty() || first.starts_with('.');
    if is_only_path || !(LOCAL_FOLDERS.contains(&first) || Path::new(first).is_dir()) {
        return Ok(());
    }
    let what = format!("there is no model `{name}`");
    let why = format!("`{first}` is taken for a folder of this machine, so that no hub is asked");
    let on_hub = format!("if it is the name of a model on the hub, write `{name}@main`");
    let hint = paths::did_you_mean(Path::new(name)).unwrap_or(on_hub);
    Err(Explanation::new("training", what).with_why(why).with_hint(hint).into())
}

/// Finds the existing run that a missing path, given by its `parts`, probably means: the run's name alone, or a path
/// whose first part resembles `runs`. `runs` lists the names of the existing runs; ASCII case is ignored. Returns its
/// path with the parts below the run; `None` if there is no such run.
fn similar_run(parts: &[String], runs: &[String]) -> Option<PathBuf> {
    let (name, below) = match parts {
        [name] => (name, &parts[1..]),
        [folder, name, below @ ..] => (nearest(&folder.to_lowercase(), [RUNS_FOLDER]).map(|_| name)?, below),
        [] => return None,
    };
    let run = runs.iter().find(|run| run.eq_ignore_ascii_case(name))?;
    let path = [RUNS_FOLDER, run.as_str()].into_iter().chain(below.iter().map(String::as_str));
    Some(path.collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tunebox_foundation::explain::Explain as _;

    use super::*;
    use crate::checkpoint::Identity;

    const LOCK: &str = "steps = 20\n";

    fn run(lock: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(lock::FILE), lock).unwrap();
        folder
    }

    /// A checkpoint after so many updates, with an adapter or without.
    fn save(run: &Path, step: u64, updates: u64, adapter: bool) {
        let place = checkpoint::folder(run, step);
        fs::create_dir_all(&place).unwrap();
        let state = State::without_method_state(step, updates, Identity::default());
        fs::write(place.join("state.json"), serde_json::to_vec(&state).unwrap()).unwrap();
        if adapter {
            fs::write(place.join(ADAPTER), "{}").unwrap();
        }
    }

    #[test]
    fn a_run_that_is_not_there_is_no_name_on_a_hub() {
        for name in ["runs/smaple", "./runs/smaple", "runs/smaple/steps/000010"] {
            let error = find_model(name, None, true).unwrap_err();
            assert_eq!(error.to_string(), format!("there is no run or model `{name}`"));
            assert_eq!(error.hint().unwrap(), "`tunebox list` shows the runs that are here", "{name}");
        }
        assert!(matches!(find_model("acme/nothing-like-this", None, true), Err(Error::Model(_))));
    }

    #[test]
    fn a_path_that_is_not_there_is_no_name_on_a_hub_unless_it_names_a_revision() {
        for name in ["models/Qwen", "src/nothing-like-this"] {
            let error = find_model(name, None, true).unwrap_err();
            assert_eq!(error.to_string(), format!("there is no model `{name}`"));
        }
        for name in ["models/Qwen@main", "./models/Qwen", "/models/Qwen"] {
            assert!(matches!(find_model(name, None, true), Err(Error::Model(_))), "{name}");
        }
    }

    #[test]
    fn a_slip_before_the_name_of_a_run_and_that_name_alone_are_no_names_on_a_hub() {
        let meant = |name: &str| {
            let parts: Vec<String> = name.split('/').map(str::to_owned).collect();
            similar_run(&parts, &["npo-2".to_owned()]).map(|path| path.display().to_string())
        };
        for name in ["run/npo-2", "RUNS/npo-2", "rusn/NPO-2", "npo-2"] {
            assert_eq!(meant(name).as_deref(), Some("runs/npo-2"), "{name}");
        }
        assert_eq!(meant("run/npo-2/steps/000010").as_deref(), Some("runs/npo-2/steps/000010"));
        for name in ["acme/npo-2", "run/other", "other"] {
            assert_eq!(meant(name), None, "{name}");
        }
    }

    #[test]
    fn the_newest_checkpoint_stands_for_a_run_that_is_not_finished() {
        let folder = run(LOCK);
        let why = || newest_checkpoint(folder.path()).unwrap_err().explanation();
        assert_eq!(why().hint.as_deref(), Some("start a new run: this one saved no checkpoint to continue from"));
        save(folder.path(), 10, 0, true);
        assert_eq!(why().why.as_deref(), Some("it had learned nothing up to its last checkpoint"));
        save(folder.path(), 20, 20, false);
        assert_eq!(why().why.as_deref(), Some("it trains all weights, and leaves a model only at its end"));
        let finishing = format!("`tunebox train {} --resume` finishes it", folder.path().join("run.toml").display());
        assert_eq!(why().hint, Some(finishing));
        save(folder.path(), 30, 30, true);
        let newest = newest_checkpoint(folder.path()).unwrap();
        assert_eq!(newest, Some((30, checkpoint::folder(folder.path(), 30))));

        // A state that is a hole of a gigabyte is not read by the process that looks for it.
        save(folder.path(), 40, 40, true);
        let state = checkpoint::folder(folder.path(), 40).join("state.json");
        fs::File::create(state).unwrap().set_len(1 << 30).unwrap();
        assert_eq!(newest_checkpoint(folder.path()).unwrap().unwrap().0, 40);

        fs::write(folder.path().join(lock::FILE), format!("left = \"nothing\"\n{LOCK}")).unwrap();
        assert_eq!(newest_checkpoint(folder.path()).unwrap(), None, "it is finished");
        fs::File::options().write(true).open(folder.path().join(lock::FILE)).unwrap().set_len(2 << 20).unwrap();
        assert!(lock::read_text(&folder.path().join(lock::FILE)).is_err(), "more than a mebibyte");
        assert_eq!(newest_checkpoint(&folder.path().join("steps")).unwrap(), None, "it is no run");
    }

    #[test]
    fn a_run_without_an_end_goes_on_by_the_command_that_began_it() {
        let folder = run(&format!("steps = {ENDLESS}\n"));
        save(folder.path(), 10, 10, true);
        let hint = || unfinished_error(folder.path(), "why").hint().unwrap();
        assert!(hint().starts_with("`tunebox dev` continues it with `--resume --name "), "{}", hint());
        let _held = super::super::RunLock::take(folder.path()).unwrap();
        assert!(hint().starts_with("a process trains it: "), "{}", hint());
    }

    #[test]
    fn a_misspelt_name_finds_the_run_that_it_means() {
        let runs = tempfile::tempdir().unwrap();
        fs::create_dir(runs.path().join("npo-2")).unwrap();
        assert_eq!(nearest_run("np-2", runs.path()), None, "a folder that is no run");
        fs::write(runs.path().join("npo-2").join(lock::FILE), LOCK).unwrap();
        assert_eq!(nearest_run("np-2", runs.path()).as_deref(), Some("npo-2"));
        assert_eq!(nearest_run("NPO-2", runs.path()).as_deref(), Some("npo-2"));
        assert_eq!(nearest_run("calm-1", runs.path()), None);
    }
}
