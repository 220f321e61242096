//! What can end a run, and the last thing that was saved.
//!
//! Faults of a room below pass through unchanged; a fault inside a step gains its step and
//! the checkpoint that is left.

mod explain;

use std::path::PathBuf;

use tunebox_foundation::explain::Explain;

use crate::configuration::{ConfigurationError, Spot};
use crate::data::DataError;
use crate::twin::TwinError;
use crate::verification::Unnamed;
use crate::worker::WorkerError;
use tunebox_foundation::files::FileError;

/// What can end a run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A wrong setting.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// Data that cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A file that cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The tensor work failed.
    #[error(transparent)]
    Compute(#[from] tunebox_compute::error::Error),
    /// The model, tokenizer or adapter failed.
    #[error(transparent)]
    Model(#[from] tunebox_model::error::Error),
    /// The method was refused or stopped.
    #[error(transparent)]
    Sandbox(#[from] tunebox_sandbox::Error),
    /// The method could not be found, read or set up.
    #[error(transparent)]
    Package(Box<tunebox_package::Error>),
    /// The process that does the run for a stranger's method.
    #[error(transparent)]
    Worker(Box<WorkerError>),
    /// The process of a method that runs outside the sandbox.
    #[error(transparent)]
    Twin(#[from] TwinError),
    /// A run that is to be done again with what only its own file names.
    #[error(transparent)]
    Unnamed(#[from] Unnamed),
    /// A loss or gradient that is not finite.
    #[error("the {quantity} is not a number")]
    NonFinite {
        /// `loss` or `gradient`.
        quantity: &'static str,
        /// The step it happened in, from 1.
        step: u64,
        /// The last finite loss and its step.
        last: Option<(f64, u64)>,
        /// Whether no update had been made before.
        untrained: bool,
        /// The peak rate of the run.
        rate: f64,
    },
    /// A verifier that fails on most completions.
    #[error("the verifier `{verifier}` failed on {failed} of {of} completions")]
    Verifier {
        /// Its name in the run.
        verifier: String,
        /// How many calls failed.
        failed: usize,
        /// Of how many.
        of: usize,
        /// Why the first one did, safe to show.
        reason: String,
    },
    /// The folder of a new run is there already.
    #[error("the run `{name}` exists already")]
    RunExists {
        /// The run.
        name: String,
        /// Its folder.
        folder: PathBuf,
        /// Whether it has a checkpoint to go on from.
        resumable: bool,
    },
    /// There is nothing to go on from.
    #[error("there is no run to resume")]
    NothingToResume {
        /// Where was looked.
        folder: PathBuf,
        /// Why nothing there can go on.
        why: &'static str,
        /// The name of the run that was probably meant.
        meant: Option<String>,
    },
    /// A run that another process trains.
    #[error("the run `{name}` is running")]
    Running {
        /// The run.
        name: String,
        /// Its folder.
        folder: PathBuf,
        /// The process, where it is known.
        process: Option<u32>,
    },
    /// A run whose steps are all done.
    #[error("the run `{name}` is finished")]
    Finished {
        /// The run.
        name: String,
        /// Its folder.
        folder: PathBuf,
        /// What leads to more steps.
        hint: String,
    },
    /// A run cannot go on exactly as it would have.
    #[error("the run `{name}` cannot go on: {}", differences.join("; "))]
    Different {
        /// The run.
        name: String,
        /// The checkpoint that was looked at.
        checkpoint: PathBuf,
        /// What differs, one clause each.
        differences: Vec<String>,
    },
    /// A checkpoint or lock that does not hold what it must.
    #[error("`{}` is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A folder that no run was written to.
    #[error("there is no run here")]
    NoRun {
        /// The folder.
        folder: PathBuf,
    },
    /// What a run file names and is not there, or not what it should be.
    #[error("{source}")]
    Named {
        /// What is wrong with it.
        source: Box<Error>,
        /// Where the run file names it.
        spot: Box<Spot>,
    },
    /// A run that is not there, named in the place of a model. No hub is asked for it: what lies there under this name is
    /// somebody else's.
    #[error("there is no run or model `{}`", name.display())]
    NoSuchRun {
        /// The path as it was written.
        name: PathBuf,
        /// The run that was probably meant.
        meant: Option<PathBuf>,
    },
    /// A run of which something is wanted that it has not got before its end.
    #[error("the run is not finished")]
    Unfinished {
        /// Its folder.
        folder: PathBuf,
        /// What it lacks.
        why: &'static str,
        /// What finishes it.
        hint: String,
    },
    /// A run that is to be done again on a device that is not here.
    #[error("the run computed on `{device}`, which is not here")]
    Elsewhere {
        /// The device, as the run's lock names it.
        device: String,
        /// Why it is not here.
        why: Option<String>,
    },
    /// A changed method that is not one for the run that goes on.
    #[error("the changed method does not fit the run that goes on")]
    Unlike {
        /// What is different.
        what: String,
    },
    /// A run that is to be done again although its method changed on the way.
    #[error("the run cannot be done again: its method was changed while it went on")]
    Revised {
        /// Its folder.
        folder: PathBuf,
        /// After which steps.
        after: Vec<i64>,
    },
    /// A name that is no name for a folder.
    #[error("`{0}` cannot be the name of a run")]
    RunName(String),
    /// The model lacks something that the run needs.
    #[error("the model has no {what}")]
    ModelLacks {
        /// `tokenizer` or `chat template`.
        what: &'static str,
        /// What to do.
        hint: String,
    },
    /// This build holds no embedded sample.
    #[error("this build has no sample inside")]
    NoSample,
    /// A file of the sample that is not there, as in a folder that came without its runs.
    #[error("the model and data that come with tunebox are not here")]
    SampleGone {
        /// The file or folder.
        path: PathBuf,
        /// The folder whose runs they were unpacked among; empty for the present one.
        project: PathBuf,
    },
    /// An error of a step, with what is left.
    #[error("{source}")]
    Step {
        /// What happened.
        source: Box<Error>,
        /// The last checkpoint.
        kept: Option<(u64, PathBuf)>,
    },
}

impl From<tunebox_package::Error> for Error {
    fn from(error: tunebox_package::Error) -> Self {
        Self::Package(Box::new(error))
    }
}

impl From<WorkerError> for Error {
    fn from(error: WorkerError) -> Self {
        Self::Worker(Box::new(error))
    }
}

impl Error {
    fn below(&self) -> Option<&dyn Explain> {
        Some(match self {
            Self::Configuration(error) => error,
            Self::Data(error) => error,
            Self::File(error) => error,
            Self::Compute(error) => error,
            Self::Model(error) => error,
            Self::Sandbox(error) => error,
            Self::Package(error) => error.as_ref(),
            Self::Worker(error) => error.as_ref(),
            Self::Twin(error) => error,
            Self::Unnamed(error) => error,
            Self::Named { source, .. } | Self::Step { source, .. } => source.as_ref(),
            _ => return None,
        })
    }
}
/// Turns a file error of the model crate into [`FileError`], so that a full disk has one message everywhere.
///
/// # Errors
/// Whatever the result holds.
pub(crate) fn from_model<T>(result: Result<T, tunebox_model::error::Error>) -> Result<T, Error> {
    result.map_err(|error| match error {
        tunebox_model::error::Error::File { path, source } => {
            FileError { action: "written", path: path.into(), source }.into()
        }
        other => other.into(),
    })
}
