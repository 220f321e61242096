//! The position of the run, and the metrics and log lines of the method (`wit/run.wit`).

use crate::Tensor;
use crate::bindings::tunebox::method::run;
use crate::error::certain;

/// The number of finished weight updates; 0 in the first step.
pub fn position() -> u32 {
    run::position()
}

/// The number of weight updates that the run plans.
pub fn planned() -> u32 {
    run::planned()
}

/// A number, or a tensor of one element, which stays on the device until the step ends.
pub trait Reported {
    /// Reports it, averaged over the micro-batches of an update.
    #[track_caller]
    #[doc(hidden)]
    fn average(self, name: &str);

    /// Reports it, summed over the micro-batches of an update.
    #[track_caller]
    #[doc(hidden)]
    fn sum(self, name: &str);
}

impl Reported for f32 {
    #[track_caller]
    fn average(self, name: &str) {
        certain(run::metric(name, self));
    }

    #[track_caller]
    fn sum(self, name: &str) {
        certain(run::add_metric(name, self));
    }
}

impl Reported for &Tensor {
    #[track_caller]
    fn average(self, name: &str) {
        certain(run::metric_of(name, self.handle()));
    }

    #[track_caller]
    fn sum(self, name: &str) {
        certain(run::add_metric_of(name, self.handle()));
    }
}

impl Reported for Tensor {
    #[track_caller]
    fn average(self, name: &str) {
        (&self).average(name);
    }

    #[track_caller]
    fn sum(self, name: &str) {
        Reported::sum(&self, name);
    }
}

/// Reports a number under a name of the manifest's metrics; the micro-batches of an update are averaged.
/// Panics on a name that the manifest does not list, and past 256 values a step.
#[track_caller]
pub fn metric(name: &str, value: impl Reported) {
    value.average(name);
}

/// Like [`metric`], summed over the micro-batches: for terms already divided by the window's denominator.
#[track_caller]
pub fn add_metric(name: &str, value: impl Reported) {
    value.sum(name);
}

/// Writes a line to the run's log. Lines past 100 a step or 1,024 bytes a line are dropped.
pub fn log(line: &str) {
    run::log(line);
}
