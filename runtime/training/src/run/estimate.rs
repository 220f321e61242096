//! Estimates what a run costs once its first steps are done, and measures it at the end.

use super::start::ActiveRun;
use crate::configuration::ENDLESS;
use crate::cost::{Cost, Parts};
use crate::observer::Event;

/// The fewest and the most steps after which the cost of a run is estimated; in between it is a tenth of the run.
const EARLIEST: u64 = 3;
const LATEST: u64 = 10;

impl ActiveRun<'_> {
    /// Estimates the cost of the whole run after a tenth of the steps of this process, at least 3 and at most 10, sends
    /// it to the observer and puts it into the summary. Does nothing after any other step, in a run of fewer than twice
    /// as many steps, and in one without an end.
    pub(super) fn estimate_cost(&mut self) {
        let total = self.plan.summary.steps;
        let before = self.plan.checkpoint.as_ref().map_or(0, |(_, state)| state.step);
        let planned = total.saturating_sub(before);
        let step = planned.div_ceil(10).clamp(EARLIEST, LATEST);
        let is_due = self.summary.step.saturating_sub(before) == step && self.timing.steps() as u64 == step;
        if !is_due || planned < 2 * step || total == u64::from(ENDLESS) {
            return;
        }
        let Some(seconds) = self.timing.estimate(&Parts::of(&self.plan)) else { return };
        let cost = self.cost_of(seconds);
        self.observer.event(&Event::Estimated { step: self.summary.step, cost: cost.clone() });
        self.summary.estimate = Some((self.summary.step, cost));
    }

    /// The cost of so many seconds of this run with the mean power so far, and with the memory of the last step, or the
    /// planned one before the first step.
    pub(super) fn cost_of(&mut self, seconds: f64) -> Cost {
        let peak = self.summary.last.as_ref().and_then(|step| step.peak);
        let memory = peak.unwrap_or_else(|| self.plan.summary.memory.total());
        self.plan.meter.cost_of(seconds, memory, self.plan.settings.file.run.hourly_price)
    }

    /// The seconds in which the reference was scored so far, as its cache counts them; 0 without a cache.
    pub(super) fn reference_seconds(&mut self) -> f64 {
        self.session.train_state().hooks.references.as_ref().map_or(0.0, |references| references.seconds)
    }
}
