//! What can end a run.
//!
//! Errors of the crates below keep their types. An error that no caller tells apart is an [`Error::Explained`]: the
//! finished [`Explanation`], written where it happens.

use std::path::{Path, PathBuf};

use tunebox_foundation::explain::{Exit, Explain, Explanation};
use tunebox_foundation::files::FileError;

/// What can end a run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A failed tensor operation.
    #[error(transparent)]
    Compute(#[from] tunebox_compute::error::Error),
    /// A failure of the model, tokenizer or adapter.
    #[error(transparent)]
    Model(#[from] tunebox_model::error::Error),
    /// A method that the sandbox rejected or stopped.
    #[error(transparent)]
    Sandbox(#[from] tunebox_sandbox::Error),
    /// A method or verifier that cannot be found, read or configured.
    #[error(transparent)]
    Package(Box<tunebox_package::Error>),
    /// An error that a worker process reported, or its death.
    #[error("{}", .0.explanation.what)]
    Worker(Box<WorkerError>),
    /// A loss or gradient that is not finite.
    #[error("the {quantity} is not a number")]
    NonFinite {
        /// `loss` or `gradient`.
        quantity: &'static str,
        /// The failed step, from 1.
        step: u64,
        /// The last finite loss and its step.
        last: Option<(f64, u64)>,
        /// Whether no update had been made before.
        untrained: bool,
        /// The peak learning rate of the run.
        rate: f64,
    },
    /// A verifier that fails on most completions.
    #[error("the verifier `{verifier}` failed on {failed} of {of} completions")]
    Verifier {
        /// The verifier's name in the run.
        verifier: String,
        /// Number of failed calls.
        failed: usize,
        /// Number of calls.
        of: usize,
        /// Cause of the first failure, safe to show.
        reason: String,
    },
    /// An error inside a step.
    #[error("{source}")]
    Step {
        /// The error.
        source: Box<Error>,
        /// The step and folder of the last checkpoint.
        kept: Option<(u64, PathBuf)>,
    },
    /// Any other error, ready to show, with the exit code of the program.
    #[error("{}", .0.what)]
    Explained(Box<Explanation>, Exit),
}

/// An error that a worker process reported, or its death.
#[derive(Debug, Clone)]
pub struct WorkerError {
    /// What to show.
    pub explanation: Explanation,
    /// The exit code of the program.
    pub exit: Exit,
    /// The run's folder, once the worker has named it.
    pub folder: Option<PathBuf>,
    /// The step and folder of the last whole checkpoint on disk.
    pub kept: Option<(u64, PathBuf)>,
}

impl From<tunebox_package::Error> for Error {
    fn from(error: tunebox_package::Error) -> Self {
        Self::Package(Box::new(error))
    }
}

impl From<Explanation> for Error {
    /// An error that is shown as the explanation says, with the exit code for wrong usage.
    fn from(explanation: Explanation) -> Self {
        Self::Explained(Box::new(explanation), Exit::Usage)
    }
}

impl Error {
    /// The error of a crate below that this error wraps, or the error of the failed step; `None` for the other kinds.
    fn inner(&self) -> Option<&dyn Explain> {
        Some(match self {
            Self::File(error) => error,
            Self::Compute(error) => error,
            Self::Model(error) => error,
            Self::Sandbox(error) => error,
            Self::Package(error) => error.as_ref(),
            Self::Step { source, .. } => source.as_ref(),
            Self::Worker(_) | Self::NonFinite { .. } | Self::Verifier { .. } | Self::Explained(..) => return None,
        })
    }
}

impl Explain for Error {
    /// The exit code of the program for this error; a failed step has that of its cause.
    fn exit(&self) -> Exit {
        match self {
            Self::NonFinite { .. } => Exit::No,
            Self::Verifier { .. } => Exit::Sandbox,
            Self::Worker(error) => error.exit,
            Self::Explained(_, exit) => *exit,
            other => other.inner().map_or(Exit::Usage, Explain::exit),
        }
    }

    /// What to show about this error. A failed step shows its cause with the last checkpoint and a hint on how to
    /// resume.
    fn explanation(&self) -> Explanation {
        let own = Explanation::new("training", self.to_string());
        match self {
            Self::Worker(error) => error.explanation.clone(),
            Self::Explained(explanation, _) => (**explanation).clone(),
            Self::NonFinite { step, last, .. } => {
                let last = last.map_or("no step before it was good".to_owned(), |(loss, at)| {
                    format!("last good loss {loss:.4} at step {at}")
                });
                Explanation { hint: step_hint(self, false), ..own.with_location(format!("step {step}; {last}")) }
            }
            Self::Verifier { reason, .. } => Explanation { hint: step_hint(self, false), ..own.with_why(reason) },
            Self::Step { source, kept } => {
                let hint = step_hint(source, kept.is_some());
                Explanation { hint, ..source.explanation().with_kept(describe_kept(kept.as_ref())) }
            }
            other => other.inner().map_or(own, Explain::explanation),
        }
    }
}

/// Describes the last checkpoint of a run, given by its step and folder, for a message; says so if there is none.
pub(crate) fn describe_kept(kept: Option<&(u64, PathBuf)>) -> String {
    kept.map_or("nothing had been saved yet".into(), |(step, path)| format!("step {step}, {}", path.display()))
}

/// What to do about an error inside a step; `None` if nothing is known. `saved`: the run has a checkpoint, so it can be
/// resumed.
fn step_hint(source: &Error, saved: bool) -> Option<String> {
    let (again, resume) =
        if saved { ("the same command with `--resume`", "--resume ") } else { ("the same command", "") };
    match source {
        Error::NonFinite { quantity, untrained, rate, .. } => {
            let cause = if *untrained {
                "no update was made before, so no rate helps: check the method's formula, and `log` its parts"
                    .to_owned()
            } else {
                format!("a lower rate often helps: start a new run with `--set train.rate={:e}`", rate / 10.0)
            };
            // Without an update there is nothing to skip.
            let skip = if *quantity == "gradient" {
                format!("; the same command with `{resume}--set train.skip-non-finite=true` skips such updates")
            } else {
                String::new()
            };
            Some(cause + &skip)
        }
        Error::Verifier { .. } => Some(format!(
            "fix the verifier, or raise its time limit with `--set limits.verifier-seconds=…`; then repeat {again}"
        )),
        Error::File(error) if saved && error.disk_full() => Some(format!("free some space, then repeat {again}")),
        Error::Sandbox(error) => match error.enough() {
            Some(setting) => Some(format!("the same command with `{resume}--set {setting}` allows it more")),
            None => error.hint(),
        },
        other => other.hint(),
    }
}

/// Turns a file error of the model crate into [`FileError`], so that a full disk has one message everywhere. Other
/// errors are only converted.
///
/// # Errors
/// The error of the result.
pub(crate) fn from_model<T>(result: Result<T, tunebox_model::error::Error>) -> Result<T, Error> {
    result.map_err(|error| match error {
        tunebox_model::error::Error::File { path, source } => {
            FileError { action: "written", path: path.into(), source }.into()
        }
        other => other.into(),
    })
}

/// The error about a file or folder of a checkpoint with invalid content. `what` says what is wrong.
pub(crate) fn damaged(path: &Path, what: impl std::fmt::Display) -> Error {
    Explanation::new("training", format!("`{}` is damaged: {what}", path.display()))
        .with_hint("remove that checkpoint; the one before it can be resumed")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_of_a_failed_step_depends_on_whether_the_run_was_saved() {
        let hint = |quantity, untrained, saved: bool| {
            let source = Error::NonFinite { quantity, step: 1, last: None, untrained, rate: 1e-3 };
            let kept = saved.then(|| (5, "runs/a/steps/000005".into()));
            Error::Step { source: Box::new(source), kept }.hint().unwrap()
        };
        assert!(hint("gradient", false, true).contains("train.rate=1e-4"));
        assert!(hint("gradient", false, true).contains("`--resume --set train.skip-non-finite=true`"));
        assert!(hint("gradient", false, false).contains("with `--set train.skip-non-finite=true`"));
        assert!(!hint("loss", false, true).contains("skip-non-finite"), "there is no update to skip");
        assert!(hint("loss", true, false).contains("`log` its parts"));
        assert!(!hint("loss", true, false).contains("train.rate"), "no rate had a part in it");
    }
}
