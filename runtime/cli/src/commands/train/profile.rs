//! `--guest-profile FILE`: a profile of the time spent in the method, for the Firefox Profiler.

use std::path::{Path, PathBuf};

use serde_json::json;
use tunebox_foundation::files::{self, FileError};
use tunebox_sandbox::{Profiler, Recorded};
use tunebox_training::RunSettings;

use crate::terminal::{Failure, Terminal};
use tunebox_foundation::format::grouped;

/// The viewer of the file. It reads the file in the browser and uploads nothing.
const VIEWER: &str = "https://profiler.firefox.com";

/// A profile that is being recorded.
#[derive(Debug)]
pub(super) struct GuestProfile {
    path: PathBuf,
    profiler: Profiler,
}

impl GuestProfile {
    /// Adds a profiler to the settings of a run, and has the debug sections of the method read. Fails if the method
    /// would run in a worker process, or if `path` is a folder or is not in an existing folder.
    pub(super) fn start(path: &Path, settings: &mut RunSettings, in_process: bool) -> Result<Self, Failure> {
        if !in_process && !settings.is_all_built_in() {
            return Err(Failure::usage(
                "a method that is not built in runs in a worker process, which records no profile",
                "if you trust the method, add `--in-process`",
            ));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if path.is_dir() || !folder.is_dir() {
            let problem = format!("`{}` cannot be the file of a profile", path.display());
            return Err(Failure::usage(problem, "name a file in an existing folder"));
        }
        let profiler = Profiler::default();
        settings.profiler = Some(profiler.clone());
        settings.compiling.code.source_lines = true;
        Ok(Self { path: path.to_owned(), profiler })
    }

    /// Writes the recorded samples to the file and shows their number. Writes no file if nothing was recorded.
    pub(super) fn write(&self, terminal: Terminal) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        let recorded = self.profiler.write(&mut bytes).map_err(FileError::at("used", &self.path))?;
        if recorded == Recorded::default() {
            return Ok(());
        }
        files::write(&self.path, &bytes)?;
        let (samples, calls) = (grouped(recorded.samples as u64), grouped(recorded.calls as u64));
        let mut text = format!("{}  {samples} samples, {calls} calls to the host", self.path.display());
        if recorded.left_out > 0 {
            text += &format!("; {} more were dropped", grouped(recorded.left_out as u64));
        }
        terminal.status("Profile", format!("{text}\nopen it at {VIEWER}"));
        terminal.event(json!({
            "event": "profile", "path": self.path, "samples": recorded.samples, "calls": recorded.calls,
            "left-out": recorded.left_out,
        }));
        Ok(())
    }
}
