//! Events and summary of a run, for the terminal and for other observers.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use tunebox_foundation::format::seven_digits;
use tunebox_package::Manifest;

use crate::cost::Cost;
use crate::error::Error;
use crate::exact;
use crate::lock::write::Written;
use crate::outcome::Outcome;
use crate::plan::{NativeMethod, PlanSummary};
use crate::validation::PassRate;

/// Receives the events of a run, and gives it newer versions of its method if the method's author runs it
/// ([`authoring`](crate::configuration::RunSettings::authoring)).
pub trait Observer {
    /// Handles one event.
    fn event(&mut self, event: &Event);

    /// Handles a line that the method logs in a call that goes on; `_in_step` says whether that is a call of `step`.
    /// Once the call has ended, [`Event::Log`] has the line again. Only runs in a worker process send it; by default
    /// does nothing.
    fn live_line(&mut self, _line: &str, _in_step: bool) {}

    /// Returns the newest version of the method if its component differs from `present` and it was not returned before;
    /// `None` otherwise, and by default. Called between two steps of an author's run; does not wait.
    fn next_version(&mut self, _present: &[u8]) -> Option<Version> {
        None
    }

    /// Waits, after a step of an author's run that failed with `error`, for a newer version with which to try the step
    /// again. `None` ends the run: as stopped by the user if `stop` is set, else with the error. By default returns
    /// `None` at once.
    fn wait_for_fix(&mut self, _error: &Error, _stop: &AtomicBool) -> Option<Version> {
        None
    }

    /// Reports, after `step` finished steps, whether the run continues with the version that was returned last, whose
    /// manifest `Ok` has, or keeps the version before it because of the error in `Err`. By default does nothing.
    fn report_outcome(&mut self, _step: u64, _outcome: Result<&Manifest, &Error>) {}
}

/// A newer version of a method, from its author.
#[derive(Debug)]
pub enum Version {
    /// The bytes of a component.
    Component(Vec<u8>),
    /// A process that runs the source outside of the sandbox.
    Process(NativeMethod),
}

/// What happens in a run. A worker process sends it to its parent as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The run starts or resumes.
    Planned {
        /// The plan in figures.
        summary: Box<PlanSummary>,
        /// The run's folder.
        folder: PathBuf,
        /// The step of the checkpoint that is resumed.
        resumed: Option<u64>,
    },
    /// A step is done.
    Step(StepEvent),
    /// The validation data was scored.
    Validated {
        /// Finished steps.
        step: u64,
        /// Mean negative log-likelihood of a target token.
        #[serde(with = "exact")]
        loss: f64,
    },
    /// Completions of the validation prompts were generated and scored.
    Passed {
        /// Finished steps.
        step: u64,
        /// The pass rate.
        rate: PassRate,
    },
    /// Completions that the method learned from in a step, with their rewards; every `train.show-completions` steps.
    Sampled {
        /// Finished steps.
        step: u64,
        /// For each of the first prompts the completion with the highest and the one with the lowest reward.
        samples: Vec<Sample>,
    },
    /// The model answered prompts of the data; before the first step and after the last.
    Answered {
        /// Finished steps.
        step: u64,
        /// An answer for each prompt.
        answers: Vec<Answered>,
    },
    /// The first steps show what the whole run will cost.
    Estimated {
        /// Finished steps.
        step: u64,
        /// The estimated cost of the whole run.
        cost: Cost,
    },
    /// A checkpoint is on the disk.
    Saved {
        /// Finished steps.
        step: u64,
        /// The checkpoint's folder.
        path: PathBuf,
    },
    /// A line about a step: one that the method logged, or the extra parameters that it took over.
    Log {
        /// The step, from 1; for a call outside of steps, such as `finish`, the number of finished steps.
        step: u64,
        /// The line, safe to show.
        line: String,
    },
    /// A problem that does not stop the run.
    Warning {
        /// The problem.
        text: String,
    },
}

/// A completion with its reward, for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The prompt, or the last message of a conversation, cut after 2,000 bytes.
    pub prompt: String,
    /// The completion, cut after 2,000 bytes.
    pub completion: String,
    /// The weighted sum of the verdicts; `None` if no verifier gave one.
    pub reward: Option<f64>,
    /// The name and the verdict of every verifier that gave one.
    pub verdicts: Vec<(String, f64)>,
}

/// An answer of the model to a prompt of the data, for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The prompt, cut after 2,000 bytes; of several messages with their roles.
    pub prompt: String,
    /// The answer in the data, cut after 2,000 bytes; `None` if the data has none.
    pub wanted: Option<String>,
    /// The likeliest answer of the model, cut after 48 tokens.
    pub answer: String,
}

/// A step that is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepEvent {
    /// Number of the step, from 1.
    pub step: u64,
    /// Steps of the whole run.
    pub total: u64,
    /// Finished epochs, with the finished fraction of the present one.
    pub epoch: f64,
    /// Metrics of the method, in the order of its manifest, then those of the verifiers.
    #[serde(with = "exact::pairs")]
    pub metrics: Vec<(String, f64)>,
    /// The norm of the gradient before clipping.
    #[serde(with = "exact")]
    pub gradient_norm: f64,
    /// The learning rate.
    pub rate: f64,
    /// Tokens of the step: of its records, and of completions generated for the method.
    pub tokens: u64,
    /// Target tokens of the step. Every token of a generated completion counts as a target.
    pub targets: u64,
    /// Tokens per second of this step.
    pub tokens_per_second: f64,
    /// Seconds of this step.
    pub seconds: f64,
    /// Updates skipped because their gradient was not finite.
    pub skipped: u32,
    /// Peak memory of the process or device so far, in bytes; `None` if it is unknown.
    pub peak: Option<u64>,
}

impl StepEvent {
    /// Returns the value of the metric with exactly this name; `None` if the step has no such metric.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// Sends each log line of `step` to the observer as [`Event::Log`], then, if `dropped` is not 0, one [`Event::Warning`]
/// that `dropped` further lines were too many or too long.
pub(crate) fn show_lines(step: u64, (lines, dropped): (&[String], u32), observer: &mut dyn Observer) {
    for line in lines {
        observer.event(&Event::Log { step, line: line.clone() });
    }
    if dropped > 0 {
        let text = match dropped {
            1 => "a log line of the method was too much or too long".to_owned(),
            _ => format!("{dropped} log lines of the method were too many or too long"),
        };
        observer.event(&Event::Warning { text });
    }
}

/// How a run ended, in figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Whether the user stopped the run: its last step is saved, unless there was none, and no artifact is written.
    pub interrupted: bool,
    /// The run's name.
    pub name: String,
    /// The run's folder.
    pub folder: PathBuf,
    /// Finished steps.
    pub step: u64,
    /// Planned steps.
    pub total: u64,
    /// Seconds of training, including those before the run was resumed.
    pub seconds: f64,
    /// Tokens of all finished steps, generated ones included.
    pub tokens: u64,
    /// The first step that this process executed.
    pub first: Option<StepEvent>,
    /// The last step that this process executed.
    pub last: Option<StepEvent>,
    /// Metrics that the method reported after the last step.
    #[serde(with = "exact::pairs")]
    pub closing: Vec<(String, f64)>,
    /// The step and folder of the last checkpoint; `None` if a finished run keeps none.
    pub checkpoint: Option<(u64, PathBuf)>,
    /// The files of the artifact; empty for a run that was stopped.
    pub written: Vec<Written>,
    /// How the run ended; `None` for a run that was stopped.
    pub outcome: Option<Outcome>,
    /// The step after which the cost of the run was estimated, and the estimate; `None` if the run was too short for
    /// one.
    pub estimate: Option<(u64, Cost)>,
    /// What the run cost; of a resumed run, since it was resumed.
    pub cost: Option<Cost>,
}

impl Summary {
    /// Returns a copy with `seconds` rounded to seven significant digits: a method could hide data in the time that it
    /// takes.
    pub(crate) fn rounded(&self) -> Self {
        Self { seconds: seven_digits(self.seconds), ..self.clone() }
    }
}

/// An observer that ignores every event.
pub(crate) struct SilentObserver;

impl Observer for SilentObserver {
    fn event(&mut self, _event: &Event) {}
}
