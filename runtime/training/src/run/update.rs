//! One update: in a run, in a comparison with the native twin, and in a unit test.

use tunebox_foundation::explain::Explanation;
use tunebox_package::{Cadence, Updates};
use tunebox_sandbox::StepReport;

use crate::data::{BatchSampler, window};
use crate::error::Error;
use crate::learner::{Session, begin_step};
use crate::metrics::MetricTotals;
use crate::plan::PlannedRun;

/// The result of an update.
pub(crate) struct Update {
    /// Tokens of the records.
    pub(crate) tokens: u64,
    /// Target tokens of the records.
    pub(crate) targets: u64,
    /// The metrics of the method, combined over the window, in the order of its manifest.
    pub(crate) numbers: Vec<(String, f64)>,
}

/// The last finite loss of a run, and its step.
pub(crate) type LastLoss = Option<(f64, u64)>;

/// Executes step `step` (from 0): calls the method for every batch of the next window, then updates the weights if a
/// gradient is accumulated. A method of the cadence `Window` gets the whole window as one batch. Advances the sampler
/// past the window. `last` is the last finite loss, for errors. Passes the report of each successful call to
/// `handle_report`.
///
/// # Errors
/// A failed call or update; a method that updates the parameters itself and leaves a gradient; and a combined metric
/// `loss` that is not finite, which is checked after the update.
pub(crate) fn update(
    plan: &PlannedRun,
    session: &mut Session,
    sampler: &mut BatchSampler,
    (step, last): (u64, LastLoss),
    handle_report: &mut dyn FnMut(StepReport),
) -> Result<Update, Error> {
    begin_step(&mut session.train_state(), step);
    // An update clears these gradients with the others, but a window may end without an update.
    session.train_state().method_parameters.clear_gradients();
    let mut micro_batches = sampler.next_window();
    if plan.method.package.manifest.batch == Cadence::Window {
        micro_batches = vec![micro_batches.concat()];
    }
    let window = window(&plan.data, &micro_batches)?;
    let mut tally = MetricTotals::default();
    for batch in window.batches {
        let report = session.step(batch);
        let report = report.map_err(|error| explain_failure(plan, session, (step, last), error.into()))?;
        tally.add(&report.metrics);
        handle_report(report);
    }
    let mut train_state = session.train_state();
    let untrained = step == 0 && train_state.hooks.progress.updates == 0;
    if plan.method.package.manifest.update == Updates::Method {
        if train_state.has_gradient() || train_state.method_parameters.has_gradient() {
            return Err(unfinished_update(&plan.method.package.manifest.name, step));
        }
    } else if train_state.has_gradient() {
        let updated = train_state.update();
        drop(train_state);
        updated.map_err(|error| explain_failure(plan, session, (step, last), error.into()))?;
    }
    let numbers = tally.numbers(&plan.method.package.manifest.metrics);
    if numbers.iter().any(|(name, value)| name == "loss" && !value.is_finite()) {
        return Err(not_finite_error(plan, (step, last), untrained, "loss"));
    }
    Ok(Update { tokens: window.tokens, targets: window.targets, numbers })
}

/// Returns the cause of a failed step: the recorded failure of a verifier or the environment, and removes that record;
/// else an error about the loss or gradient that was not finite in the step; else `error` itself. `moment` is the step
/// (from 0) and the last finite loss.
pub(crate) fn explain_failure(
    plan: &PlannedRun,
    session: &mut Session,
    moment: (u64, LastLoss),
    error: Error,
) -> Error {
    let trainer = &mut session.train_state().hooks;
    if let Some(failure) = trainer.rewards.failure.take() {
        return failure;
    }
    let untrained = moment.0 == 0 && trainer.progress.updates == 0;
    match trainer.non_finite {
        Some(quantity) => not_finite_error(plan, moment, untrained, quantity),
        None => error,
    }
}

/// The error for a method that updates the parameters itself and left its gradient at the end of step `step` (from 0).
fn unfinished_update(method: &str, step: u64) -> Error {
    Explanation::new(
        "method",
        format!("`{method}` made no update of the gradient that it computed in step {}", step + 1),
    )
    .with_why("its manifest says `update: \"method\"`, so the host does not update, and the gradient would be lost")
    .with_hint("call `optimizer.done` after the parameters have changed, when `batch.ends-window` is true")
    .into()
}

/// The error about a loss or gradient (`quantity`) that is not finite at `step` (from 0). `last` is the last finite
/// loss; `untrained`: no update was made before.
fn not_finite_error(
    plan: &PlannedRun,
    (step, last): (u64, LastLoss),
    untrained: bool,
    quantity: &'static str,
) -> Error {
    Error::NonFinite { quantity, step: step + 1, last, untrained, rate: plan.learning_rate.peak }
}
