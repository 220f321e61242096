//! The loop of a run: steps, checkpoints, and the artifact at the end.
//!
//! `start` starts or resumes the run, `step` executes one step with its `update`, `estimate` says what the run will
//! cost, `trial` executes a few steps for that alone, `revision` changes the method between steps, `warnings` says what
//! is unlike expected, `ending` writes the artifact. An error that ends the loop names the last checkpoint.

mod ending;
mod estimate;
mod revision;
pub(crate) mod start;
mod step;
mod trial;
pub(crate) mod update;
mod warnings;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::error::Error;
use crate::observer::Observer;
pub use crate::observer::Summary;
use crate::plan::Plan;
use crate::report::Reporter;
use revision::RevisableRun;
use start::ActiveRun;
pub use trial::{Trial, try_steps};

/// Executes a plan to its end. `stop` is checked after each step: if it is set and steps remain, saves a checkpoint and
/// returns a summary marked as interrupted, without an artifact. In a run of the method's author (`authoring`) the
/// observer may change the method between steps, and a step that fails in the method waits for a fixed version. At the
/// end, if the method is given as a folder, warns about declared metrics that were never reported; after an error sends
/// the log lines of the call that failed to the observer instead.
///
/// Writes the report of the run as it goes on, on several ranks that of rank 0.
///
/// # Errors
/// An error of the start as it is, and [`Error::Step`] around any later one, with the last checkpoint, if there is one.
pub fn run(plan: Plan, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Summary, Error> {
    if plan.run.settings.ranks.position().0 > 0 {
        return run_observed(plan, observer, stop);
    }
    let mut reporter = Reporter::new(observer);
    let ended = run_observed(plan, &mut reporter, stop);
    reporter.finish(ended.as_ref());
    ended
}

/// Executes a plan to its end as [`run`] does, without a report.
fn run_observed(plan: Plan, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Summary, Error> {
    let mut running = ActiveRun::start(plan, observer)?;
    let ended = execute_steps(&mut running, stop);
    match &ended {
        Ok(_) => running.warn_unreported(),
        Err(_) => running.show_last_lines(running.summary.step),
    }
    let seconds = running.plan.meter.seconds();
    let ended = ended.map(|summary| Summary { cost: Some(running.cost_of(seconds)), ..summary });
    ended.map_err(|source| Error::Step { source: Box::new(source), kept: running.summary.checkpoint.clone() })
}

/// Executes the remaining steps, then ends the run ([`ActiveRun::finish`]). Saves a checkpoint when the number of
/// finished steps is a multiple of `train.save-every`, after the best validation so far if the run keeps it, and after
/// the last step. If `stop` is set after a step and steps remain, saves a checkpoint and returns a summary marked as
/// interrupted, without `finish` and artifact.
fn execute_steps(running: &mut ActiveRun<'_>, stop: &AtomicBool) -> Result<Summary, Error> {
    let authoring = running.plan.settings.authoring;
    let mut revisable = authoring.then(|| RevisableRun::begin(running)).transpose()?;
    let every = running.plan.settings.file.train.save_every;
    while !running.is_at_end() {
        let begun = Instant::now();
        let done = match &mut revisable {
            Some(revisable) => revisable.execute_step(running, stop)?,
            None => running.execute_step().map(|()| true)?,
        };
        if !done {
            return Ok(Summary { interrupted: true, ..running.summary.rounded() });
        }
        running.summary.seconds += begun.elapsed().as_secs_f64();
        running.estimate_cost();
        let stopped = running.agree_on_stop(stop.load(Ordering::Relaxed))?;
        let is_due = running.plan.learning_rate.length.is_due(running.summary.step, every);
        if stopped || is_due || running.is_best_due() || running.is_at_end() {
            running.save_checkpoint()?;
        }
        if stopped && !running.is_at_end() {
            return Ok(Summary { interrupted: true, ..running.summary.rounded() });
        }
    }
    let begun = Instant::now();
    running.finish()?;
    running.summary.seconds += begun.elapsed().as_secs_f64();
    Ok(running.summary.rounded())
}
