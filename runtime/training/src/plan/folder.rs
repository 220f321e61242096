//! Chooses the folder of a run and the checkpoint that it resumes.
//!
//! A new run never uses a folder that exists; a resumed run needs a folder, and starts over if no checkpoint is in it.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tunebox_foundation::explain::{Explain, Explanation};
use tunebox_foundation::files;
use tunebox_foundation::paths::simplify;

use super::identity::check_same_run;
use crate::checkpoint::{self, Identity, LENGTH_SETTINGS, State};
use crate::configuration::{ENDLESS, RunSettings, Underline};
use crate::error::{Error, path_error};
use crate::lock::{self, is_run};
use crate::runs::{RunLock, is_endless, is_running, nearest_run, start_option};

/// The error where nothing can be resumed.
const NOTHING_TO_RESUME: &str = "there is no run to resume";

/// The hint where nothing can be resumed.
const NEW_RUN: &str = "leave `--resume` out to start a run";

/// The folder of a run, and the checkpoint that it resumes.
pub(super) struct Destination {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) checkpoint: Option<(PathBuf, State)>,
    /// Keeps other processes from training a resumed run.
    pub(super) run_lock: Option<RunLock>,
    /// Whether the resumed run was finished.
    pub(super) finished: bool,
}

/// Chooses the folder of a run without creating it. A new run without a name gets the method's name (`method`) and the
/// first free number. A resumed run gets its last checkpoint, if it has one, and is locked for this process. `known` is
/// the identity of the present settings, method and verifiers.
///
/// # Errors
/// A name that [`check_name`] rejects, a new run whose folder exists, and those of [`resume`].
pub(super) fn choose_folder(settings: &RunSettings, method: &str, known: &Identity) -> Result<Destination, Error> {
    let runs = simplify(Path::new(&settings.file.run.folder));
    if settings.resume {
        return resume(settings, &runs, known);
    }
    let name = match &settings.file.run.name {
        Some(name) => check_name(name)?,
        None => next_name(&runs, method),
    };
    let folder = runs.join(&name);
    if folder.exists() {
        let can_resume = !is_running(&folder) && can_resume(settings, &folder, known)?;
        return Err(run_exists(&name, &folder, can_resume));
    }
    Ok(Destination { name, folder, checkpoint: None, run_lock: None, finished: false })
}

/// The error about a new run whose folder exists. `can_resume` says that the existing run can be resumed with the same
/// settings; the hint then proposes `--resume`.
pub(crate) fn run_exists(name: &str, folder: &Path, can_resume: bool) -> Error {
    let hint = if can_resume {
        "`--resume` continues it; another `--name` starts a new run"
    } else {
        "another `--name` starts a new run; without one, runs get the name of their method and a number"
    };
    path_error(folder, format!("the run `{name}` exists already"), "a run never writes over another", hint)
}

/// Finds the run to resume, by `run.name` or by [`find_latest`] in the folder `runs`, locks it for this process, and
/// reads the state of its last checkpoint; without one, the run starts over. `known` is the identity of the present
/// settings.
///
/// # Errors
/// A folder that does not exist, that holds no run or a symbolic link, a run that is trained by another process, one
/// that is finished and has no checkpoint or is to be no longer than before, and a checkpoint whose state cannot be
/// read.
fn resume(settings: &RunSettings, runs: &Path, known: &Identity) -> Result<Destination, Error> {
    let folder = match &settings.file.run.name {
        Some(name) => runs.join(check_name(name)?),
        None => find_latest(settings, runs, known)?,
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !folder.exists() {
        let hint =
            nearest_run(&name, runs).map_or(NEW_RUN.into(), |similar| format!("did you mean `--name {similar}`?"));
        return Err(path_error(&folder, NOTHING_TO_RESUME, "there is no such run", hint));
    }
    checkpoint::reject_links(&folder)?;
    let begun = is_run(&folder) || !checkpoint::list_steps(&folder)?.is_empty();
    // Lock the run before reading it: a process that trains it may be about to save, or may have finished it since.
    let run_lock = begun.then(|| RunLock::take(&folder)).transpose()?;
    if run_lock.is_none() {
        return Err(path_error(&folder, NOTHING_TO_RESUME, "there is no run in this folder", NEW_RUN));
    }
    // A run that ended before its first checkpoint, as on a full disk, starts over.
    let last = checkpoint::list_steps(&folder)?.pop().map(|step| checkpoint::folder(&folder, step));
    let state = last.as_deref().map(State::read).transpose()?;
    let finished = lock::has_finished(&folder);
    if finished && !state.as_ref().is_some_and(|state| has_other_length(&state.identity, known)) {
        return Err(finished_error(&name, &folder, state.is_some()));
    }
    Ok(Destination { name, folder, checkpoint: last.zip(state), run_lock, finished })
}

/// Whether the settings of the run's length differ between the run of a checkpoint (`then`) and the run as it is set up
/// now.
fn has_other_length(then: &Identity, now: &Identity) -> bool {
    LENGTH_SETTINGS.iter().any(|key| then.settings.get(*key) != now.settings.get(*key))
}

/// The error about a finished run that cannot be resumed. With a checkpoint (`is_kept`) it could be, with more steps.
/// Without one, the reason says what was removed, and the hint proposes a new run that starts from its artifact, if it
/// left an adapter or a model.
pub(super) fn finished_error(name: &str, folder: &Path, is_kept: bool) -> Error {
    let what = format!("the run `{name}` is finished");
    if is_kept {
        let hint = "for more steps, raise `train.epochs` or `train.steps`; or leave `--resume` out to start a run";
        return path_error(folder, what, "all its steps are done", hint);
    }
    let from = start_option(folder).map_or(NEW_RUN.into(), |from| {
        format!("for more steps, start a new run where it ended: another `--name` and {from} instead of `--resume`")
    });
    let why = "its checkpoints were removed at its end, and with them the state of the optimizer, the place in the data \
               and the random streams";
    let hint = format!("{from}; `--set train.keep=1` keeps the last checkpoint of a run, which can then be resumed");
    path_error(folder, what, why, hint)
}

/// Whether the run in `folder` is unfinished and its last checkpoint, if it has one, matches the present settings,
/// method and verifiers (`known`). Model and data are not compared, since they are not read yet. Without a checkpoint,
/// whether the folder is that of a run. False if the checkpoint cannot be read or the folder holds a link. Fails if the
/// checkpoints cannot be listed.
fn can_resume(settings: &RunSettings, folder: &Path, known: &Identity) -> Result<bool, Error> {
    if checkpoint::reject_links(folder).is_err() || lock::has_finished(folder) {
        return Ok(false);
    }
    let Some(step) = checkpoint::list_steps(folder)?.pop() else { return Ok(is_run(folder)) };
    let path = checkpoint::folder(folder, step);
    let Ok(state) = State::read(&path) else { return Ok(false) };
    let Identity { version, method, verifiers, environment, settings: known, .. } = known.clone();
    let now = Identity { version, method, verifiers, environment, settings: known, ..state.identity.clone() };
    let is_same = !has_other_length(&state.identity, &now);
    Ok(is_same && check_same_run(settings, "", Some(&(path, state)), &now).is_ok())
}

/// Finds the unfinished run with a checkpoint to resume if none is named, and returns its folder. Prefers, in this
/// order: a run that [`can_resume`] with these settings; a run that is endless exactly if these settings are; one that
/// no process trains; the one whose last checkpoint was modified last; the one with the last name. Skips names that
/// begin with `.` and folders that hold a link. Fails if there is no such run.
fn find_latest(settings: &RunSettings, runs: &Path, known: &Identity) -> Result<PathBuf, Error> {
    let (mut begun, mut finished) = (Vec::new(), false);
    let endless = settings.file.train.steps == Some(ENDLESS);
    for name in files::names(runs)?.into_iter().filter(|name| !name.starts_with('.')) {
        let folder = runs.join(&name);
        if !folder.is_dir() || checkpoint::reject_links(&folder).is_err() {
            continue;
        }
        let Some(step) = checkpoint::list_steps(&folder)?.pop() else { continue };
        if lock::has_finished(&folder) {
            finished = true;
            continue;
        }
        let changed = checkpoint::folder(&folder, step).metadata().and_then(|about| about.modified());
        let fits = can_resume(settings, &folder, known)?;
        let (alike, free) = (is_endless(&folder) == endless, !is_running(&folder));
        begun.push((fits, alike, free, changed.unwrap_or(SystemTime::UNIX_EPOCH), folder));
    }
    if let Some((.., folder)) = begun.into_iter().max() {
        return Ok(folder);
    }
    let why = if finished { "every run with a checkpoint there is finished" } else { "no run there has a checkpoint" };
    let more = if finished { "; `--name` with more `train.epochs` goes on with a finished one" } else { "" };
    Err(path_error(runs, NOTHING_TO_RESUME, why, format!("{NEW_RUN}{more}")))
}

/// Returns the name of a new run: that of the method, `-`, and the first number from 1 with which `runs` has no entry.
pub(crate) fn next_name(runs: &Path, method: &str) -> String {
    let is_free = |name: &String| runs.join(name).symlink_metadata().is_err();
    let free = (1_u32..).map(|number| format!("{method}-{number}")).find(is_free);
    free.unwrap_or_else(|| method.to_owned())
}

/// Fails, located at `run.name`, if the settings give a name that no run can have.
pub(super) fn check_run_name(settings: &RunSettings) -> Result<(), Error> {
    let checked = settings.file.run.name.as_deref().map_or(Ok(String::new()), check_name);
    checked.map(drop).map_err(|error| settings.error("run.name", Underline::Value, error.explanation()))
}

/// Returns `name` if it can be the name of a folder on every system: 1 to 100 ASCII letters, digits, `-`, `_` and `.`,
/// not starting with `.`. Fails otherwise.
fn check_name(name: &str) -> Result<String, Error> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let good = !name.is_empty() && name.len() <= 100 && !name.starts_with('.') && name.chars().all(plain);
    if good {
        return Ok(name.to_owned());
    }
    Err(Explanation::new("config", format!("`{name}` cannot be the name of a run"))
        .with_why("it becomes a folder: letters, digits, `-`, `_` and `.`, not starting with `.`")
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        for name in ["", "..", "../a", "a/b", "a b", ".hidden"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert_eq!(check_name("calm-1").unwrap(), "calm-1");
    }

    #[test]
    fn a_run_without_a_name_takes_the_first_free_number() {
        let runs = tempfile::tempdir().unwrap();
        std::fs::create_dir(runs.path().join("lora-1")).unwrap();

        assert_eq!(next_name(runs.path(), "lora"), "lora-2");
    }

    const UNFINISHED: &str = "steps = 20\n";
    const FINISHED: &str = "left = \"nothing\"\nsteps = 20\n";

    /// A run with a checkpoint, of settings with this rate.
    fn begin(runs: &Path, name: &str, lock: &str, rate: f64) {
        let folder = checkpoint::folder(&runs.join(name), 10);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(runs.join(name).join(lock::FILE), lock).unwrap();
        let state = State::without_method_state(10, 10, identity(rate));
        std::fs::write(folder.join("state.json"), serde_json::to_vec(&state).unwrap()).unwrap();
    }

    fn identity(rate: f64) -> Identity {
        Identity { settings: [("train.rate".into(), rate.into())].into(), ..Identity::default() }
    }

    /// The name of the run that is resumed in a folder of runs, with the rate 0.5, by a name or without.
    fn resume_named(runs: &Path, name: Option<&str>) -> Result<String, Error> {
        let mut settings = RunSettings::from_overrides(&["model.path=m", "data.path=d", "method.use=lora"]).unwrap();
        settings.file.run.name = name.map(str::to_owned);
        resume(&settings, runs, &identity(0.5)).map(|destination| destination.name)
    }

    #[test]
    fn without_a_name_the_newest_run_goes_on_that_is_not_finished_and_of_these_settings() {
        let runs = tempfile::tempdir().unwrap();
        let why = || resume_named(runs.path(), None).unwrap_err().explanation().why.unwrap();
        std::fs::write(runs.path().join("notes.txt"), "").unwrap();
        assert_eq!(why(), "no run there has a checkpoint");
        begin(runs.path(), "a-finished", FINISHED, 0.5);
        assert_eq!(why(), "every run with a checkpoint there is finished");
        begin(runs.path(), "b-other", UNFINISHED, 0.25);
        assert_eq!(resume_named(runs.path(), None).unwrap(), "b-other", "whose difference is told then");
        begin(runs.path(), "c-same", UNFINISHED, 0.5);
        begin(runs.path(), "d-other", UNFINISHED, 0.25);
        begin(runs.path(), "e-finished", FINISHED, 0.5);
        assert_eq!(resume_named(runs.path(), None).unwrap(), "c-same");
    }

    #[test]
    fn a_run_without_an_end_is_taken_up_only_where_there_is_no_other() {
        let runs = tempfile::tempdir().unwrap();
        begin(runs.path(), "b-with-an-end", UNFINISHED, 0.25);
        begin(runs.path(), "c-without", &format!("steps = {ENDLESS}\n"), 0.25);
        assert_eq!(resume_named(runs.path(), None).unwrap(), "b-with-an-end");
    }

    #[test]
    fn a_run_that_is_running_goes_on_nowhere_else() {
        let runs = tempfile::tempdir().unwrap();
        begin(runs.path(), "b-running", UNFINISHED, 0.5);
        let run_lock = RunLock::take(&runs.path().join("b-running")).unwrap();
        for name in [None, Some("b-running")] {
            let error = resume_named(runs.path(), name).unwrap_err();
            assert_eq!(error.to_string(), "the run `b-running` is running", "{name:?}");
        }
        begin(runs.path(), "a-stopped", UNFINISHED, 0.5);
        assert_eq!(resume_named(runs.path(), None).unwrap(), "a-stopped");
        drop(run_lock);
        assert_eq!(resume_named(runs.path(), Some("b-running")).unwrap(), "b-running");
    }

    #[test]
    fn a_run_that_is_finished_or_misspelt_does_not_go_on() {
        let runs = tempfile::tempdir().unwrap();
        begin(runs.path(), "npo-2", FINISHED, 0.5);
        let told = |name: &str| {
            let error = resume_named(runs.path(), Some(name)).unwrap_err();
            (error.to_string(), error.hint().unwrap())
        };
        let run = runs.path().join("npo-2");
        let more = "for more steps, raise `train.epochs` or `train.steps`; or leave `--resume` out to start a run";
        assert_eq!(told("npo-2"), ("the run `npo-2` is finished".into(), more.into()));
        std::fs::remove_dir_all(run.join("steps")).unwrap();
        let keep = "; `--set train.keep=1` keeps the last checkpoint of a run, which can then be resumed";
        let new = format!("leave `--resume` out to start a run{keep}");
        assert_eq!(told("npo-2"), ("the run `npo-2` is finished".into(), new));
        std::fs::write(run.join("adapter_config.json"), "{}").unwrap();
        assert!(told("npo-2").1.contains(&format!("`--set model.adapter={}`", run.display())), "{:?}", told("npo-2"));
        assert_eq!(told("np-2").1, "did you mean `--name npo-2`?");
        assert_eq!(told("calm-1").1, "leave `--resume` out to start a run");
    }
}
