//! The report of a run, `report.html`, and the page that lays several runs over each other.
//!
//! A page is one file without script that loads nothing. Text of data, models and methods is escaped by the templates,
//! and the page's own policy permits nothing but its style. `content` reads a run's folder, `journal` keeps what the
//! other files of the folder lack, `live` writes the report as the run goes on, `page` and `comparison` make the pages.

mod comparison;
mod content;
mod figures;
mod html;
mod journal;
mod live;
mod page;
mod plot;
mod series;
mod text;
mod verdict;

use std::path::{Path, PathBuf};

use tunebox_foundation::files;

use self::content::Content;
use self::page::{State, render};
use crate::checkpoint::reject_links;
use crate::error::Error;
use crate::lock;
use crate::runs::is_running;

pub use comparison::{ComparedRun, Difference, MetricSummary, RunComparison, compare_runs};
pub(crate) use live::Reporter;

/// The file's name in a run's folder.
pub const FILE: &str = "report.html";

/// Writes the report of the run in `folder` from what the folder holds, in place of an existing one. Returns its path.
///
/// # Errors
/// A folder without a readable `run.lock` or with a link in it, files of the run that cannot be read, and a report that
/// cannot be written.
pub fn write_report(folder: &Path) -> Result<PathBuf, Error> {
    reject_links(folder)?;
    let content = Content::read(folder)?;
    let state = match (lock::is_finished(&content.lock), is_running(folder)) {
        (true, _) => State::Finished,
        (false, true) => State::Running,
        (false, false) => State::Stopped,
    };
    let path = folder.join(FILE);
    files::write(&path, render(&content, &state).as_bytes())?;
    Ok(path)
}

/// Writes the last report of a run whose worker ended with an error, perhaps without a last word. `runs` is the folder
/// of runs. Does nothing for a folder elsewhere or behind a link, for one without a report, and if the report cannot be
/// written: the error of the run is what counts.
pub(crate) fn settle_report(runs: &Path, folder: &Path, error: &Error) {
    let is_plain = |path: &Path| path.symlink_metadata().is_ok_and(|about| about.is_dir());
    let is_inside = folder.parent() == Some(runs) && is_plain(folder);
    let has_report = folder.join(FILE).symlink_metadata().is_ok_and(|about| about.is_file());
    if let (true, true, Ok(content)) = (is_inside, has_report, Content::read(folder)) {
        let page = render(&content, &State::Failed(live::failure_text(error)));
        let _ = files::write(&folder.join(FILE), page.as_bytes());
    }
}
