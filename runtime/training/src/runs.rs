//! The runs of a folder, by what each of them wrote down about itself.

mod named;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub use named::{find_model, newest_checkpoint};
pub(crate) use named::{meant, unfinished};

use crate::checkpoint;
use crate::error::Error;
use crate::files;
use crate::lock;

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
    /// The step of its last checkpoint.
    pub checkpoint: Option<u64>,
}

/// The runs below a folder, by name. A folder that is not there holds none; one whose lock says nothing is no run.
///
/// # Errors
/// When a folder or a lock that is there cannot be read.
pub fn runs(folder: &Path) -> Result<Vec<Listed>, Error> {
    let mut found = Vec::new();
    for name in files::names(folder)?.into_iter().filter(|name| !name.starts_with('.')) {
        let place = folder.join(&name);
        let path = place.join(lock::FILE);
        if path.is_file() {
            let lock = files::read_text(&path)?.parse::<toml::Table>();
            let checkpoint = checkpoint::steps(&place)?.pop();
            found.extend(lock.ok().and_then(|lock| listed(&name, &place, &lock, checkpoint)));
        }
    }
    Ok(found)
}

/// Whether a folder is a run's.
#[must_use]
pub fn is_run(folder: &Path) -> bool {
    folder.join(lock::FILE).is_file()
}

/// What a lock says of its run.
fn listed(name: &str, folder: &Path, lock: &toml::Table, checkpoint: Option<u64>) -> Option<Listed> {
    let text = |table: &str, key: &str| lock.get(table)?.get(key)?.as_str();
    Some(Listed {
        name: name.to_owned(),
        folder: folder.to_owned(),
        method: format!("{} {}", text("method", "name")?, text("method", "version")?),
        model: text("model", "name")?.to_owned(),
        steps: u64::try_from(lock.get("steps")?.as_integer()?).ok()?,
        finished: lock::is_finished(lock),
        checkpoint,
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
        ] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join(lock::FILE), text).unwrap();
        }
        let found = runs(folder.path()).unwrap();
        let told: Vec<_> = found.iter().map(|run| (run.name.as_str(), run.method.as_str(), run.finished)).collect();

        let wanted =
            [("first", "lora 0.1.0", true), ("second", "lora 0.1.0", false), ("taught-nothing", "lora 0.1.0", true)];
        assert_eq!(told, wanted);
        assert!(runs(&folder.path().join("nowhere")).unwrap().is_empty());
    }
}
