//! The position of the run, and the metrics and log lines of the method (`wit/run.wit`).
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(batch: &Batch, nll: &Tensor) -> Result<()> {
//! use tunebox::run;
//!
//! // From 1 at the first step to 0 at the end of the run.
//! let remaining = 1.0 - run::position() as f32 / run::planned() as f32;
//! metric("remaining", remaining); // `metrics` of `method!` lists the name
//! add_metric("loss", loss::token_mean(nll, batch.window_targets("example")?));
//! if run::position() == 0 {
//!     log(&format!("{} records in an update", batch.window_size()));
//! }
//! # Ok(())
//! # }
//! ```

use crate::Tensor;
use crate::bindings::tunebox::method::{run, tensor, types};
use crate::error::certain;

/// The number of finished steps of the run, each an accumulation window; 0 in the first. Updates that a method makes
/// itself do not count.
pub fn position() -> u32 {
    run::position()
}

/// The number of steps that the run plans.
pub fn planned() -> u32 {
    run::planned()
}

/// The host's answer to a report.
type Answer = std::result::Result<(), types::Error>;

/// A number, or a tensor of one element, which stays on the device until the step ends.
pub trait Reported {
    /// Calls `number` if this is an `f32`, else `tensor`, with the value, and returns its answer.
    #[doc(hidden)]
    fn report(self, number: impl FnOnce(f32) -> Answer, tensor: impl FnOnce(&tensor::Tensor) -> Answer) -> Answer;
}

impl Reported for f32 {
    fn report(self, number: impl FnOnce(f32) -> Answer, _: impl FnOnce(&tensor::Tensor) -> Answer) -> Answer {
        number(self)
    }
}

impl Reported for &Tensor {
    fn report(self, _: impl FnOnce(f32) -> Answer, tensor: impl FnOnce(&tensor::Tensor) -> Answer) -> Answer {
        tensor(self.handle())
    }
}

impl Reported for Tensor {
    fn report(self, number: impl FnOnce(f32) -> Answer, tensor: impl FnOnce(&tensor::Tensor) -> Answer) -> Answer {
        (&self).report(number, tensor)
    }
}

/// Reports a number under a name of the manifest's metrics; the micro-batches of an update are averaged.
/// Panics on a name that the manifest does not list, and past 256 values a step.
#[track_caller]
pub fn metric(name: &str, value: impl Reported) {
    certain(value.report(|number| run::metric(name, number), |tensor| run::metric_of(name, tensor)));
}

/// Reports a number under a name of the manifest's metrics, summed over the micro-batches of an update: for terms that
/// are already divided by the window's denominator. Panics as [`metric`] does.
#[track_caller]
pub fn add_metric(name: &str, value: impl Reported) {
    certain(value.report(|number| run::add_metric(name, number), |tensor| run::add_metric_of(name, tensor)));
}

/// Writes a line to the run's log. Lines past 100 a step or 1,024 bytes a line are dropped.
pub fn log(line: &str) {
    run::log(line);
}
