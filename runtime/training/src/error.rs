//! What can end a run.
//!
//! Errors of the crates below keep their types. An error that no caller tells apart is an [`Error::Explained`]: the
//! finished [`Explanation`], written where it happens.

use std::path::{Path, PathBuf};

use tunebox_foundation::explain::{Exit, Explain, Explanation};
use tunebox_foundation::files::FileError;

/// What can end a run.
#[derive(Debug, thiserror::Error, Explain)]
#[explain(category = "training")]
pub enum Error {
    /// A file that cannot be read or written.
    #[error(transparent)]
    #[explain(source)]
    File(#[from] FileError),
    /// A failed tensor operation.
    #[error(transparent)]
    #[explain(source)]
    Compute(#[from] tunebox_compute::error::Error),
    /// A failure of the model, tokenizer or adapter, except of their files.
    #[error(transparent)]
    #[explain(source)]
    Model(#[from] tunebox_model::error::Error),
    /// A method that the sandbox rejected or stopped.
    #[error(transparent)]
    #[explain(source)]
    Sandbox(#[from] tunebox_sandbox::Error),
    /// A method or verifier that cannot be found, read or configured.
    #[error(transparent)]
    #[explain(source)]
    Package(Box<tunebox_package::Error>),
    /// A loss or gradient that is not finite.
    #[error("the {quantity} is not a number")]
    #[explain(
        location = format!("step {step}; {}", describe_last_loss(*last)),
        hint = non_finite_hint(quantity, *untrained, *rate),
        exit = No
    )]
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
    /// An error inside a step.
    #[error("{source}")]
    #[explain(source, kept = describe_kept(kept.as_ref()), hint = resume_hint(source.hint(), kept.is_some()))]
    Step {
        /// The error.
        source: Box<Error>,
        /// The step and folder of the last checkpoint.
        kept: Option<(u64, PathBuf)>,
    },
    /// Any other error, ready to show, with the exit code of the program.
    #[error("{0}")]
    #[explain(source, exit = *_1)]
    Explained(Box<Explanation>, Exit),
}

impl From<tunebox_package::Error> for Error {
    /// Wraps the error as [`Error::Package`].
    fn from(error: tunebox_package::Error) -> Self {
        Self::Package(Box::new(error))
    }
}

impl From<Explanation> for Error {
    /// Converts to [`Error::Explained`] with the exit code [`Exit::Usage`].
    fn from(explanation: Explanation) -> Self {
        Self::Explained(Box::new(explanation), Exit::Usage)
    }
}

/// Describes the last checkpoint of a run, given by its step and folder, for a message: `step 200, FOLDER`, or `nothing
/// had been saved yet`.
pub(crate) fn describe_kept(kept: Option<&(u64, PathBuf)>) -> String {
    kept.map_or("nothing had been saved yet".into(), |(step, path)| format!("step {step}, {}", path.display()))
}

/// Describes the last finite loss and its step for a message, with four decimals; says so if there is none.
fn describe_last_loss(last: Option<(f64, u64)>) -> String {
    last.map_or("no step before it was good".into(), |(loss, step)| format!("last good loss {loss:.4} at step {step}"))
}

/// Appends to a hint about a failed step how to resume the run, if the run has a checkpoint (`saved`). `None` without
/// hint and checkpoint.
fn resume_hint(hint: Option<String>, saved: bool) -> Option<String> {
    let resume = saved.then(|| "the same command with `--resume` continues from the last checkpoint".to_owned());
    let parts: Vec<String> = hint.into_iter().chain(resume).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// What to do about a loss or gradient (`quantity`) that is not finite: check the formula if no update was made before
/// (`untrained`), else a tenth of `rate`, the run's peak learning rate; for a gradient also how to skip such updates.
fn non_finite_hint(quantity: &str, untrained: bool, rate: f64) -> String {
    let cause = if untrained {
        "no update was made before, so no rate helps: check the method's formula, and `log` its parts".to_owned()
    } else {
        format!("a lower rate often helps: start a new run with `--set train.rate={:e}`", rate / 10.0)
    };
    // Without an update there is nothing to skip.
    let skip = if quantity == "gradient" { "; `--set train.skip-non-finite=true` skips such updates" } else { "" };
    cause + skip
}

/// Builds the error about the file or folder at `path`, which is its location: `what` happened, `why`, and in `hint`
/// what to do. Exit code of wrong usage.
pub(crate) fn path_error(
    path: &Path,
    what: impl Into<String>,
    why: impl Into<String>,
    hint: impl Into<String>,
) -> Error {
    let problem = Explanation::new("training", what).with_location(path.display().to_string());
    problem.with_why(why).with_hint(hint).into()
}

/// Builds the error about a file or folder of a checkpoint with invalid content; `what` says what is wrong. The hint is
/// to remove the checkpoint.
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
        assert!(hint("gradient", false, true).contains("`--set train.skip-non-finite=true` skips such updates; "));
        assert!(hint("gradient", false, true).ends_with("`--resume` continues from the last checkpoint"));
        assert!(hint("gradient", false, false).ends_with("`--set train.skip-non-finite=true` skips such updates"));
        assert!(!hint("loss", false, true).contains("skip-non-finite"), "there is no update to skip");
        assert!(hint("loss", true, false).contains("`log` its parts"));
        assert!(!hint("loss", true, false).contains("train.rate"), "no rate had a part in it");
    }
}
