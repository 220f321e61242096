//! A run that is ready to start.

use std::path::PathBuf;

use serde::Serialize;
use tunebox_compute::DType;
use tunebox_compute::device::DeviceInfo;
use tunebox_model::Policy;

use super::method::PlannedMethod;
use super::summary::PlanSummary;
use super::verifiers::PlannedVerifier;
use crate::checkpoint::{Identity, State};
use crate::configuration::RunSettings;
use crate::data::{BatchSampler, Dataset};
use crate::learner::LearningRate;
use crate::runs::RunLock;

/// A run that is ready to start.
pub struct Plan {
    /// What is known about the run.
    pub run: PlannedRun,
    pub(crate) policy: Policy,
    pub(crate) sampler: BatchSampler,
}

/// What is known about a run before its first step.
pub struct PlannedRun {
    /// The settings of the run.
    pub settings: RunSettings,
    /// The run's name.
    pub name: String,
    /// The run's folder.
    pub folder: PathBuf,
    /// The method.
    pub method: PlannedMethod,
    /// The verifiers that score completions.
    pub verifiers: Vec<PlannedVerifier>,
    /// The training examples.
    pub data: Dataset,
    /// The validation examples.
    pub validation: Option<Dataset>,
    /// Steps of the whole run.
    pub steps: u64,
    /// The plan in figures.
    pub summary: PlanSummary,
    /// Problems that do not stop the run.
    pub warnings: Vec<String>,
    pub(crate) learning_rate: LearningRate,
    /// The number format of activations.
    pub(crate) compute: DType,
    /// The device; `None` for the CPU.
    pub(crate) accelerator: Option<DeviceInfo>,
    /// The checkpoint that the run resumes, with its folder.
    pub(crate) checkpoint: Option<(PathBuf, State)>,
    /// Keeps other processes from training the run, once it has a folder.
    pub(crate) run_lock: Option<RunLock>,
    pub(crate) identity: Identity,
    /// The time that chat templates read, in seconds since 1970.
    pub(crate) clock: i64,
    /// Changes of the method during the run.
    pub(crate) revised: Vec<Revision>,
}

/// A change of a run's method: from some step on, the run uses another component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Revision {
    /// Finished steps at the change.
    pub(crate) after: u64,
    /// The digest of the new component.
    pub(crate) sha256: String,
}
