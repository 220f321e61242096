//! Runs one call into a method on a thread of its own, with its clock and limits, and catches every way in which it
//! ends.
//!
//! A panic of the host ends only that thread. What the calls mean is in `session`.

use std::time::Instant;

use crate::call_thread::run_on_call_thread;
use crate::cause::Cause;
use crate::error::{DeniedCall, Error};
use crate::fault::{Function, Stop};
use crate::guest::{ExportResult, Guest};
use crate::printable::printable;
use crate::run_hooks::RunHooks;
use crate::session::{Session, StepReport};
use crate::settings::{CallEvent, CallObserver};
use crate::train_state::lock;

/// The longest message of a method that a person gets to see, in bytes.
const MESSAGE_BYTES: usize = 1_000;

/// The longest line of a method's source in an error, in bytes.
const PLACE_BYTES: usize = 200;

/// Ends a call that did not trap, even if the method returned an error, and returns its report. In this order: stops
/// the method's clock; runs the deferred scoring passes, as the host's time and as one host call of the profile; ends a
/// perturbation that is still active; drops the scores whose handles the method has dropped, and all captured
/// activations; removes the reported metrics and log lines from the state, and the first refusal to compute a gradient;
/// adds the call to the session's usage.
///
/// Errors: a scoring pass that ends the method, a perturbation that cannot be undone, or a metric's tensor that the
/// device does not return ([`Cause::Host`]).
fn finish_call(guest: &mut dyn Guest) -> wasmtime::Result<StepReport> {
    let instructions = guest.instructions();
    let state = guest.state();
    state.meters.pause();
    state.meters.set_instructions(instructions);
    let begun = Instant::now();
    // The weights may change before the next call reads these scores.
    state.run_pending_scores()?;
    // A checkpoint saves the parameters without the perturbation.
    state.train_state().end_perturbation().map_err(crate::refusal::Refusal::from)?;
    if let Some(profiler) = &state.profiler {
        profiler.record_host_call("scores put off until the end of the call", begun);
    }
    // Adds the time since the first `pause` to the host's time.
    state.meters.resume();
    state.meters.pause();
    state.release_scores();
    let metrics = state.reports.take_metrics().map_err(|error| Cause::Host(error.to_string()))?;
    let (log, dropped_lines) = state.reports.take_lines();
    let slow = state.record_usage(metrics.len(), log.len(), dropped_lines);
    Ok(StepReport {
        metrics,
        log,
        dropped_lines,
        host_calls: state.meters.counts().host_calls,
        guest_seconds: state.meters.guest_seconds(),
        slow,
        refused_gradient: state.gradient_refusal.take().map(|denied| (denied.function, denied.message)),
        usage: state.usage.clone(),
    })
}

impl<H: RunHooks> Session<H> {
    /// Runs `run`, one call of the method, on a thread of its own, with the time limit of `function`, and returns its
    /// value and report. Before the call, clears the errors that the host returned to the method in the last one and
    /// the fault that the method reported in it, begins a call in the profile if there is one, and tells the observer.
    /// After it, tells the observer, removes the policy's deadline, and stores the positions of the random sequences in
    /// `positions`, whether the call succeeded or not.
    ///
    /// Errors: [`Error::Over`] if the session has ended; [`Error::Refused`] if the method returned an error, after
    /// which it can be called again; [`Error::Stopped`] for a trap, a passed limit or a panic of the host, which ends
    /// the session. On failure the log lines of the call, and the number of dropped ones, are kept in `last_lines`; on
    /// success it is emptied.
    pub(crate) fn call<R: Send>(
        &mut self,
        function: Function,
        run: impl FnOnce(&mut dyn Guest) -> wasmtime::Result<ExportResult<R>> + Send,
    ) -> Result<(R, StepReport), Error> {
        let step = self.train_state().hooks.position().saturating_add(1);
        let seconds = self.time_limit(function);
        let Some(guest) = self.guest.as_deref_mut() else { return Err(Error::Over { method: self.method.clone() }) };
        let state = guest.state();
        (state.fault, state.denied, state.gradient_refusal) = (None, None, None);
        if let Some(profiler) = &guest.state().profiler {
            profiler.begin_call();
        }
        let notify = |event| self.call_observer.iter().for_each(|CallObserver(observer)| observer(event));
        notify(CallEvent::Begun(function, self.limits.step_wall_seconds));
        let outcome = run_on_call_thread(|| {
            guest.begin(seconds)?;
            let answer = run(&mut *guest)?;
            Ok::<_, wasmtime::Error>((answer, finish_call(guest)?))
        });
        notify(CallEvent::Ended);
        lock(&self.train_state).policy.set_deadline(None);
        let state = guest.state();
        self.positions = state.stream_positions();
        self.last_lines = state.reports.take_lines();
        match outcome {
            Ok(Ok((Ok(value), report))) => Ok((value, report)),
            Ok(Ok((Err(message), report))) => {
                self.last_lines = (report.log, report.dropped_lines);
                Err(self.refused_error(function, step, &message))
            }
            Ok(Err(error)) => Err(self.end_with_error(function, step, Ok(error))),
            Err(cause) => Err(self.end_with_error(function, step, Err(cause))),
        }
    }

    /// Returns the seconds that the method itself may compute in this call: `step_seconds` for `step` and `finish`,
    /// `init_seconds` for every other; `f64::MAX`, so without limit, if `step_instructions` is not 0.
    fn time_limit(&self, function: Function) -> f64 {
        match function {
            _ if self.limits.step_instructions > 0 => f64::MAX,
            Function::Step | Function::Finish => self.limits.step_seconds,
            _ => self.limits.init_seconds,
        }
    }

    /// Builds [`Error::Refused`] for an error `message` that the method returned from `function`. If `message` is the
    /// text of the last error that the host returned to the method in this call, alone or followed by `, called at
    /// LINE`, the error holds that text, the host function that was refused and, if given, `LINE`. Any other message is
    /// escaped and cut at 1,000 bytes, and no function is named. `step` counts from 1. Removes that last error from the
    /// state.
    fn refused_error(&mut self, function: Function, step: u32, message: &str) -> Error {
        let name = function.name();
        let (moment, within) = match function {
            Function::Step => (format!("at step {step}"), format!("in `{name}`, step {step}")),
            _ => (format!("in `{name}`"), format!("in `{name}`")),
        };
        let method = self.method.clone();
        let denied = self.guest.as_deref_mut().and_then(|guest| guest.state().denied.take());
        match denied.as_ref().and_then(|denied| Some((denied, denied.source_line_in(message)?))) {
            Some((denied, line)) => {
                let line = printable(line, PLACE_BYTES);
                let place = if line.is_empty() { within } else { format!("{line}, {within}") };
                let (message, function) = (denied.message.clone(), denied.function);
                Error::Refused { method, moment, message, denied: Some(Box::new(DeniedCall { function, place })) }
            }
            None => {
                let message = printable(message, MESSAGE_BYTES);
                Error::Refused { method, moment, message, denied: None }
            }
        }
    }

    /// Ends the session, with the method's instance, handles and patches, and builds [`Error::Stopped`] with the cause,
    /// the host function called last, what the method itself reported of its end, and its call stack. `outcome` is the
    /// engine's error, or `Err` with the cause if the call's thread panicked or could not be started; then the error
    /// has neither report nor call stack. `step` counts from 1.
    fn end_with_error(&mut self, function: Function, step: u32, outcome: Result<wasmtime::Error, Cause>) -> Error {
        let (last, calls, fault, denied) = self.guest.as_deref_mut().map_or((None, 0, None, None), |guest| {
            let state = guest.state();
            (state.meters.last_function(), state.meters.host_calls(), state.fault.take(), state.denied.take())
        });
        let stop = |cause| Stop::new(&self.method, function, step, cause, last);
        let stop = match outcome {
            Ok(error) => {
                stop(Cause::from_engine_error(&error, &self.limits, calls)).with_fault(fault, denied).with_trace(&error)
            }
            Err(cause) => stop(cause),
        };
        self.end();
        Error::Stopped(Box::new(stop))
    }
}
