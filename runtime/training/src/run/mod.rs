//! The loop of a run: step after step, a checkpoint now and then, an artifact at the end.
//!
//! `start` makes or takes up the run, `step` does one step with its `update`, `revision` changes the method between two.
//! Every error that ends the loop says which checkpoint is left.

mod revision;
pub(crate) mod start;
mod step;
pub(crate) mod update;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tunebox_foundation::explain::Exit;

use crate::artifact;
use crate::error::Error;
use crate::exact;
use crate::lock::write::Written;
use crate::observer::{Observer, StepEvent};
use crate::plan::Plan;
use revision::Revising;
pub use revision::Revisions;
use start::Running;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Outcome {
    /// Every step is done and the artifact is written.
    Finished(Summary),
    /// A person stopped it; the checkpoint is written, unless no step was done.
    Interrupted(Summary),
}

impl Outcome {
    /// What the run did.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        match self {
            Self::Finished(summary) | Self::Interrupted(summary) => summary,
        }
    }

    /// The exit code of the program; `None` for a run that is done.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        matches!(self, Self::Interrupted(_)).then_some(Exit::Interrupted)
    }
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Finished steps.
    pub step: u64,
    /// Planned steps.
    pub total: u64,
    /// Seconds of training, those before a stop included.
    #[serde(with = "exact")]
    pub seconds: f64,
    /// Tokens learned from.
    pub tokens: u64,
    /// The first step of this sitting.
    pub first: Option<StepEvent>,
    /// The last step of this sitting.
    pub last: Option<StepEvent>,
    /// What the method reported at the end, after the last step.
    #[serde(with = "exact::pairs")]
    pub closing: Vec<(String, f64)>,
    /// The last checkpoint.
    pub checkpoint: Option<(u64, PathBuf)>,
    /// The artifact's files; none for a run that was stopped.
    pub written: Vec<Written>,
}

/// Carries a plan out, or goes on with it. `stop` is looked at between steps: the step at hand
/// is finished and saved.
///
/// # Errors
/// Whatever ends the run; [`Error::Step`] names the checkpoint that is left.
pub fn run(plan: Plan, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Outcome, Error> {
    to_the_end(plan, observer, stop, None)
}

/// The same for an author, whose method may change between two steps.
///
/// # Errors
/// As [`run`]; a step that fails by the method's fault waits for a version that does it.
pub fn run_revised(
    plan: Plan,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
    revisions: &mut dyn Revisions,
) -> Result<Outcome, Error> {
    to_the_end(plan, observer, stop, Some(revisions))
}

fn to_the_end(
    plan: Plan,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
    revisions: Option<&mut dyn Revisions>,
) -> Result<Outcome, Error> {
    let mut running = Running::start(plan, observer)?;
    let ended = steps(&mut running, observer, stop, revisions);
    match &ended {
        Ok(_) => running.tell_unreported(observer),
        Err(_) => running.tell_last(running.step, observer),
    }
    ended.map_err(|source| Error::Step { source: Box::new(source), kept: running.kept.clone() })
}

fn steps(
    running: &mut Running,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
    revisions: Option<&mut dyn Revisions>,
) -> Result<Outcome, Error> {
    let mut revising = revisions.map(|revisions| Revising::begin(running, revisions)).transpose()?;
    let every = u64::from(running.plan.settings.file.train.save_every);
    while running.step < running.plan.steps {
        let begun = Instant::now();
        let done = match &mut revising {
            Some(revising) => revising.one(running, observer, stop)?,
            None => running.one(observer).map(|()| true)?,
        };
        if !done {
            return Ok(Outcome::Interrupted(running.summary(Vec::new())));
        }
        running.seconds += begun.elapsed().as_secs_f64();
        let stopped = stop.load(Ordering::Relaxed);
        if stopped || running.step.is_multiple_of(every) || running.step == running.plan.steps {
            running.save(observer)?;
        }
        if stopped && running.step < running.plan.steps {
            return Ok(Outcome::Interrupted(running.summary(Vec::new())));
        }
    }
    let begun = Instant::now();
    running.close(observer)?;
    running.seconds += begun.elapsed().as_secs_f64();
    let written = artifact::write(&running.plan, &running.session.train_state(), &running.metrics)?;
    Ok(Outcome::Finished(running.summary(written)))
}
