//! Carries out a run on this rank.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tunebox_foundation::explain::Explanation;
use tunebox_sandbox::child::Program;

use super::parent::supervise;
use crate::configuration::RunSettings;
use crate::error::Error;
use crate::observer::{Observer, SilentObserver};
use crate::ranks::{Connection, connected_ranks, lock, plan_on_ranks};
use crate::run::{Summary, run};

/// Executes the share of this rank in a run, in a process started from `worker`, or in this process if no `worker` is
/// given. Rank 0 sends the events to `observer`; the other ranks send none, and write the run into a temporary folder.
/// Setting `stop` on one rank ends the run on all ranks after the present step, with a checkpoint. The caller then
/// calls [`Connection::finish`] with the result.
///
/// # Errors
/// Those of [`crate::execute`], and a rank that failed, does not answer, or has another run.
pub fn execute_on_ranks(
    mut settings: RunSettings,
    worker: Option<&Program>,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
    connection: &Arc<Mutex<Connection>>,
) -> Result<Summary, Error> {
    let is_first = {
        let mut connection = lock(connection);
        connection.set_timeout(Duration::from_secs_f64(settings.file.limits.rank_seconds));
        connection.rank() == 0
    };
    let own = if is_first { Ok(None) } else { temporary_folder(&mut settings).map(Some) };
    let mut silent = SilentObserver;
    let observer: &mut dyn Observer = if is_first { observer } else { &mut silent };
    own.and_then(|_folder| match worker {
        Some(program) => supervise(settings, program, observer, stop, Some(connection)),
        None => {
            settings.ranks = connected_ranks(Arc::clone(connection));
            run(plan_on_ranks(settings)?, observer, stop)
        }
    })
}

/// Creates a temporary folder for what a rank other than 0 writes, and makes it the folder for runs.
fn temporary_folder(settings: &mut RunSettings) -> Result<TempDir, Error> {
    let folder = tempfile::Builder::new().prefix("tunebox-rank-").tempdir();
    let folder = folder.map_err(|error| {
        Explanation::new("ranks", "no temporary folder can be created")
            .with_why(error.to_string())
            .with_hint("`TMPDIR` names another place for it")
    })?;
    settings.file.run.folder = folder.path().to_string_lossy().into_owned();
    Ok(folder)
}
