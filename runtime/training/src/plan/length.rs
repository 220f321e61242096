//! Determines how many steps a run has, and whether a resumed run may have that many.

use super::folder::{Destination, finished_error};
use super::identity::cannot_go_on;
use crate::checkpoint::State;
use crate::configuration::RunSettings;
use crate::error::{Error, damaged};
use crate::length::{Extension, Length};

/// Returns the length of a run, and the number of steps that was planned before if the run is resumed with more.
/// `windows` is the number of updates in an epoch; if `train.steps` is not set, the run has `windows` × `train.epochs`
/// steps, with 1 epoch unless set. A replay has the earlier lengths that the run recorded.
///
/// # Errors
/// A resumed run that would have fewer steps than before, a finished one that has nothing more to do, and a checkpoint
/// past the end of the run.
pub(super) fn planned_length(
    settings: &RunSettings,
    destination: &Destination,
    windows: u64,
) -> Result<(Length, Option<u64>), Error> {
    let train = &settings.file.train;
    let steps = train.steps.map_or_else(|| windows * u64::from(train.epochs.unwrap_or(1)), u64::from);
    let Some((path, state)) = &destination.checkpoint else {
        let extended = settings.replay.as_ref().map(|replay| replay.extended.clone()).unwrap_or_default();
        return Ok((Length { steps, extended }, None));
    };
    // Checkpoints of older versions do not say what was planned.
    let before = if state.planned == 0 { steps } else { state.planned };
    if steps < before {
        return Err(cannot_go_on(&destination.name, path, &format!("it was planned for {before} steps, now {steps}")));
    }
    if destination.finished && !has_more(state, steps, train.patience) {
        return Err(finished_error(&destination.name, &destination.folder, true));
    }
    if state.step > steps {
        return Err(damaged(path, format!("it claims step {} of {steps}", state.step)));
    }
    let mut extended = state.extended.clone();
    if steps > before {
        extended.push(Extension { after: state.step, steps: before });
    }
    Ok((Length { steps, extended }, Some(before).filter(|before| steps > *before)))
}

/// Whether a run at this state has steps left, of `steps` in all, and has not run out of patience.
fn has_more(state: &State, steps: u64, patience: Option<u32>) -> bool {
    state.step < steps && patience.is_none_or(|patience| state.validations.without_improvement < patience)
}
