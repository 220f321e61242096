//! Where a run goes, and which checkpoint it goes on from.
//!
//! A new run never enters a folder that exists; a resumed one must find a checkpoint there.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tunebox_foundation::paths::simplify;

use super::identity::{known_beforehand, same_run};
use super::{ENDLESS, PlannedMethod, PlannedVerifier};
use crate::checkpoint::{self, Identity, State};
use crate::configuration::RunSettings;
use crate::error::Error;
use crate::lock;
use crate::runs::{Held, is_endless, is_run, is_running};
use tunebox_foundation::files;

/// The folder of a run, and what it goes on from.
pub(crate) struct Destination {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) checkpoint: Option<(PathBuf, State)>,
    /// Keeps others from a run that goes on.
    pub(crate) held: Option<Held>,
}

/// Chooses the folder. A run without a name gets the method's name and the first free number.
pub(crate) fn destination(
    settings: &RunSettings,
    method: &PlannedMethod,
    verifiers: &[PlannedVerifier],
) -> Result<Destination, Error> {
    let runs = simplify(Path::new(&settings.file.run.folder));
    let known = known_beforehand(settings, method, verifiers);
    if settings.resume {
        return resumed(settings, &runs, &known);
    }
    let name = match &settings.file.run.name {
        Some(name) => named(name)?,
        None => numbered(&runs, &method.package.manifest.name),
    };
    let folder = runs.join(&name);
    if folder.exists() {
        let resumable = !is_running(&folder) && goes_on(settings, &folder, &known)?;
        return Err(Error::RunExists { name, folder, resumable });
    }
    Ok(Destination { name, folder, checkpoint: None, held: None })
}

fn resumed(settings: &RunSettings, runs: &Path, known: &Identity) -> Result<Destination, Error> {
    let folder = match &settings.file.run.name {
        Some(name) => runs.join(named(name)?),
        None => latest(settings, runs, known)?,
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !folder.exists() {
        let meant = crate::runs::meant(&name, runs);
        return Err(Error::NothingToResume { folder, why: "there is no such run", meant });
    }
    let finished = || Error::Finished { name: name.clone(), hint: further(&folder), folder: folder.clone() };
    if lock::has_finished(&folder) {
        return Err(finished());
    }
    let begun = is_run(&folder) || !checkpoint::steps(&folder)?.is_empty();
    // Before anything of it is read: whoever trains it may be about to save.
    let held = begun.then(|| Held::take(&folder)).transpose()?;
    // By the one who trained it up to now.
    if lock::has_finished(&folder) {
        return Err(finished());
    }
    let Some(step) = checkpoint::steps(&folder)?.pop() else {
        return Err(Error::NothingToResume { folder, why: "it was stopped before its first checkpoint", meant: None });
    };
    let place = checkpoint::folder(&folder, step);
    let state = State::read(&place)?;
    Ok(Destination { name, folder, checkpoint: Some((place, state)), held })
}

/// What leads from a finished run to more steps.
fn further(folder: &Path) -> String {
    let Some(from) = crate::runs::beginning_with(folder) else {
        return "leave `--resume` out to start a run".into();
    };
    format!("for more steps, a new run that begins where it ended: another `--name` and {from} instead of `--resume`")
}

/// Whether the run of a folder could go on as one of this identity, of which nothing is known yet that model and data tell.
fn goes_on(told: &RunSettings, folder: &Path, known: &Identity) -> Result<bool, Error> {
    if lock::has_finished(folder) {
        return Ok(false);
    }
    let Some(step) = checkpoint::steps(folder)?.pop() else { return Ok(false) };
    let place = checkpoint::folder(folder, step);
    let Ok(state) = State::read(&place) else { return Ok(false) };
    let Identity { version, method, verifiers, settings, .. } = known.clone();
    let now = Identity { version, method, verifiers, settings, ..state.identity.clone() };
    let checkpoint = Some((place, state));
    let there = Destination { name: String::new(), folder: folder.to_owned(), checkpoint, held: None };
    Ok(same_run(told, &there, &now).is_ok())
}

/// Of the runs that are not finished, the one whose checkpoints changed last. Before all others one that could go on as this
/// run; then one that has an end as this one has, or has none either; then one that is not running.
fn latest(told: &RunSettings, runs: &Path, known: &Identity) -> Result<PathBuf, Error> {
    let (mut begun, mut finished) = (Vec::new(), false);
    let endless = told.file.train.steps == Some(ENDLESS);
    for name in files::names(runs)?.into_iter().filter(|name| !name.starts_with('.')) {
        let folder = runs.join(&name);
        if !folder.is_dir() {
            continue;
        }
        let Some(step) = checkpoint::steps(&folder)?.pop() else { continue };
        if lock::has_finished(&folder) {
            finished = true;
            continue;
        }
        let changed = checkpoint::folder(&folder, step).metadata().and_then(|about| about.modified());
        let fits = goes_on(told, &folder, known)?;
        let (alike, free) = (is_endless(&folder) == endless, !is_running(&folder));
        begun.push((fits, alike, free, changed.unwrap_or(SystemTime::UNIX_EPOCH), folder));
    }
    if let Some((.., folder)) = begun.into_iter().max() {
        return Ok(folder);
    }
    let why = if finished { "every run with a checkpoint there is finished" } else { "no run there has a checkpoint" };
    Err(Error::NothingToResume { folder: runs.to_owned(), why, meant: None })
}

fn numbered(runs: &Path, method: &str) -> String {
    let free = (1_u32..).map(|number| format!("{method}-{number}")).find(|name| !runs.join(name).exists());
    free.unwrap_or_else(|| method.to_owned())
}

/// A name that is a plain folder name on every system.
fn named(name: &str) -> Result<String, Error> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let good = !name.is_empty() && name.len() <= 100 && !name.starts_with('.') && name.chars().all(plain);
    if good { Ok(name.to_owned()) } else { Err(Error::RunName(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain as _;

    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        for name in ["", "..", "../a", "a/b", "a b", ".hidden"] {
            assert!(named(name).is_err(), "{name}");
        }
        assert_eq!(named("calm-1").unwrap(), "calm-1");
    }

    #[test]
    fn a_run_without_a_name_takes_the_first_free_number() {
        let runs = tempfile::tempdir().unwrap();
        std::fs::create_dir(runs.path().join("lora-1")).unwrap();

        assert_eq!(numbered(runs.path(), "lora"), "lora-2");
    }

    const UNFINISHED: &str = "steps = 20\n";
    const FINISHED: &str = "left = \"nothing\"\nsteps = 20\n";

    /// A run with a checkpoint, of settings with this rate.
    fn begin(runs: &Path, name: &str, lock: &str, rate: f64) {
        let place = checkpoint::folder(&runs.join(name), 10);
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(runs.join(name).join(lock::FILE), lock).unwrap();
        let state = State::bare(10, 10, identity(rate));
        std::fs::write(place.join("state.json"), serde_json::to_vec(&state).unwrap()).unwrap();
    }

    fn identity(rate: f64) -> Identity {
        Identity { settings: [("train.rate".into(), rate.into())].into(), ..Identity::default() }
    }

    /// What goes on of the runs in a folder, with the rate 0.5, by a name or by none.
    fn resume(runs: &Path, name: Option<&str>) -> Result<String, Error> {
        let mut settings =
            RunSettings::from_overrides(&["model.path=m", "data.path=d", "method.use=lora"].map(str::to_owned))
                .unwrap();
        settings.file.run.name = name.map(str::to_owned);
        resumed(&settings, runs, &identity(0.5)).map(|place| place.name)
    }

    #[test]
    fn without_a_name_the_newest_run_goes_on_that_is_not_finished_and_of_these_settings() {
        let runs = tempfile::tempdir().unwrap();
        let why = || resume(runs.path(), None).unwrap_err().explanation().why.unwrap();
        std::fs::write(runs.path().join("notes.txt"), "").unwrap();
        assert_eq!(why(), "no run there has a checkpoint");
        begin(runs.path(), "a-finished", FINISHED, 0.5);
        assert_eq!(why(), "every run with a checkpoint there is finished");
        begin(runs.path(), "b-other", UNFINISHED, 0.25);
        assert_eq!(resume(runs.path(), None).unwrap(), "b-other", "whose difference is told then");
        begin(runs.path(), "c-same", UNFINISHED, 0.5);
        begin(runs.path(), "d-other", UNFINISHED, 0.25);
        begin(runs.path(), "e-finished", FINISHED, 0.5);
        assert_eq!(resume(runs.path(), None).unwrap(), "c-same");
    }

    #[test]
    fn a_run_without_an_end_is_taken_up_only_where_there_is_no_other() {
        let runs = tempfile::tempdir().unwrap();
        begin(runs.path(), "b-with-an-end", UNFINISHED, 0.25);
        begin(runs.path(), "c-without", &format!("steps = {ENDLESS}\n"), 0.25);
        assert_eq!(resume(runs.path(), None).unwrap(), "b-with-an-end");
    }

    #[test]
    fn a_run_that_is_running_goes_on_nowhere_else() {
        let runs = tempfile::tempdir().unwrap();
        begin(runs.path(), "b-running", UNFINISHED, 0.5);
        let held = Held::take(&runs.path().join("b-running")).unwrap();
        for name in [None, Some("b-running")] {
            assert!(matches!(resume(runs.path(), name), Err(Error::Running { .. })), "{name:?}");
        }
        begin(runs.path(), "a-stopped", UNFINISHED, 0.5);
        assert_eq!(resume(runs.path(), None).unwrap(), "a-stopped");
        drop(held);
        assert_eq!(resume(runs.path(), Some("b-running")).unwrap(), "b-running");
    }

    #[test]
    fn a_run_that_is_finished_or_misspelt_does_not_go_on() {
        let runs = tempfile::tempdir().unwrap();
        begin(runs.path(), "npo-2", FINISHED, 0.5);
        let told = |name: &str| {
            let error = resume(runs.path(), Some(name)).unwrap_err();
            (error.to_string(), error.hint().unwrap())
        };
        assert_eq!(told("npo-2"), ("the run `npo-2` is finished".into(), "leave `--resume` out to start a run".into()));
        let run = runs.path().join("npo-2");
        std::fs::write(run.join("adapter_config.json"), "{}").unwrap();
        assert!(told("npo-2").1.contains(&format!("`--set model.adapter={}`", run.display())), "{:?}", told("npo-2"));
        assert_eq!(told("np-2").1, "did you mean `--name npo-2`?");
        assert_eq!(told("calm-1").1, "leave `--resume` out to start a run");
    }
}
