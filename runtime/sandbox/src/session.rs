//! One method at work: `init`, `step` by `step`, `finish`, and its state for checkpoints.
//!
//! After any stop the store is gone for good, and the train state is whole: what has been learnt can
//! still be saved. How a call runs is in `call`; limits are counted in `meters`; the words for
//! people are in `fault` and `error`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tunebox_compute::budget::Budget;
pub use tunebox_foundation::setting::Value;

use crate::batch::Batch;
use crate::bindings::types;
use crate::cause::Cause;
use crate::deep_stack::run_on_deep_stack;
use crate::engine::Method;
use crate::error::Error;
use crate::fault::Function;
use crate::guest::Guest;
use crate::limits::Limits;
use crate::reports::Combine;
use crate::run_hooks::RunHooks;
use crate::settings::SessionSettings;
use crate::train_state::{Shared, TrainState, lock};
use crate::usage::{Slowest, Usage};

impl From<&Value> for types::Value {
    fn from(value: &Value) -> Self {
        match value {
            Value::Boolean(value) => Self::Boolean(*value),
            Value::Integer(value) => Self::Integer(*value),
            Value::Number(value) => Self::Number(*value),
            Value::Text(value) => Self::Text(value.clone()),
        }
    }
}

/// What the method reported and used in one call.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// Names of the manifest, values, and how to put the micro-batches of an update together.
    pub metrics: Vec<(String, f64, Combine)>,
    /// Lines for the log, safe to show.
    pub log: Vec<String>,
    /// Lines that were too many or too long.
    pub dropped_lines: u32,
    /// Calls to the host.
    pub host_calls: u64,
    /// Seconds that the method itself computed.
    pub guest_seconds: f64,
    /// A host operation that lasted longer than the run's `operation-seconds`.
    pub slow: Option<Slowest>,
    /// The first call for a gradient that was refused, as in `learn.minimise`, and the host's words: the method went on
    /// after it.
    pub unlearned: Option<(&'static str, String)>,
    /// What all calls since the start used, this one included.
    pub usage: Usage,
}

/// A method that is loaded and may be called.
pub struct Session<H: RunHooks> {
    pub(crate) method: String,
    pub(crate) limits: Limits,
    pub(crate) train_state: Shared<H>,
    pub(crate) alive: Option<Box<dyn Guest>>,
    pub(crate) positions: BTreeMap<String, u64>,
    pub(crate) last_lines: (Vec<String>, u32),
    pub(crate) ledger: Budget,
}

impl<H: RunHooks> Session<H> {
    /// Makes an instance of the method over a train state, or takes over its process. `init` comes next.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the instance cannot be made within the limits; [`Error::Over`] for a process that an
    /// earlier session took over.
    pub fn start(method: &Method, train_state: TrainState<H>, settings: SessionSettings) -> Result<Self, Error> {
        let mut session = Self {
            method: String::new(),
            limits: Limits::default(),
            train_state: Arc::new(Mutex::new(train_state)),
            alive: None,
            positions: BTreeMap::new(),
            last_lines: (Vec::new(), 0),
            ledger: Budget::new(0),
        };
        session.replace(method, settings)?;
        Ok(session)
    }

    /// Ends the method, if there is one, with all that it holds and had patched, and starts another over the same train
    /// state. `init` comes next, then [`Session::restore_streams`], and `load-state` with what the method before saved.
    ///
    /// # Errors
    /// As [`Session::start`]. The session is over then, the train state whole, and the method may be replaced again.
    pub fn replace(&mut self, method: &Method, settings: SessionSettings) -> Result<(), Error> {
        self.end();
        self.method.clone_from(&method.name);
        self.limits = settings.limits.clone();
        self.positions.clear();
        self.last_lines = (Vec::new(), 0);
        self.ledger = Budget::new(self.limits.device_bytes);
        if let Some(profiler) = &settings.profiler {
            profiler.name(&method.name);
        }
        self.alive = Some(method.guest(settings, self.ledger.clone(), self.train_state.clone())?);
        self.call(Function::Start, |guest| guest.start())?;
        Ok(())
    }

    /// Calls `init` with every setting of the manifest.
    ///
    /// # Errors
    /// [`Error::Refused`] with the method's words, [`Error::Stopped`], [`Error::Over`].
    pub fn init(&mut self, settings: &[(String, Value)]) -> Result<StepReport, Error> {
        let settings: Vec<_> = settings.iter().map(|(name, value)| (name.clone(), value.into())).collect();
        let ((), report) = self.call(Function::Init, |guest| guest.init(&settings))?;
        Ok(report)
    }

    /// Calls `step` with one micro-batch.
    ///
    /// # Errors
    /// As [`Session::init`].
    pub fn step(&mut self, batch: Batch) -> Result<StepReport, Error> {
        let ((), report) = self.call(Function::Step, |guest| guest.step(batch))?;
        Ok(report)
    }

    /// Calls `finish`.
    ///
    /// # Errors
    /// As [`Session::init`].
    pub fn finish(&mut self) -> Result<StepReport, Error> {
        let ((), report) = self.call(Function::Finish, |guest| guest.finish())?;
        Ok(report)
    }

    /// The method's own bytes for a checkpoint.
    ///
    /// # Errors
    /// As [`Session::init`]; more bytes than the limit end the method.
    pub fn save_state(&mut self) -> Result<Vec<u8>, Error> {
        let limit = self.limits.state_bytes as u64;
        let (state, _) = self.call(Function::SaveState, move |guest| {
            let state = guest.save_state()?;
            let bytes = state.len() as u64;
            if bytes > limit { Err(Cause::State { bytes, limit }.into()) } else { Ok(Ok(state)) }
        })?;
        Ok(state)
    }

    /// Sets random sequences to the positions of a checkpoint, after `init`.
    pub fn restore_streams(&mut self, streams: &BTreeMap<String, u64>) {
        if let Some(alive) = self.alive.as_deref_mut() {
            let state = alive.state();
            state.restore_streams(streams);
            self.positions = state.positions();
        }
    }

    /// Gives a resumed method its bytes back, after `init`.
    ///
    /// # Errors
    /// As [`Session::init`].
    pub fn load_state(&mut self, state: &[u8]) -> Result<(), Error> {
        self.call(Function::LoadState, |guest| guest.load_state(state))?;
        Ok(())
    }

    /// Answers what a method in a process of its own asks between two calls, until it says what it wants next: its
    /// words for it, or `None` once the process is gone. What it used and reported meanwhile comes with them.
    ///
    /// # Errors
    /// As [`Session::init`]; a component asks nothing between two calls.
    pub fn wait(&mut self) -> Result<(Option<String>, StepReport), Error> {
        self.call(Function::Wait, |guest| guest.wait().map(Ok))
    }

    /// Locks the model under training; it is whole even after the method ended.
    pub fn train_state(&mut self) -> MutexGuard<'_, TrainState<H>> {
        lock(&self.train_state)
    }

    /// Whether the method can still be called.
    pub fn is_alive(&self) -> bool {
        self.alive.is_some()
    }

    /// Where each random sequence stands, for a checkpoint.
    pub fn streams(&self) -> &BTreeMap<String, u64> {
        &self.positions
    }

    /// Bytes of tensors that the method holds; none once it has ended.
    pub fn held_bytes(&self) -> u64 {
        self.ledger.held()
    }

    /// The log lines of a call that failed, safe to show, and how many more were too many or too long: what a method said
    /// before it ended. Given once.
    pub fn take_last_lines(&mut self) -> (Vec<String>, u32) {
        std::mem::take(&mut self.last_lines)
    }
}

impl<H: RunHooks> Drop for Session<H> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<H: RunHooks> Session<H> {
    /// Ends the method, if it has not ended: its instance and all that it holds are gone; the train state stays.
    pub fn end(&mut self) {
        if let Some(alive) = self.alive.take() {
            // A graph may be deep, and dropping one recurses.
            // The outcome is of no use: either way nothing of the method is left.
            let _ = run_on_deep_stack(move || drop(alive));
            self.train_state().policy.unpatch_all();
        }
    }
}
