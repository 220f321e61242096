//! What a run tells whoever watches it. How it is shown is left to the watcher.

use std::path::Path;

use crate::exact;
use crate::plan::PlanSummary;
use crate::validation::PassRate;

/// Somebody who watches a run.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: Event<'_>);
}

/// What can happen in a run.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// The run begins, or goes on.
    Planned {
        /// What was planned.
        summary: &'a PlanSummary,
        /// The run's folder.
        folder: &'a Path,
        /// The step that it goes on from.
        resumed: Option<u64>,
    },
    /// A step is done.
    Step(&'a StepEvent),
    /// The validation data was scored.
    Validated {
        /// Finished steps.
        step: u64,
        /// Mean negative log-likelihood of a target token.
        loss: f64,
    },
    /// The validation prompts were answered, and the answers judged.
    Passed {
        /// Finished steps.
        step: u64,
        /// How often they pass.
        rate: PassRate,
    },
    /// A checkpoint is on the disk.
    Saved {
        /// Finished steps.
        step: u64,
        /// Its folder.
        path: &'a Path,
    },
    /// The method wrote a line.
    Log {
        /// The step in which it did, from 1; 0 before the first.
        step: u64,
        /// The line, safe to show.
        line: &'a str,
    },
    /// Something that a person should know and that does not stop the run.
    Warning {
        /// What it is.
        text: &'a str,
    },
}

/// A step that is done.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct StepEvent {
    /// Its number, from 1.
    pub step: u64,
    /// Steps of the whole run.
    pub total: u64,
    /// Passes over the data so far.
    #[serde(with = "exact")]
    pub epoch: f64,
    /// The method's numbers, in the order of its manifest.
    #[serde(with = "exact::pairs")]
    pub metrics: Vec<(String, f64)>,
    /// The norm of the gradient before clipping.
    #[serde(with = "exact")]
    pub gradient_norm: f64,
    /// The learning rate of the update.
    #[serde(with = "exact")]
    pub rate: f64,
    /// Tokens of the step.
    pub tokens: u64,
    /// Target tokens of the step.
    pub targets: u64,
    /// Tokens a second, of this step.
    #[serde(with = "exact")]
    pub tokens_per_second: f64,
    /// Seconds of this step.
    #[serde(with = "exact")]
    pub seconds: f64,
    /// Updates left out because their gradient was not finite.
    pub skipped: u32,
    /// The most memory that the process has held, in bytes.
    pub peak: Option<u64>,
}

impl StepEvent {
    /// A number of the method by its name.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}
