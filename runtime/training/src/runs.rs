//! The runs of a folder, by what each of them wrote down about itself.

mod held;
mod named;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;

pub(crate) use held::{Held, is_running};
pub(crate) use named::{beginning_with, is_endless, meant, unfinished};
pub use named::{find_model, newest_checkpoint};

use crate::checkpoint;
use crate::error::Error;
use crate::lock;
use tunebox_foundation::files;

/// Where runs go unless they are told otherwise.
pub const FOLDER: &str = "runs";

/// A run in a folder for runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The method and its version.
    pub method: String,
    /// The model as it was named.
    pub model: String,
    /// Steps of the whole run.
    pub steps: u64,
    /// Whether it left an artifact.
    pub finished: bool,
    /// Whether a process trains it now.
    pub running: bool,
    /// The step of its last checkpoint.
    pub checkpoint: Option<u64>,
    /// When it came to its end; of one that has not, when it began.
    #[serde(skip)]
    pub changed: SystemTime,
}

/// The runs below a folder, by name and number. A folder that is not there holds none; one whose lock says nothing is no run.
///
/// # Errors
/// When a folder or a lock that is there cannot be read.
pub fn runs(folder: &Path) -> Result<Vec<Listed>, Error> {
    let mut found: Vec<Listed> = Vec::new();
    for name in files::names(folder)?.into_iter().filter(|name| !name.starts_with('.')) {
        let place = folder.join(&name);
        let path = place.join(lock::FILE);
        if path.is_file() {
            let lock = files::read_text(&path)?.parse::<toml::Table>();
            let checkpoint = checkpoint::steps(&place)?.pop();
            found.extend(lock.ok().and_then(|lock| listed(&name, &place, &lock, checkpoint)));
        }
    }
    found.sort_by(|one, other| numbered(&one.name).cmp(&numbered(&other.name)));
    Ok(found)
}

/// A name as it is sorted: what stands before the number at its end, and that.
fn numbered(name: &str) -> (&str, Option<u64>) {
    let before = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    (before, name[before.len()..].parse().ok())
}

/// Whether a folder is a run's.
#[must_use]
pub fn is_run(folder: &Path) -> bool {
    folder.join(lock::FILE).is_file()
}

/// What a lock says of its run.
fn listed(name: &str, folder: &Path, lock: &toml::Table, checkpoint: Option<u64>) -> Option<Listed> {
    let text = |table: &str, key: &str| lock.get(table)?.get(key)?.as_str();
    let written = folder.join(lock::FILE).metadata().and_then(|about| about.modified());
    Some(Listed {
        name: name.to_owned(),
        folder: folder.to_owned(),
        method: format!("{} {}", text("method", "name")?, text("method", "version")?),
        model: text("model", "name")?.to_owned(),
        steps: u64::try_from(lock.get("steps")?.as_integer()?).ok()?,
        finished: lock::is_finished(lock),
        running: is_running(folder),
        checkpoint,
        changed: written.unwrap_or(SystemTime::UNIX_EPOCH),
    })
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
        let _held = Held::take(&folder.path().join("lora-9")).unwrap();
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
        assert!(runs(&folder.path().join("nowhere")).unwrap().is_empty());
    }
}
