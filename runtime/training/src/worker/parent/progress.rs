//! How far a run in a worker is, and the error about a worker that failed there.

use std::path::PathBuf;

use tunebox_foundation::explain::{Exit, Explanation};

use crate::checkpoint;
use crate::error::{Error, describe_kept};
use crate::observer::Event;

/// How far the run is, by the worker's events: the method's name, the run's folder, and its finished and planned steps.
#[derive(Default)]
pub(super) struct Progress {
    method: Option<String>,
    pub(super) folder: Option<PathBuf>,
    done: u64,
    total: u64,
}

impl Progress {
    /// Takes method, folder and steps from the plan, and the finished steps from each step. Ignores other events.
    pub(super) fn update(&mut self, event: &Event) {
        match event {
            Event::Planned { summary, folder, resumed } => {
                self.method = Some(summary.method.clone());
                self.folder = Some(folder.clone());
                (self.done, self.total) = (resumed.unwrap_or(0), summary.steps);
            }
            Event::Step(step) => self.done = step.step,
            _ => {}
        }
    }

    /// Builds the error about a worker that failed, with the exit code of the sandbox. `how` completes the sentence
    /// "the worker …", as in "was ended"; `why` is the cause. The error also names the step, by the worker's events,
    /// and the last readable checkpoint, which is looked up on the disk because the worker's messages are not trusted.
    /// The hint proposes to resume if there is a checkpoint.
    pub(super) fn worker_error(&self, how: &str, why: String) -> Error {
        let kept = self.folder.as_ref().and_then(|folder| checkpoint::last_readable(folder));
        let worker = self.method.as_ref().map_or("the worker".to_owned(), |name| format!("the worker of `{name}`"));
        let when = match &self.folder {
            None => "before the first step".to_owned(),
            Some(_) if self.done >= self.total => "after the last step".to_owned(),
            Some(_) => format!("in step {}", self.done + 1),
        };
        let hint = match &self.folder {
            Some(folder) if kept.is_some() => {
                format!("`tunebox train {}/run.toml --resume` continues from there", folder.display())
            }
            // It read the model and the data.
            None => "use the files that came with the model, and data with shorter texts or fewer records".into(),
            _ => "the same command again; if it happens again, a smaller `train.batch` needs less memory".into(),
        };
        let explanation = Explanation::new("worker", format!("{worker} {how} {when}"))
            .with_why(why)
            .with_kept(describe_kept(kept.as_ref()))
            .with_hint(hint);
        Error::Explained(Box::new(explanation), Exit::Sandbox)
    }
}
