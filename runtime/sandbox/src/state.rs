//! What a session holds while a method runs: the tables behind its handles, and the accounts.
//!
//! Every import goes through [`HostContext`], which stops the method's clock while the host works. What tensors are to a
//! method is in `handles`, the functions of the interfaces in `imports`, counters in `meters`.

mod handles;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use tunebox_compute::budget::{Budget, Reservation};
use tunebox_compute::random::Stream;
use tunebox_model::configuration::Configuration;
use wasmtime::component::{HasData, ResourceTable};

use crate::cause::Cause;
pub(crate) use crate::entries::{
    BatchEntry, Charge, CompletionsEntry, Held, PatchEntry, RowsEntry, SamplerEntry, ScopeEntry, ScoresEntry,
    TensorEntry, ViewEntry,
};
use crate::fault::GuestFault;
use crate::limits::Limits;
use crate::memory::Memory;
use crate::meters::{Meters, OperationBudget};
use crate::profile::Profiler;
use crate::refusal::{Denied, Refusal};
use crate::reports::Reports;
use crate::scores::{Pass, ScoreRecord};
use crate::settings::SessionSettings;
use crate::train_state::{Shared, TrainState, lock};
use crate::usage::{Slowest, Usage};
pub(crate) use handles::{Answer, DEVICE};

/// The data of a store.
pub(crate) struct State {
    /// The model under training, and its run.
    pub(crate) train_state: Shared,
    /// The shape of the model, which arguments are checked against.
    pub(crate) configuration: Configuration,
    /// Weights that a token is multiplied with.
    pub(crate) weights: u64,
    /// What the method may use up.
    pub(crate) limits: Limits,
    /// Device bytes of everything that the method holds.
    pub(crate) ledger: Budget,
    /// Time, calls, work and bytes of the current call.
    pub(crate) meters: Meters,
    /// The method's own memory.
    pub(crate) memory: Memory,
    /// Metrics and log lines of the current call.
    pub(crate) reports: Reports,
    /// The entries behind all handles.
    pub(crate) table: ResourceTable,
    /// Scores that may still receive a gradient, by number.
    pub(crate) scores: BTreeMap<u64, ScoreRecord>,
    /// The passes that they came from, by number.
    pub(crate) passes: BTreeMap<u64, Pass>,
    /// What the method said about its coming trap.
    pub(crate) fault: Option<GuestFault>,
    /// The last error that it got in the present call.
    pub(crate) denied: Option<Denied>,
    /// The first one of those that it got for a gradient.
    pub(crate) unlearned: Option<Denied>,
    /// Active patches.
    pub(crate) patches: usize,
    /// What all calls used.
    pub(crate) usage: Usage,
    /// Records where the method's time goes, if the run asks for a profile.
    pub(crate) profiler: Option<Profiler>,
    seed: u64,
    streams: BTreeMap<String, Stream>,
    live: BTreeMap<u64, u32>,
    serial: u64,
}

/// The state during one import: made when the method calls, dropped when the host returns.
pub(crate) struct HostContext<'a> {
    state: &'a mut State,
    /// Calls that were counted before this one.
    calls: u64,
}

impl<'a> HostContext<'a> {
    /// Stops the method's clock until this is dropped.
    pub(crate) fn new(state: &'a mut State) -> Self {
        state.meters.pause();
        Self { calls: state.meters.calls(), state }
    }
}

impl Drop for HostContext<'_> {
    fn drop(&mut self) {
        if let Some(profiler) = &self.state.profiler
            && let Some((operation, begun)) = self.state.meters.under_way(self.calls)
        {
            profiler.call(operation, begun);
        }
        self.state.meters.resume();
    }
}

impl Deref for HostContext<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state
    }
}

impl DerefMut for HostContext<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state
    }
}

/// Names [`HostContext`] to the generated code.
pub(crate) struct HostContexts;

impl HasData for HostContexts {
    type Data<'a> = HostContext<'a>;
}

impl State {
    /// A state before the first call.
    pub(crate) fn new(settings: SessionSettings, ledger: Budget, train_state: Shared) -> Self {
        let SessionSettings { limits, seed, metric_names, profiler } = settings;
        let configuration = lock(&train_state).policy.model().configuration.clone();
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles as usize);
        Self {
            train_state,
            weights: configuration.weights(),
            configuration,
            ledger,
            meters: Meters::new(&limits),
            memory: Memory::new(&limits),
            reports: Reports::new(metric_names, &limits),
            limits,
            table,
            scores: BTreeMap::new(),
            passes: BTreeMap::new(),
            fault: None,
            denied: None,
            unlearned: None,
            patches: 0,
            usage: Usage::default(),
            profiler,
            seed,
            streams: BTreeMap::new(),
            live: BTreeMap::new(),
            serial: 0,
        }
    }

    /// Every import but a drop begins with this: it names the function for a fault and counts the call.
    pub(crate) fn enter(&mut self, function: &'static str) -> Result<(), Cause> {
        self.meters.enter(function)
    }

    /// Remembers an error that the method gets: it may end with these words, or learn nothing and go on.
    pub(crate) fn deny(&mut self, message: &str) {
        let Some(function) = self.meters.last() else { return };
        let denied = Denied { function, message: message.to_owned() };
        if denied.is_of_learning() && self.unlearned.is_none() {
            self.unlearned = Some(denied.clone());
        }
        self.denied = Some(denied);
    }

    /// Charges units of work of the present function, by its row of the table of costs, before they are done.
    pub(crate) fn work(&mut self, units: u64) -> Result<(), Cause> {
        self.meters.work(units)
    }

    /// Multiply-adds of a pass over some tokens, without those of attention scores.
    pub(crate) fn multiply_adds(&self, tokens: u64) -> u64 {
        self.weights.saturating_mul(tokens)
    }

    /// Counts a pass through the model over so many tokens, before it is made.
    pub(crate) fn pass(&mut self, tokens: usize) -> Result<(), Cause> {
        self.meters.pass(self.multiply_adds(tokens as u64))
    }

    /// Counts bytes on their way to the method. An `out-of-budget` error past the step's limit.
    pub(crate) fn read_back(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.meters.read_back(bytes)
    }

    /// Locks the model under training.
    pub(crate) fn train_state(&self) -> MutexGuard<'_, TrainState> {
        lock(&self.train_state)
    }

    /// Takes bytes from the run's ledger, before they are allocated; ends the method past the limit.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Reservation, Refusal> {
        Ok(self.ledger.reserve(bytes)?)
    }

    /// Adds what the call used and reported to the usage of all calls. Returns the slowest operation of the host in this
    /// call if it lasted longer than `operation-seconds`.
    pub(crate) fn account(&mut self, metrics: usize, lines: usize, dropped_lines: u32) -> Option<Slowest> {
        self.usage.add(&self.meters.counts());
        self.usage.peak_device_bytes = self.ledger.peak();
        (self.usage.linear_memory, self.usage.table_entries) = self.memory.used();
        self.usage.log_lines += lines as u64;
        self.usage.log_bytes = self.reports.log_bytes();
        self.usage.dropped_lines += u64::from(dropped_lines);
        self.usage.metrics += metrics as u64;
        let slowest = self.meters.slowest()?;
        if slowest.seconds > self.usage.slowest.seconds {
            self.usage.slowest = slowest.clone();
        }
        (slowest.seconds > self.limits.operation_seconds).then_some(slowest)
    }

    /// What pays for an operation of `compute`.
    pub(crate) fn operation_budget(&mut self) -> OperationBudget<'_> {
        OperationBudget { ledger: &self.ledger, meters: &mut self.meters }
    }

    /// A number that no tensor and no score had before.
    pub(crate) fn next_number(&mut self) -> u64 {
        let number = self.serial;
        self.serial += 1;
        number
    }

    /// The random sequence of a name, with what pays for its numbers.
    /// `invalid-argument` for a name that is empty or long, or past the number of sequences.
    pub(crate) fn stream(&mut self, name: &str) -> Result<(&mut Stream, OperationBudget<'_>), Refusal> {
        if name.is_empty() || name.len() > self.limits.name_bytes {
            return Err(Refusal::argument(format!("the name of a sequence has 1 to {} bytes", self.limits.name_bytes)));
        }
        if !self.streams.contains_key(name) && self.streams.len() >= self.limits.streams {
            return Err(Refusal::argument(format!("a run has at most {} random sequences", self.limits.streams)));
        }
        let seed = self.seed;
        let stream = self.streams.entry(name.to_owned()).or_insert_with(|| Stream::new(seed, &stream_name(name)));
        Ok((stream, OperationBudget { ledger: &self.ledger, meters: &mut self.meters }))
    }

    /// Sets random sequences to positions; does nothing to the others.
    pub(crate) fn restore_streams(&mut self, positions: &BTreeMap<String, u64>) {
        for (name, position) in positions {
            self.streams.insert(name.clone(), Stream::at(self.seed, &stream_name(name), *position));
        }
    }

    /// Where each random sequence stands.
    pub(crate) fn positions(&self) -> BTreeMap<String, u64> {
        self.streams.iter().map(|(name, stream)| (name.clone(), stream.position())).collect()
    }
}

/// A method's sequences never meet those of the host.
fn stream_name(name: &str) -> String {
    format!("method/{name}")
}
