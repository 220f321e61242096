//! The length of a run: its steps, and those that were planned before it was resumed with more.
//!
//! The learning rate of a step follows from the number of steps that was planned when the step was executed. A run that
//! was resumed with more steps records the numbers before, so that a replay computes the same rates.

use serde::{Deserialize, Serialize};

/// The most steps between two checkpoints and between two validations, and the least, unless a run sets them.
const MAX_INTERVAL: u64 = 100;
const MIN_INTERVAL: u64 = 5;

/// The most entries of `extended`.
const MAX_EXTENSIONS: usize = 1_000;

/// A number of steps that was planned before a run was resumed with more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extension {
    /// Finished steps when the run was resumed with more.
    pub after: u64,
    /// The number of steps planned until then.
    pub steps: u64,
}

/// The planned steps of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Length {
    /// The steps of the whole run.
    pub(crate) steps: u64,
    /// The earlier numbers of steps, in order.
    pub(crate) extended: Vec<Extension>,
}

impl Length {
    /// Returns the number of steps that is planned when step `step` (from 0) is executed.
    pub(crate) fn planned_at(&self, step: u64) -> u64 {
        self.extended.iter().find(|earlier| step < earlier.after).map_or(self.steps, |earlier| earlier.steps)
    }

    /// Returns the earlier numbers of steps that no longer held after `finished` steps. In a replay there may be
    /// others, which are still to come.
    pub(crate) fn extended_until(&self, finished: u64) -> Vec<Extension> {
        self.extended.iter().filter(|earlier| earlier.after <= finished).copied().collect()
    }

    /// Whether something that happens every `every` steps is due after `finished` steps: at each multiple of the
    /// interval, at the end of the run, and at what was its end before it was resumed with more steps. `None` takes the
    /// interval of [`default_interval`].
    pub(crate) fn is_due(&self, finished: u64, every: Option<u32>) -> bool {
        let planned = self.planned_at(finished.saturating_sub(1));
        let every = every.map_or_else(|| default_interval(planned), u64::from);
        finished > 0 && (finished.is_multiple_of(every) || planned == finished)
    }
}

/// The steps between two checkpoints, and between two validations, of a run of `steps` steps that does not set them: a
/// tenth of the run, at least 5 and at most 100.
fn default_interval(steps: u64) -> u64 {
    steps.div_ceil(10).clamp(MIN_INTERVAL, MAX_INTERVAL)
}

/// Whether a run that has done `finished` steps can have been extended so: at most 1,000 times, each time after more
/// steps than before, and after no more steps than were planned or are finished. Lists come from files that may be
/// anyone's.
pub(crate) fn is_plausible(extended: &[Extension], finished: u64) -> bool {
    let ordered = extended.is_sorted_by(|one, next| one.after < next.after);
    let within = |one: &Extension| one.after > 0 && one.after <= one.steps && one.after <= finished;
    extended.len() <= MAX_EXTENSIONS && ordered && extended.iter().all(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_about_ten_checkpoints_and_never_goes_a_hundred_steps_without_one() {
        let found = [1, 35, 60, 300, 1_001, 10_000_000].map(default_interval);
        assert_eq!(found, [5, 5, 6, 30, 100, 100]);
    }

    #[test]
    fn each_step_is_planned_by_the_length_that_the_run_had_then() {
        let extended = vec![Extension { after: 20, steps: 20 }, Extension { after: 25, steps: 40 }];
        let length = Length { steps: 80, extended };
        assert_eq!([0, 19, 20, 24, 25, 79].map(|step| length.planned_at(step)), [20, 20, 40, 40, 80, 80]);
        assert_eq!([10, 20, 80].map(|finished| length.extended_until(finished).len()), [0, 1, 2]);
        let due = |every| (0..=80).filter(|finished| length.is_due(*finished, every)).collect::<Vec<_>>();
        assert_eq!(due(Some(30)), [20, 30, 60, 80]);
        assert_eq!(due(None)[..6], [5, 10, 15, 20, 25, 32]);
    }

    #[test]
    fn a_list_of_lengths_that_no_run_had_is_not_believed() {
        let one = |after, steps| Extension { after, steps };
        assert!(is_plausible(&[one(20, 20), one(25, 40)], 25));
        for wrong in [&[one(20, 10)][..], &[one(0, 10)], &[one(30, 40)], &[one(20, 20), one(20, 40)]] {
            assert!(!is_plausible(wrong, 25), "{wrong:?}");
        }
    }
}
