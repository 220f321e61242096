//! `--guest-profile FILE`: where a method's own time goes, in a file that a public viewer opens.

use std::path::{Path, PathBuf};

use serde_json::json;
use tunebox_foundation::files;
use tunebox_sandbox::{Profiler, Recorded};
use tunebox_training::RunSettings;

use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use tunebox_foundation::format::grouped;

/// What opens the file. It reads it in the browser and sends it nowhere.
const VIEWER: &str = "https://profiler.firefox.com";

/// A profile that was asked for.
#[derive(Debug)]
pub(super) struct GuestProfile {
    path: PathBuf,
    profiler: Profiler,
}

impl GuestProfile {
    /// Has the run record its method. Errors: a method in a process of its own, a file that could not be written.
    pub(super) fn begin(path: &Path, settings: &mut RunSettings, in_process: bool) -> Result<Self, Failure> {
        if !in_process && !settings.is_all_built_in() {
            return Err(Failure::usage(
                "a method that is not built in runs in a process of its own, where no profile is made",
                "for a method that you trust, the same command with `--in-process`",
            ));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if path.is_dir() || !folder.is_dir() {
            let problem = format!("`{}` cannot be the file of a profile", path.display());
            return Err(Failure::usage(problem, "name a file in a folder that is there"));
        }
        let profiler = Profiler::default();
        settings.profiler = Some(profiler.clone());
        Ok(Self { path: path.to_owned(), profiler })
    }

    /// Writes what was recorded, whether the run ended well or not. A run that never began leaves no file.
    pub(super) fn write(&self, terminal: Terminal) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        let recorded = self.profiler.write(&mut bytes).map_err(|error| Failure::file(&self.path, &error))?;
        if recorded == Recorded::default() {
            return Ok(());
        }
        files::write(&self.path, &bytes)?;
        let (samples, calls) = (grouped(recorded.samples as u64), grouped(recorded.calls as u64));
        let mut text = format!("{}  {samples} samples, {calls} calls to the host", self.path.display());
        if recorded.left_out > 0 {
            text += &format!("; {} more were too many", grouped(recorded.left_out as u64));
        }
        terminal.say("Profile", format!("{text}\nopen it at {VIEWER}"));
        if terminal.json {
            terminal.object(json!({
                "event": "profile", "path": self.path, "samples": recorded.samples, "calls": recorded.calls,
                "left-out": recorded.left_out,
            }));
        }
        Ok(())
    }
}
