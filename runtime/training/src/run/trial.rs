//! Executes a few steps of a planned run in a temporary folder, to estimate what the whole run costs.

use std::path::Path;
use std::time::Instant;

use super::start::ActiveRun;
use crate::cost::{Cost, Parts};
use crate::data::{BatchSampler, Cursor};
use crate::error::Error;
use crate::observer::SilentObserver;
use crate::plan::Plan;

/// The fewest and the most steps of a trial after the first, which warms up. No step is added after the fewest steps
/// once they took [`SECONDS`].
const MIN_STEPS: usize = 3;
const MAX_STEPS: usize = 24;
const SECONDS: f64 = 12.0;

/// The golden ratio less 1: multiples of it, without their whole part, are spread evenly over 0 to 1, however many they
/// are.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// The most records of the validation data that a trial scores.
const MAX_VALIDATION: usize = 64;

/// What a trial of a run found.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Steps that were executed.
    pub steps: usize,
    /// Seconds of the trial itself.
    pub seconds: f64,
    /// The estimated cost of the whole run.
    pub cost: Cost,
}

/// Executes steps of a plan on batches from all over the first epoch, a validation of at most 64 records, a checkpoint
/// and the end of the run, and estimates the cost of the whole run from what they took. Writes into the existing folder
/// `folder`, and not into that of the run. The plan is for a new run.
///
/// # Errors
/// An error of the run: a method or a verifier that fails, or files that cannot be written.
pub fn try_steps(mut plan: Plan, folder: &Path) -> Result<Trial, Error> {
    let begun = Instant::now();
    let parts = Parts::of(&plan.run);
    let cursors = epoch_cursors(&plan.sampler);
    let scale = cut_validation(&mut plan);
    plan.run.folder = folder.join("trial");
    let mut silent = SilentObserver;
    let mut running = ActiveRun::start(plan, &mut silent)?;
    running.timing.validation.scale(scale);
    for number in 0..=MAX_STEPS {
        let is_enough = number > MIN_STEPS && running.timing.warm_seconds() > SECONDS;
        if is_enough || number as u64 >= running.plan.summary.steps.max(MIN_STEPS as u64) {
            break;
        }
        let position = (number as f64 * GOLDEN).fract() * cursors.len() as f64;
        running.sampler.seek(cursors.get(position as usize).copied().unwrap_or_default());
        let event = running.try_step()?;
        running.summary.step += 1;
        running.summary.last = Some(event);
    }
    running.save_checkpoint()?;
    let ending = Instant::now();
    // A method may need more steps than these for its end.
    if running.finish().is_ok() {
        running.timing.ending = Some(ending.elapsed().as_secs_f64());
    }
    let seconds = running.timing.estimate(&parts).unwrap_or_default();
    let cost = running.cost_of(seconds);
    Ok(Trial { steps: running.timing.steps(), seconds: begun.elapsed().as_secs_f64(), cost })
}

/// The positions of all windows of the sampler's present epoch.
fn epoch_cursors(sampler: &BatchSampler) -> Vec<Cursor> {
    let (count, mut sampler) = (sampler.windows_per_epoch(), sampler.clone());
    let step = |_| {
        let cursor = sampler.cursor();
        sampler.next_window();
        cursor
    };
    (0..count).map(step).collect()
}

/// Keeps at most 64 records of the plan's validation data. Returns the number of all its records divided by that of the
/// kept ones; 1 without validation data.
fn cut_validation(plan: &mut Plan) -> f64 {
    let Some(data) = &mut plan.run.validation else { return 1.0 };
    let all = data.examples.len();
    data.examples.truncate(MAX_VALIDATION);
    all as f64 / data.examples.len().max(1) as f64
}
