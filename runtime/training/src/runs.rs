//! Lists the runs of a folder by their locks, finds runs by name, and keeps a run to one process at a time.

mod base;
mod find;
mod run_lock;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;

pub use base::{find_base, find_steering};
pub use find::{find_model, find_run, newest_checkpoint};
pub(crate) use find::{find_reward_model, is_endless, nearest_run, start_option, unfinished_error};
pub(crate) use run_lock::{RunLock, is_running};
use tunebox_foundation::files;

use crate::checkpoint::{self, State};
use crate::error::Error;
use crate::lock;
use crate::validation::Score;

/// A run in a folder of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    /// The run's name.
    pub name: String,
    /// The run's folder.
    pub folder: PathBuf,
    /// The method and its version.
    pub method: String,
    /// The model as the settings name it.
    pub model: String,
    /// Steps that a finished run made, which `train.patience` may have ended early; else those that are planned.
    pub steps: u64,
    /// Whether all steps are done.
    pub finished: bool,
    /// Whether a process trains the run now.
    pub running: bool,
    /// The step of the last checkpoint.
    pub checkpoint: Option<u64>,
    /// The last training loss: of a finished run as its lock says, else up to the last checkpoint.
    pub loss: Option<f64>,
    /// The best validation score so far, and what it is.
    #[serde(flatten)]
    pub best: Option<BestScore>,
    /// Bytes of the files in the run's folder.
    pub bytes: u64,
    /// When the run finished, or began if it has not finished.
    #[serde(skip)]
    pub changed: SystemTime,
}

/// The best validation score of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub enum BestScore {
    /// Mean negative log-likelihood of a target token.
    #[serde(rename = "best_loss")]
    Loss(f64),
    /// Share of the completions that pass.
    #[serde(rename = "best_pass_rate")]
    PassRate(f64),
}

/// Lists the runs in a folder, sorted by name, where a number at the end counts by its value. A folder that does not
/// exist has none. Leaves out names that begin with `.`, folders without a `run.lock`, and runs whose lock is no TOML
/// or lacks `method.name`, `method.version`, `model.name` or `steps`.
///
/// # Errors
/// A folder or a lock that exists and cannot be read.
pub fn runs(folder: &Path) -> Result<Vec<Listed>, Error> {
    let mut found: Vec<Listed> = Vec::new();
    for name in files::names(folder)?.into_iter().filter(|name| !name.starts_with('.')) {
        let run = folder.join(&name);
        if lock::is_run(&run) {
            let lock = files::read_text(&run.join(lock::FILE))?.parse::<toml::Table>();
            let checkpoint = checkpoint::list_steps(&run)?.pop();
            found.extend(lock.ok().and_then(|lock| list_entry(&name, &run, &lock, checkpoint)));
        }
    }
    found.sort_by(|one, other| sort_key(&one.name).cmp(&sort_key(&other.name)));
    Ok(found)
}

/// Splits a name into its beginning and the number at its end (`None` without digits or for a number past `u64`), so
/// that `lora-9` sorts before `lora-10`.
fn sort_key(name: &str) -> (&str, Option<u64>) {
    let before = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    (before, name[before.len()..].parse().ok())
}

/// Builds the entry of a run, from its lock and `checkpoint`, the step of its last checkpoint. Takes the time of the
/// change from the lock's file, 1970 if it is unknown. `None` if the lock lacks a key.
fn list_entry(name: &str, folder: &Path, lock: &toml::Table, checkpoint: Option<u64>) -> Option<Listed> {
    let text = |table: &str, key: &str| lock.get(table)?.get(key)?.as_str();
    let written = folder.join(lock::FILE).metadata().and_then(|about| about.modified());
    let finished = lock::is_finished(lock);
    let made = lock.get("result").and_then(|result| result.get("steps")).filter(|_| finished);
    let (loss, best) = if finished { recorded_scores(lock) } else { saved_scores(folder, checkpoint) };
    Some(Listed {
        name: name.to_owned(),
        folder: folder.to_owned(),
        method: format!("{} {}", text("method", "name")?, text("method", "version")?),
        model: text("model", "name")?.to_owned(),
        steps: u64::try_from(made.or(lock.get("steps"))?.as_integer()?).ok()?,
        finished,
        running: is_running(folder),
        checkpoint,
        loss,
        best,
        bytes: folder_bytes(folder, MAX_LEVELS),
        changed: written.unwrap_or(SystemTime::UNIX_EPOCH),
    })
}

/// The levels of folders below a run's folder whose files count in its size.
const MAX_LEVELS: usize = 3;

/// The last training loss and the best validation score that the lock of a finished run records; `None` for one that is
/// missing or not finite.
fn recorded_scores(lock: &toml::Table) -> (Option<f64>, Option<BestScore>) {
    let number = |key: &str| lock.get("result")?.get(key)?.as_float().filter(|number| number.is_finite());
    let best = number("best-validation-loss").map(BestScore::Loss);
    (number("loss"), best.or_else(|| number("best-validation-pass-at-1").map(BestScore::PassRate)))
}

/// The last training loss and the best validation score up to the checkpoint of step `checkpoint`; none without a
/// checkpoint, or if its state is large or cannot be read.
fn saved_scores(folder: &Path, checkpoint: Option<u64>) -> (Option<f64>, Option<BestScore>) {
    let state = checkpoint.and_then(|step| State::read_small(&checkpoint::folder(folder, step)).ok()?);
    let Some(state) = state else { return (None, None) };
    let best = state.validations.best.map(|best| match best.score {
        Score::Loss(loss) => BestScore::Loss(loss),
        Score::PassRate(rate) => BestScore::PassRate(rate.at_one),
    });
    (state.last_loss.map(|(loss, _)| loss), best)
}

/// The bytes of the files in a folder and, down to `levels` levels, in the folders below it. Follows no links; skips
/// what cannot be read.
fn folder_bytes(folder: &Path, levels: usize) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let about = entry.metadata().ok()?;
        match about.is_dir() {
            true => levels.checked_sub(1).map(|levels| folder_bytes(&entry.path(), levels)),
            false => about.is_file().then_some(about.len()),
        }
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "steps = 20\n[model]\nname = \"tiny\"\n[method]\nname = \"lora\"\nversion = \"0.1.0\"\n";

    #[test]
    fn a_run_is_listed_with_its_method_and_whether_it_left_something() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("second", LOCK.to_owned()),
            ("first", format!("{LOCK}[[artifact]]\nname = \"a\"\n")),
            ("taught-nothing", format!("left = \"nothing\"\n{LOCK}")),
            ("broken", "steps =".to_owned()),
            (".sample", LOCK.to_owned()),
            ("lora-10", LOCK.to_owned()),
            ("lora-9", LOCK.to_owned()),
        ] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join(lock::FILE), text).unwrap();
        }
        let result = "[result]\nsteps = 14\nloss = 0.25\nbest-validation-loss = 2.5\n[[artifact]]\nname = \"a\"\n";
        std::fs::write(folder.path().join("first/run.lock"), format!("{LOCK}{result}")).unwrap();
        let _held = RunLock::take(&folder.path().join("lora-9")).unwrap();
        let found = runs(folder.path()).unwrap();
        let told: Vec<_> = found.iter().map(|run| (run.name.as_str(), run.method.as_str(), run.finished)).collect();

        let wanted = [
            ("first", "lora 0.1.0", true),
            ("lora-9", "lora 0.1.0", false),
            ("lora-10", "lora 0.1.0", false),
            ("second", "lora 0.1.0", false),
            ("taught-nothing", "lora 0.1.0", true),
        ];
        assert_eq!(told, wanted);
        let running: Vec<_> = found.iter().filter(|run| run.running).map(|run| run.name.as_str()).collect();
        assert_eq!(running, ["lora-9"]);
        let first = serde_json::to_value(&found[0]).unwrap();
        assert_eq!((first["loss"].as_f64(), first["best_loss"].as_f64()), (Some(0.25), Some(2.5)), "{first}");
        assert_eq!(found[0].bytes, (LOCK.len() + result.len()) as u64);
        assert_eq!((found[1].loss, found[1].best), (None, None));
        assert_eq!((found[0].steps, found[1].steps), (14, 20), "a finished run may have ended early");
        assert!(runs(&folder.path().join("nowhere")).unwrap().is_empty());
    }
}
