//! Where a run goes, and which checkpoint it goes on from.
//!
//! A new run never enters a folder that exists; a resumed one must find a checkpoint there.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::identity::{known_beforehand, same_run};
use super::{PlannedMethod, PlannedVerifier};
use crate::checkpoint::{self, Identity, State};
use crate::configuration::RunSettings;
use crate::error::Error;

/// The folder of a run, and what it goes on from.
pub(crate) struct Destination {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) checkpoint: Option<(PathBuf, State)>,
}

/// Chooses the folder. A run without a name gets the method's name and the first free number.
pub(crate) fn destination(
    settings: &RunSettings,
    method: &PlannedMethod,
    verifiers: &[PlannedVerifier],
) -> Result<Destination, Error> {
    let runs = PathBuf::from(&settings.file.run.folder);
    if settings.resume {
        return resumed(settings, &runs);
    }
    let name = match &settings.file.run.name {
        Some(name) => named(name)?,
        None => numbered(&runs, &method.package.manifest.name),
    };
    let folder = runs.join(&name);
    if folder.exists() {
        let resumable = goes_on(settings, &folder, known_beforehand(settings, method, verifiers))?;
        return Err(Error::RunExists { name, folder, resumable });
    }
    Ok(Destination { name, folder, checkpoint: None })
}

fn resumed(settings: &RunSettings, runs: &Path) -> Result<Destination, Error> {
    let folder = match &settings.file.run.name {
        Some(name) => runs.join(named(name)?),
        None => latest(runs)?.ok_or_else(|| Error::NothingToResume { folder: runs.to_owned() })?,
    };
    let step = checkpoint::steps(&folder)?.pop();
    let step = step.ok_or_else(|| Error::NothingToResume { folder: folder.clone() })?;
    let place = checkpoint::folder(&folder, step);
    let state = State::read(&place)?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Destination { name, folder, checkpoint: Some((place, state)) })
}

/// Whether the run of a folder could go on as one of this identity, of which nothing is known yet that model and data tell.
fn goes_on(told: &RunSettings, folder: &Path, known: Identity) -> Result<bool, Error> {
    let Some(step) = checkpoint::steps(folder)?.pop() else { return Ok(false) };
    let place = checkpoint::folder(folder, step);
    let Ok(state) = State::read(&place) else { return Ok(false) };
    let Identity { version, method, verifiers, settings, .. } = known;
    let now = Identity { version, method, verifiers, settings, ..state.identity.clone() };
    let there = Destination { name: String::new(), folder: folder.to_owned(), checkpoint: Some((place, state)) };
    Ok(same_run(told, &there, &now).is_ok())
}

/// The run whose checkpoints changed last.
fn latest(runs: &Path) -> Result<Option<PathBuf>, Error> {
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    let hidden = |name: &String| name.starts_with('.');
    for name in crate::files::names(runs)?.into_iter().filter(|name| !hidden(name)) {
        let folder = runs.join(&name);
        let Some(step) = checkpoint::steps(&folder)?.pop() else { continue };
        let changed = checkpoint::folder(&folder, step).metadata().and_then(|about| about.modified());
        let changed = changed.unwrap_or(SystemTime::UNIX_EPOCH);
        if newest.as_ref().is_none_or(|(time, _)| changed > *time) {
            newest = Some((changed, folder));
        }
    }
    Ok(newest.map(|(_, folder)| folder))
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
}
