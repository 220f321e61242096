//! How a run ended, for callers and for the parent of a worker process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tunebox_foundation::explain::Exit;

use crate::exact;
use crate::lock::write::Written;
use crate::observer::StepEvent;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Every step is done and the artifact is written.
    Finished(Summary),
    /// The user stopped the run; the last step is saved, unless there was none.
    Interrupted(Summary),
}

impl Outcome {
    /// The summary of the run, whether it finished or was interrupted.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        match self {
            Self::Finished(summary) | Self::Interrupted(summary) => summary,
        }
    }

    /// The exit code of the program: [`Exit::Interrupted`] for a stopped run, `None` for a finished one.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        matches!(self, Self::Interrupted(_)).then_some(Exit::Interrupted)
    }
}

/// The summary of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The run's name.
    pub name: String,
    /// The run's folder.
    pub folder: PathBuf,
    /// Finished steps.
    pub step: u64,
    /// Planned steps.
    pub total: u64,
    /// Seconds of training, including those before the run was resumed.
    #[serde(with = "exact")]
    pub seconds: f64,
    /// Trained tokens.
    pub tokens: u64,
    /// The first step that this process executed.
    pub first: Option<StepEvent>,
    /// The last step that this process executed.
    pub last: Option<StepEvent>,
    /// Metrics that the method reported after the last step.
    #[serde(with = "exact::pairs")]
    pub closing: Vec<(String, f64)>,
    /// The step and folder of the last checkpoint.
    pub checkpoint: Option<(u64, PathBuf)>,
    /// The files of the artifact; empty for a run that was stopped.
    pub written: Vec<Written>,
}
