//! One call into a method: clock and limits set, a deep stack, every end caught.
//!
//! Gradients and the graphs that they walk recurse, so calls run on a thread of their own with a
//! deep stack; a panic of the host ends there as well. What the calls mean is in `session`.

use std::any::Any;
use std::time::Instant;

use tunebox_compute::budget::Budget;
use wasmtime::{Store, StoreContextMut, UpdateDeadline, WasmBacktrace};

use crate::bindings::{Offered, OfferedPre, training};
use crate::cause::Cause;
use crate::error::{DeniedCall, Error};
use crate::fault::{Function, Stop};
use crate::guest::{Answer, Guest};
use crate::printable::printable;
use crate::quiet::{PREFIX, UnderWay, take_place};
use crate::run_hooks::RunHooks;
use crate::session::{Session, SessionSettings, StepReport};
use crate::state::State;
use crate::train_state::Shared;

/// The stack of a call. Only what is used is ever taken from the machine.
const STACK: usize = 256 << 20;

/// The longest message of a method that a person gets to see, in bytes.
const MESSAGE_BYTES: usize = 1_000;

/// The longest line of a method's source in an error, in bytes.
const PLACE_BYTES: usize = 200;

/// Handles that the engine counts twice while they are lent.
const LENT_HANDLES: usize = 4_096;

/// A store, and the method in it once it is instantiated.
pub(crate) struct Alive {
    store: Store<State>,
    ready: OfferedPre<State>,
    instance: Option<Offered>,
}

impl Alive {
    /// A store with its limits set, and nothing in it.
    pub(crate) fn new(
        ready: &OfferedPre<State>,
        settings: SessionSettings,
        ledger: Budget,
        train_state: Shared,
    ) -> Self {
        let state = State::new(settings, ledger, train_state);
        let (handles, transfer) = (state.limits.handles as usize, state.limits.transfer_bytes);
        let mut store = Store::new(ready.engine(), state);
        store.limiter(|state| &mut state.memory);
        store.set_max_component_handles(handles + LENT_HANDLES);
        store.set_hostcall_fuel(usize::try_from(transfer).unwrap_or(usize::MAX));
        store.epoch_deadline_callback(|mut store| {
            store.data().meters.check_time()?;
            sample(&mut store);
            Ok(UpdateDeadline::Continue(1))
        });
        Self { store, ready: ready.clone(), instance: None }
    }

    /// Makes the instance; a method's start code runs here.
    pub(crate) fn instantiate(&mut self) -> wasmtime::Result<Answer<()>> {
        self.instance = Some(self.ready.instantiate(&mut self.store)?);
        Ok(Ok(()))
    }

    /// What the method offers, and the store to call it in.
    pub(crate) fn training(&mut self) -> wasmtime::Result<(&training::Guest, &mut Store<State>)> {
        let instance = self.instance.as_ref().ok_or_else(|| wasmtime::Error::msg("the method has no instance"))?;
        Ok((instance.tunebox_method_training(), &mut self.store))
    }

    /// The store, whether or not there is an instance in it.
    pub(crate) fn store(&mut self) -> &mut Store<State> {
        &mut self.store
    }
}

/// Has the profile, if one is made, look at what the method is doing; the time of that is not the method's.
fn sample(store: &mut StoreContextMut<'_, State>) {
    let state = store.data();
    let Some(profiler) = state.profiler.clone() else { return };
    let (begun, guest) = (Instant::now(), state.meters.guest_seconds());
    profiler.sample(guest, || WasmBacktrace::force_capture(&*store));
    store.data_mut().meters.leave_out(begun.elapsed());
}

/// What a call told, once it is over.
fn settle(state: &mut State) -> wasmtime::Result<StepReport> {
    state.meters.pause();
    let begun = Instant::now();
    // The weights may change before the next call looks at what it holds.
    state.make_scores_asked_for()?;
    if let Some(profiler) = &state.profiler {
        profiler.call("scores put off until the end of the call", begun);
    }
    // What that took is the host's time as well.
    state.meters.resume();
    state.meters.pause();
    state.forget_scores();
    let reported = state.reports.take().map_err(|error| Cause::Host(error.to_string()))?;
    let slow = state.account(&reported);
    Ok(StepReport {
        metrics: reported.metrics,
        log: reported.log,
        dropped_lines: reported.dropped_lines,
        host_calls: state.meters.counts().host_calls,
        guest_seconds: state.meters.guest_seconds(),
        slow,
        unlearned: state.unlearned.take().map(|denied| (denied.function, denied.message)),
        usage: state.usage.clone(),
    })
}

impl<H: RunHooks> Session<H> {
    /// Runs one call under its limits and tells how it went. After a stop the session is over.
    pub(crate) fn call<R: Send>(
        &mut self,
        function: Function,
        run: impl FnOnce(&mut dyn Guest) -> wasmtime::Result<Answer<R>> + Send,
    ) -> Result<(R, StepReport), Error> {
        let step = self.train_state().hooks.position().saturating_add(1);
        let seconds = self.seconds(function);
        let Some(alive) = self.alive.as_deref_mut() else { return Err(Error::Over { method: self.method.clone() }) };
        (alive.state().denied, alive.state().unlearned) = (None, None);
        alive.begin(seconds);
        if let Some(profiler) = &alive.state().profiler {
            profiler.begin();
        }
        let outcome = deeply(|| {
            let answer = run(&mut *alive)?;
            Ok::<_, wasmtime::Error>((answer, settle(alive.state())?))
        });
        let state = alive.state();
        self.positions = state.positions();
        self.last_lines = state.reports.take_lines();
        match outcome {
            Ok(Ok((Ok(value), report))) => Ok((value, report)),
            Ok(Ok((Err(message), report))) => {
                self.last_lines = (report.log, report.dropped_lines);
                Err(self.refused(function, step, &message))
            }
            Ok(Err(error)) => Err(self.stopped(function, step, Ok(error))),
            Err(panic) => Err(self.stopped(function, step, Err(panic))),
        }
    }

    /// The seconds that a method may compute in a call.
    fn seconds(&self, function: Function) -> f64 {
        match function {
            Function::Step | Function::Finish => self.limits.step_seconds,
            _ => self.limits.init_seconds,
        }
    }

    fn refused(&mut self, function: Function, step: u32, message: &str) -> Error {
        let name = function.name();
        let (moment, within) = match function {
            Function::Step => (format!("at step {step}"), format!("in `{name}`, step {step}")),
            _ => (format!("in `{name}`"), format!("in `{name}`")),
        };
        let method = self.method.clone();
        let denied = self.alive.as_deref_mut().and_then(|alive| alive.state().denied.take());
        match denied.as_ref().and_then(|denied| Some((denied, denied.place(message)?))) {
            Some((denied, line)) => {
                let place = format!("{}, {within}", printable(line, PLACE_BYTES));
                let (message, function) = (denied.message.clone(), denied.function);
                Error::Refused { method, moment, message, denied: Some(Box::new(DeniedCall { function, place })) }
            }
            None => {
                let message = printable(message, MESSAGE_BYTES);
                Error::Refused { method, moment, message, denied: None }
            }
        }
    }

    /// Ends the session and says why.
    fn stopped(&mut self, function: Function, step: u32, outcome: Result<wasmtime::Error, String>) -> Error {
        let (last, said, denied) = self.alive.as_deref_mut().map_or((None, None, None), |alive| {
            let state = alive.state();
            (state.meters.last(), state.fault.take(), state.denied.take())
        });
        let stop = match outcome {
            Ok(error) => {
                let cause = Cause::of(&error, self.limits.handles);
                Stop::new(&self.method, function, step, cause).said(said, denied).traced(&error)
            }
            Err(panic) => Stop::new(&self.method, function, step, Cause::Host(panic)),
        };
        self.end();
        Error::Stopped(Box::new(stop.after(last)))
    }
}

/// Runs something on a deep stack; a panic comes back as its message.
pub(crate) fn deeply<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R, String> {
    let _call = UnderWay::begin();
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name(format!("{PREFIX}method")).stack_size(STACK);
        match builder.spawn_scoped(scope, work) {
            Ok(thread) => thread.join().map_err(|panic| message(&*panic)),
            Err(error) => Err(format!("no thread for the method: {error}")),
        }
    })
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = printable(text.unwrap_or("it did not say why"), MESSAGE_BYTES);
    match take_place() {
        Some(place) => format!("{text} ({place})"),
        None => text,
    }
}
