//! Tells the user of a run what its method reported or took over unlike what is expected.

use super::start::ActiveRun;
use crate::extra_parameters;
use crate::observer::Event;

impl ActiveRun<'_> {
    /// Warns, once in the run, about numbers of the method that are NaN or infinite: metrics with their names, reported at
    /// `step`, which is counted from 1.
    pub(super) fn warn_non_finite(&mut self, step: u64, metrics: &[(String, f64)]) {
        let wrong = metrics.iter().filter(|(_, value)| !value.is_finite());
        let wrong: Vec<String> = wrong.map(|(name, value)| format!("`{name}` is {value}")).collect();
        if wrong.is_empty() || std::mem::replace(&mut self.non_finite, true) {
            return;
        }
        let text = format!(
            "at step {step} the method reported a metric that is not a finite number: {}; `metrics.jsonl` has `null` for it",
            wrong.join(", ")
        );
        self.observer.event(&Event::Warning { text });
    }

    /// Says which extra parameters began with the values beside what the run continues, and warns about those
    /// that the method did not ask for. Does nothing if there are none. `step` is the finished step.
    pub(super) fn show_start_values(&mut self, step: u64) {
        let (used, unused): (Vec<String>, Vec<String>) = {
            let train_state = self.session.train_state();
            let is_used = |name: &String| train_state.method_parameters.extras().any(|(used, _)| used == name);
            train_state.start_values.keys().cloned().partition(is_used)
        };
        let (_, from) = extra_parameters::continued(&self.plan.settings).unwrap_or_default();
        let list = |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        if !used.is_empty() {
            let line = format!("extra parameters that began with their values in {from}: {}", list(&used));
            self.observer.event(&Event::Log { step, line });
        }
        if !unused.is_empty() {
            let text = format!(
                "{from} has extra parameters that `{}` has not asked for, and that this run does not use: {}",
                self.plan.summary.method,
                list(&unused)
            );
            self.observer.event(&Event::Warning { text });
        }
    }
}
