//! Runs one method over a train state: `init`, `step` by `step`, `finish`, and its state for checkpoints.
//!
//! After a method was stopped its store is gone, and the train state is intact: what has been learned can
//! still be saved. How a call runs is in `call`; limits are counted in `meters`; error messages
//! are in `fault` and `error`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tunebox_compute::budget::Budget;
pub use tunebox_foundation::setting::Value;

use crate::batch::Batch;
use crate::cause::Cause;
use crate::engine::Method;
use crate::error::Error;
use crate::fault::Function;
use crate::guest::Guest;
use crate::limits::Limits;
use crate::reports::Combine;
use crate::run_hooks::RunHooks;
use crate::settings::{CallObserver, SessionSettings};
use crate::train_state::{Shared, TrainState, lock};
use crate::usage::{Slowest, Usage};

/// What the method reported and used in one call.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// Each reported metric: its name, its value, and how the values from the micro-batches of an update are combined.
    pub metrics: Vec<(String, f64, Combine)>,
    /// Lines for the log, escaped.
    pub log: Vec<String>,
    /// Number of log lines that were dropped as too many or too long.
    pub dropped_lines: u32,
    /// Calls to the host.
    pub host_calls: u64,
    /// Seconds that the method itself computed.
    pub guest_seconds: f64,
    /// The slowest host operation of the call, if it lasted longer than the limit `operation-seconds`.
    pub slow: Option<Slowest>,
    /// The first host function that refused to compute a gradient in this call, such as `learn.backward`, and its
    /// message. The method went on after it.
    pub refused_gradient: Option<(&'static str, String)>,
    /// What all calls since the session started used, this one included.
    pub usage: Usage,
}

/// A running method over a train state: starts it, calls it and ends it.
pub struct Session<H: RunHooks> {
    pub(crate) method: String,
    pub(crate) limits: Limits,
    pub(crate) train_state: Shared<H>,
    /// The method; `None` once it has ended.
    pub(crate) guest: Option<Box<dyn Guest>>,
    /// The positions of the method's random sequences, by name.
    pub(crate) positions: BTreeMap<String, u64>,
    /// The log lines of the last call if it failed or has no report, and the number of its dropped lines.
    pub(crate) last_lines: (Vec<String>, u32),
    /// The bytes that the method has reserved on the host, up to `device_bytes`.
    pub(crate) budget: Budget,
    pub(crate) call_observer: Option<CallObserver>,
}

impl<H: RunHooks> Session<H> {
    /// Starts a session of a method over a train state: makes an instance, or takes over the method's process. Runs no
    /// export of the method. Call [`Session::init`] next.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the instance cannot be made within the limits; [`Error::Over`] for a process that an
    /// earlier session took over; [`Error::NotAdmitted`] when the process does not start.
    pub fn start(method: &Method, train_state: TrainState<H>, settings: SessionSettings) -> Result<Self, Error> {
        let mut session = Self {
            method: String::new(),
            limits: Limits::default(),
            train_state: Arc::new(Mutex::new(train_state)),
            guest: None,
            positions: BTreeMap::new(),
            last_lines: (Vec::new(), 0),
            budget: Budget::new(0),
            call_observer: None,
        };
        session.replace(method, settings)?;
        Ok(session)
    }

    /// Ends the present method, if any, with its handles and patches, and starts another over the same train state,
    /// with the limits and the observer of `settings`. Clears the positions of random sequences and the lines of the
    /// last call, and starts a budget of `device_bytes`. Call [`Session::init`] next, then [`Session::restore_streams`]
    /// and [`Session::load_state`] with what the method before saved.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the instance cannot be made within the limits; [`Error::Over`] for a process that an
    /// earlier session took over; [`Error::NotAdmitted`] when the process does not start. The session has ended then;
    /// the train state is intact, and another method can be started.
    pub fn replace(&mut self, method: &Method, settings: SessionSettings) -> Result<(), Error> {
        self.end();
        self.method.clone_from(&method.name);
        (self.limits, self.call_observer) = (settings.limits.clone(), settings.call_observer.clone());
        self.positions.clear();
        self.last_lines = (Vec::new(), 0);
        self.budget = Budget::new(self.limits.device_bytes);
        if let Some(profiler) = &settings.profiler {
            profiler.set_name(&method.name);
        }
        self.guest = Some(method.create_guest(settings, self.budget.clone(), self.train_state.clone())?);
        self.call(Function::Start, |guest| guest.start())?;
        Ok(())
    }

    /// Calls `init` with the settings, as names and values, in this order. The caller passes every setting of the
    /// manifest.
    ///
    /// # Errors
    /// [`Error::Refused`] if the method returns an error message; it can be called again. [`Error::Stopped`] if it
    /// traps or passes a limit, or the host fails, which ends it; [`Error::Over`] if it has ended before.
    pub fn init(&mut self, settings: &[(String, Value)]) -> Result<StepReport, Error> {
        let settings: Vec<_> = settings.iter().map(|(name, value)| (name.clone(), value.into())).collect();
        Ok(self.call(Function::Init, |guest| guest.init(&settings))?.1)
    }

    /// Calls `step` with one micro-batch and returns what the method reported and used. During the call, the host's
    /// state holds the batch and whether its accumulation window goes on after it.
    ///
    /// # Errors
    /// [`Error::Refused`] if the method returns an error message; it can be called again. [`Error::Stopped`] if it
    /// traps or passes a limit, or the host fails, which ends it; [`Error::Over`] if it has ended before.
    pub fn step(&mut self, batch: Batch) -> Result<StepReport, Error> {
        let step = |guest: &mut dyn Guest| {
            let batch = Arc::new(batch);
            (guest.state().window_is_open, guest.state().batch) = (!batch.ends_window, Some(batch.clone()));
            let answer = guest.step(batch);
            (guest.state().window_is_open, guest.state().batch) = (false, None);
            answer
        };
        Ok(self.call(Function::Step, step)?.1)
    }

    /// Calls `finish` and returns what the method reported and used. Does not end the session.
    ///
    /// # Errors
    /// [`Error::Refused`] if the method returns an error message; it can be called again. [`Error::Stopped`] if it
    /// traps or passes a limit, or the host fails, which ends it; [`Error::Over`] if it has ended before.
    pub fn finish(&mut self) -> Result<StepReport, Error> {
        Ok(self.call(Function::Finish, |guest| guest.finish())?.1)
    }

    /// Calls `save-state` and returns the method's bytes for a checkpoint. [`Session::take_last_lines`] has the log
    /// lines.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the method traps, passes a limit, or returns more bytes than the limit `state_bytes`,
    /// which ends it; [`Error::Over`] if it has ended before.
    pub fn save_state(&mut self) -> Result<Vec<u8>, Error> {
        let limit = self.limits.state_bytes as u64;
        let (state, report) = self.call(Function::SaveState, move |guest| {
            let state = guest.save_state()?;
            let bytes = state.len() as u64;
            if bytes > limit { Err(Cause::State { bytes, limit }.into()) } else { Ok(Ok(state)) }
        })?;
        self.last_lines = (report.log, report.dropped_lines);
        Ok(state)
    }

    /// Sets random sequences to the positions of a checkpoint, given by name, and leaves all others as they are. Call
    /// it after `init`. Does nothing once the method has ended.
    pub fn restore_streams(&mut self, streams: &BTreeMap<String, u64>) {
        if let Some(guest) = self.guest.as_deref_mut() {
            let state = guest.state();
            state.restore_streams(streams);
            self.positions = state.stream_positions();
        }
    }

    /// Calls `load-state` with the bytes of an earlier `save-state`. Call it after `init`. Discards the report of the
    /// call but for its log lines, which [`Session::take_last_lines`] has.
    ///
    /// # Errors
    /// [`Error::Refused`] if the method returns an error message; it can be called again. [`Error::Stopped`] if it
    /// traps or passes a limit, or the host fails, which ends it; [`Error::Over`] if it has ended before.
    pub fn load_state(&mut self, state: &[u8]) -> Result<(), Error> {
        let (_, report) = self.call(Function::LoadState, |guest| guest.load_state(state))?;
        self.last_lines = (report.log, report.dropped_lines);
        Ok(())
    }

    /// Answers a native process's requests between two calls until it sends text that says what to do next. Returns
    /// that text, or `None` once the process is gone, with a report of what the method used meanwhile.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the process breaks the protocol or passes a limit, and always for a component, which
    /// requests nothing between two calls; this ends the method. [`Error::Over`] if it has ended before.
    pub fn wait(&mut self) -> Result<(Option<String>, StepReport), Error> {
        self.call(Function::Wait, |guest| guest.wait().map(Ok))
    }

    /// Locks the train state, which stays intact after the method ended. Blocks until a running call has released it; a
    /// panic under the lock leaves it usable.
    pub fn train_state(&mut self) -> MutexGuard<'_, TrainState<H>> {
        lock(&self.train_state)
    }

    /// Whether the method can still be called: it was started and has not ended.
    pub fn is_alive(&self) -> bool {
        self.guest.is_some()
    }

    /// Returns the position of each named random sequence after the last call or
    /// [`restore_streams`](Self::restore_streams), for a checkpoint. They stay when the method ends.
    pub fn streams(&self) -> &BTreeMap<String, u64> {
        &self.positions
    }

    /// Returns the bytes that the method has reserved for tensors, graphs and other handles; 0 once it has ended.
    pub fn held_bytes(&self) -> u64 {
        self.budget.held()
    }

    /// Removes and returns the escaped log lines of the last call if it failed, or was `save-state` or `load-state`,
    /// and the number of its dropped lines. Empty and 0 for another call, or if they were taken before.
    pub fn take_last_lines(&mut self) -> (Vec<String>, u32) {
        std::mem::take(&mut self.last_lines)
    }

    /// Ends the method: drops its instance and handles, removes its patches, and restores the parameters from before
    /// an active perturbation. The train state stays. Does nothing if the method has ended.
    pub fn end(&mut self) {
        if let Some(guest) = self.guest.take() {
            drop(guest);
            let mut train_state = self.train_state();
            train_state.policy.unpatch_all();
            // A device that fails here fails again at its next use, which reports the error.
            let _ = train_state.end_perturbation();
        }
    }
}

impl<H: RunHooks> Drop for Session<H> {
    /// Ends the method as [`Session::end`] does, if it has not ended.
    fn drop(&mut self) {
        self.end();
    }
}
