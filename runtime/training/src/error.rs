//! What can end a run, and the last thing that was saved.
//!
//! Faults of a room below pass through unchanged; a fault inside a step gains its step and
//! the checkpoint that is left.

use std::path::PathBuf;

use tunebox_compute::explain::{Exit, Explain, Explanation, Snippet};

use crate::configuration::ConfigurationError;
use crate::data::DataError;
use crate::files::FileError;
use crate::twin::TwinError;
use crate::worker::WorkerError;

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
    /// A loss or gradient that is not finite.
    #[error("the {quantity} is not a number")]
    NonFinite {
        /// `loss` or `gradient`.
        quantity: &'static str,
        /// The step it happened in, from 1.
        step: u64,
        /// The last finite loss and its step.
        last: Option<(f64, u64)>,
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
    /// A run without an artifact.
    #[error("the run is not finished")]
    Unfinished {
        /// Its folder.
        folder: PathBuf,
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
            Self::Step { source, .. } => source.as_ref(),
            _ => return None,
        })
    }
}

impl Explain for Error {
    fn area(&self) -> &'static str {
        match self {
            Self::RunName(_) => "config",
            Self::ModelLacks { .. } => "model",
            other => other.below().map_or("training", Explain::area),
        }
    }

    fn place(&self) -> Option<String> {
        match self {
            Self::NonFinite { step, last: Some((value, at)), .. } => {
                Some(format!("step {step}; last good loss {value:.4} at step {at}"))
            }
            Self::NonFinite { step, last: None, .. } => Some(format!("step {step}; no step before it was good")),
            Self::RunExists { folder, .. } | Self::NothingToResume { folder } => Some(folder.display().to_string()),
            Self::NoRun { folder } | Self::Unfinished { folder } => Some(folder.display().to_string()),
            Self::Revised { folder, .. } => Some(folder.display().to_string()),
            Self::Different { checkpoint, .. } => Some(checkpoint.display().to_string()),
            other => other.below()?.place(),
        }
    }

    fn snippet(&self) -> Option<Snippet> {
        self.below()?.snippet()
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::Verifier { reason, .. } => Some(reason.clone()),
            Self::Different { .. } => {
                Some("a resumed run ends in the same bits as one never stopped, or not at all".into())
            }
            Self::NoRun { .. } => Some("a run's folder holds `run.lock`, and there is none".into()),
            Self::Unfinished { .. } => Some("its `run.lock` lists no file of an artifact yet".into()),
            Self::RunExists { .. } => Some("a run never writes over another".into()),
            Self::Elsewhere { why, .. } => why.clone(),
            Self::Unlike { what } => Some(what.clone()),
            Self::Revised { after, .. } => {
                let steps: Vec<String> = after.iter().map(ToString::to_string).collect();
                Some(format!("by `tunebox dev`, after step {}; the versions before are not kept", steps.join(", ")))
            }
            Self::RunName(_) => {
                Some("it becomes a folder: letters, digits, `-`, `_` and `.`, not starting with `.`".into())
            }
            Self::NothingToResume { .. } => Some("no run there has a checkpoint".into()),
            other => other.below()?.why(),
        }
    }

    fn kept(&self) -> Option<String> {
        match self {
            Self::Step { kept: Some((step, path)), .. } => Some(format!("step {step}, {}", path.display())),
            Self::Step { kept: None, .. } => Some("nothing had been saved yet".into()),
            other => other.below()?.kept(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NonFinite { rate, .. } => Some(format!(
                "a lower rate often helps: a new run with `--set train.rate={:e}`; `--set train.skip-non-finite=true \
                 --resume` leaves such updates out",
                rate / 10.0
            )),
            Self::Step { source, kept: Some(_) } if matches!(&**source, Self::File(error) if error.disk_full()) => {
                Some("free some space, then the same command with `--resume`".into())
            }
            Self::Verifier { .. } => Some(
                "mend the verifier, or give it more with `--set limits.verifier-seconds=…`; then `--resume`".into(),
            ),
            Self::RunExists { resumable: true, .. } => {
                Some("`--resume` goes on with it; another `--name` starts anew".into())
            }
            Self::RunExists { .. } => Some("give another `--name`, or remove the folder".into()),
            Self::NoRun { .. } => Some("give the folder that `tunebox train` named at its end".into()),
            Self::Unfinished { .. } => Some("`tunebox train --resume` with the run's name finishes it".into()),
            Self::Elsewhere { .. } => Some(
                "replay it on a machine with that device; without `--replay` all that went in and came out is compared \
                 anywhere"
                    .into(),
            ),
            Self::Unlike { .. } => Some("begin a new run with it".into()),
            Self::Revised { .. } => Some("train anew with the method as it is; that run can be done again".into()),
            Self::NothingToResume { .. } => Some("leave `--resume` out to start a run".into()),
            Self::Different { .. } => Some(
                "set these back; or start a new run that continues the adapter: `--set model.adapter=CHECKPOINT`"
                    .into(),
            ),
            Self::Damaged { path, .. } if path.ends_with(crate::lock::FILE) => {
                Some("put back the `run.lock` that the run wrote; what it recorded is known from nowhere else".into())
            }
            Self::Damaged { .. } => Some("remove that checkpoint; the one before it can be resumed".into()),
            Self::ModelLacks { hint, .. } => Some(hint.clone()),
            Self::NoSample => Some("name a model, data and a method: `--model PATH --data FILE --method lora`".into()),
            other => other.below()?.hint(),
        }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::NonFinite { .. } => Exit::No,
            Self::Verifier { .. } => Exit::Sandbox,
            other => other.below().map_or(Exit::Usage, Explain::exit),
        }
    }

    fn explanation(&self) -> Explanation {
        let own = Explanation {
            area: self.area().into(),
            what: self.to_string(),
            place: self.place(),
            snippet: self.snippet(),
            why: self.why(),
            kept: self.kept(),
            hint: self.hint(),
            trace: None,
        };
        // A room below may say more than the parts; what was kept is known here alone.
        match self.below() {
            Some(below) => Explanation { kept: own.kept, hint: own.hint, ..below.explanation() },
            None => own,
        }
    }
}
