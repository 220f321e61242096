//! What a session holds while a method runs: the objects behind its handles, and the counters of what it uses.
//!
//! Every import goes through [`HostContext`], which stops the method's clock while the host works. `handles` gives out
//! and frees tensors, `imports` has the functions of the interfaces, and `meters` the counters of a call.

mod handles;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};

use tunebox_compute::budget::{Budget, Reservation};
use tunebox_compute::memory::ProcessMemory;
use tunebox_compute::random::Stream;
use tunebox_model::configuration::Configuration;
use tunebox_model::policy::View;
use wasmtime::component::{HasData, ResourceTable};

use crate::batch::Batch;
use crate::cause::Cause;
pub(crate) use crate::entries::{
    BatchEntry, CompletionsEntry, ParameterEntry, PatchEntry, PerturbationEntry, RowsEntry, SamplerEntry, ScopeEntry,
    ScoresEntry, TapsEntry, TensorEntry, ViewEntry,
};
use crate::fault::GuestFault;
use crate::limits::Limits;
use crate::memory::Memory;
use crate::meters::{Meters, OperationBudget};
use crate::profile::Profiler;
use crate::refusal::{Denied, Refusal, Result, ensure};
use crate::reports::Reports;
use crate::scores::{CaptureRecord, LearnedRows, Pass, ScoreRecord};
use crate::settings::SessionSettings;
use crate::train_state::{Shared, TrainState, lock};
use crate::usage::{Slowest, Usage};
pub(crate) use handles::{Answer, DEVICE, Handle, TENSOR_BYTES};
#[cfg(test)]
pub(crate) use handles::{KEPT_BYTES, OPERAND_BYTES};

/// Everything that a session holds for its method: handles, limits, counters and the shared train state. It is the data
/// of the wasmtime store.
pub(crate) struct State {
    /// The model under training, and the hooks of its run.
    pub(crate) train_state: Shared,
    /// The configuration of the model, which arguments are checked against.
    pub(crate) configuration: Configuration,
    /// Number of weights that a token is multiplied with in a forward pass.
    pub(crate) weights: u64,
    /// The limits of the method.
    pub(crate) limits: Limits,
    /// The budget of bytes for everything that the method holds on the host: tensors, rows, completions, patches.
    pub(crate) budget: Budget,
    /// Time, calls, work and bytes of the current call.
    pub(crate) meters: Meters,
    /// Bytes that this process held before the method began; `None` if the model is not on the CPU or the system does
    /// not report them.
    pub(crate) held_before: Option<u64>,
    /// The WebAssembly memory and tables of the method.
    pub(crate) memory: Memory,
    /// Metrics and log lines of the current call.
    pub(crate) reports: Reports,
    /// The entries behind all handles.
    pub(crate) table: ResourceTable,
    /// Scores that the method holds or may still build a gradient on, by number.
    pub(crate) scores: BTreeMap<u64, ScoreRecord>,
    /// The passes through the model that made these scores, by number.
    pub(crate) passes: BTreeMap<u64, Pass>,
    /// The activations that were captured for learning in the present call, by number.
    pub(crate) captures: BTreeMap<u64, CaptureRecord>,
    /// The message and place that the method reported before a trap.
    pub(crate) fault: Option<GuestFault>,
    /// The last error that a host function returned to the method in the present call.
    pub(crate) denied: Option<Denied>,
    /// The first error in the present call of a host function that computes gradients.
    pub(crate) gradient_refusal: Option<Denied>,
    /// The rows that have a gradient since the last update.
    pub(crate) learned_rows: LearnedRows,
    /// Whether the method is called with a batch that does not end its accumulation window.
    pub(crate) window_is_open: bool,
    /// The batch of the present call of `step`.
    pub(crate) batch: Option<Arc<Batch>>,
    /// Whether the method updates the parameters itself.
    pub(crate) updates_itself: bool,
    /// The number of the last perturbation, counted from 1.
    pub(crate) perturbation: u64,
    /// Number of active patches.
    pub(crate) patches: usize,
    /// Reservations for edits of weights, held until the session ends.
    pub(crate) edits: Vec<Reservation>,
    /// What all calls of the method used.
    pub(crate) usage: Usage,
    /// Records where the method's time goes, if the run asks for a profile.
    pub(crate) profiler: Option<Profiler>,
    seed: u64,
    /// The method's random sequences, by name.
    streams: BTreeMap<String, Stream>,
    /// The handles of all tensors that exist, by serial number.
    live_tensors: BTreeMap<u64, u32>,
    /// The number that [`State::next_number`] returns next.
    next_serial: u64,
}

/// The state during one import: made when the method calls, dropped when the host returns.
pub(crate) struct HostContext<'a> {
    state: &'a mut State,
    /// Number of calls that were counted before this one.
    calls: u64,
}

impl<'a> HostContext<'a> {
    /// Stops the method's clock and starts the host's until this is dropped.
    pub(crate) fn new(state: &'a mut State) -> Self {
        state.meters.pause();
        Self { calls: state.meters.host_calls(), state }
    }
}

impl Drop for HostContext<'_> {
    /// Ends a host operation: adds it to the profile, if one is recorded, adds its time to the host's time, keeps it if
    /// it is the slowest of the call, and lets the method's clock go on.
    fn drop(&mut self) {
        if let Some(profiler) = &self.state.profiler
            && let Some((operation, begun)) = self.state.meters.current_operation(self.calls)
        {
            profiler.record_host_call(operation, begun);
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

/// Tells the generated bindings that host functions run on a [`HostContext`].
pub(crate) struct HostContexts;

impl HasData for HostContexts {
    type Data<'a> = HostContext<'a>;
}

impl State {
    /// Creates the state before the first call, without handles and with counters at zero. Notes how many bytes this
    /// process holds if the model is on the CPU. `budget` is for the bytes that the method will hold on the host.
    pub(crate) fn new(settings: SessionSettings, budget: Budget, train_state: Shared) -> Self {
        let SessionSettings { limits, seed, metric_names, updates_itself, profiler, call_observer } = settings;
        let (configuration, on_cpu) = {
            let train_state = lock(&train_state);
            let model = train_state.policy.model();
            (model.configuration.clone(), model.weights.device().is_cpu())
        };
        let held_before = ProcessMemory::read().filter(|_| on_cpu).map(|memory| memory.held);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles as usize);
        Self {
            train_state,
            weights: configuration.parameter_count(),
            configuration,
            budget,
            meters: Meters::new(&limits),
            held_before,
            memory: Memory::new(&limits),
            reports: Reports::new(metric_names, &limits).with_observer(call_observer),
            limits,
            table,
            scores: BTreeMap::new(),
            passes: BTreeMap::new(),
            captures: BTreeMap::new(),
            fault: None,
            denied: None,
            gradient_refusal: None,
            learned_rows: LearnedRows::default(),
            window_is_open: false,
            batch: None,
            updates_itself,
            perturbation: 0,
            patches: 0,
            edits: Vec::new(),
            usage: Usage::default(),
            profiler,
            seed,
            streams: BTreeMap::new(),
            live_tensors: BTreeMap::new(),
            next_serial: 0,
        }
    }

    /// Counts a call to the host function `function` and charges its fixed work; see [`Meters::enter`]. Every import
    /// but a drop begins with this. Errors: the limit of calls, work or time is passed, which ends the method.
    pub(crate) fn enter(&mut self, function: &'static str) -> Result<(), Cause> {
        self.meters.enter(function)
    }

    /// Stores the message of an error that the host returns to the method, with the host function entered last: in
    /// `denied`, over an earlier one, and in `gradient_refusal` if the function computes gradients and
    /// `gradient_refusal` is empty. Does nothing if no host function was entered in this call of the method.
    pub(crate) fn record_denied(&mut self, message: &str) {
        let Some(function) = self.meters.last_function() else { return };
        let denied = Denied { function, message: message.to_owned() };
        if denied.is_gradient_call() && self.gradient_refusal.is_none() {
            self.gradient_refusal = Some(denied.clone());
        }
        self.denied = Some(denied);
    }

    /// Returns the configuration of the model that a view computes with: the teacher's for a view of a teacher, else
    /// that of the model under training.
    pub(crate) fn configuration_of(&self, view: &View) -> Configuration {
        match view {
            View::Teacher(_) => self.train_state().policy.model_of(view).configuration.clone(),
            View::Policy | View::Reference | View::Snapshot(_) => self.configuration.clone(),
        }
    }

    /// Estimates the multiply-adds of a forward pass of a view over `tokens` tokens: weights times tokens, without
    /// attention scores.
    pub(crate) fn multiply_adds(&self, view: &View, tokens: u64) -> u64 {
        let weights = match view {
            View::Teacher(_) => self.configuration_of(view).parameter_count(),
            View::Policy | View::Reference | View::Snapshot(_) => self.weights,
        };
        weights.saturating_mul(tokens)
    }

    /// Counts one forward pass of a view over `tokens` tokens, before it runs. Past `passes` or `model_work` ends the
    /// method.
    pub(crate) fn count_pass(&mut self, view: &View, tokens: usize) -> Result<(), Cause> {
        self.meters.count_pass(self.multiply_adds(view, tokens as u64))
    }

    /// Locks the train state, which the session and its method share. Also sets the policy's deadline, so that passes
    /// through the model stop when the call lasts longer than `step_wall_seconds`.
    pub(crate) fn train_state(&self) -> MutexGuard<'_, TrainState> {
        let mut train_state = lock(&self.train_state);
        train_state.policy.set_deadline(self.meters.deadline());
        train_state
    }

    /// Reserves bytes of the method's tensor memory, before they are allocated, until the result is dropped. Past
    /// `device_bytes` ends the method.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Reservation> {
        Ok(self.budget.reserve(bytes)?)
    }

    /// Adds what the current call used to the usage of the session. `metrics`, `lines` and `dropped_lines` are the
    /// numbers of metric values, kept log lines and dropped log lines in this call. Returns the call's slowest host
    /// operation if it lasted longer than `operation_seconds`, else `None`.
    pub(crate) fn record_usage(&mut self, metrics: usize, lines: usize, dropped_lines: u32) -> Option<Slowest> {
        self.usage.add(&self.meters.counts());
        self.usage.peak_device_bytes = self.budget.peak();
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

    /// Returns the budget that a tensor operation is charged to: the session's bytes and the call's work.
    pub(crate) fn operation_budget(&mut self) -> OperationBudget<'_> {
        OperationBudget { budget: &self.budget, meters: &mut self.meters }
    }

    /// Returns 0, 1, 2 and so on: a number that no tensor, score or pass of the session had before.
    pub(crate) fn next_number(&mut self) -> u64 {
        let number = self.next_serial;
        self.next_serial += 1;
        number
    }

    /// Returns the run's seed.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the random sequence named `name`, created at position 0 if it is new, and the budget to which an
    /// operation that draws from it is charged.
    ///
    /// Errors: `invalid-argument` for an empty or too long name, or for one sequence too many.
    pub(crate) fn stream(&mut self, name: &str) -> Result<(&mut Stream, OperationBudget<'_>)> {
        let (longest, most) = (self.limits.name_bytes, self.limits.streams);
        let named = (1..=longest).contains(&name.len());
        ensure(named, || Refusal::argument(format!("the name of a sequence has 1 to {longest} bytes")))?;
        let fits = self.streams.contains_key(name) || self.streams.len() < most;
        ensure(fits, || Refusal::argument(format!("a run has at most {most} random sequences")))?;
        let seed = self.seed;
        let stream = self.streams.entry(name.to_owned()).or_insert_with(|| Stream::new(seed, &stream_name(name)));
        Ok((stream, OperationBudget { budget: &self.budget, meters: &mut self.meters }))
    }

    /// Sets these random sequences to the given positions, creating those that are missing. Leaves all others as they
    /// are. Does not check the names and their number.
    pub(crate) fn restore_streams(&mut self, positions: &BTreeMap<String, u64>) {
        for (name, position) in positions {
            self.streams.insert(name.clone(), Stream::at(self.seed, &stream_name(name), *position));
        }
    }

    /// Returns the position of each random sequence, by name.
    pub(crate) fn stream_positions(&self) -> BTreeMap<String, u64> {
        self.streams.iter().map(|(name, stream)| (name.clone(), stream.position())).collect()
    }
}

/// Returns `method/NAME`: the name of a method's random sequence among all random streams of the run, so that it
/// differs from every sequence of the host.
fn stream_name(name: &str) -> String {
    format!("method/{name}")
}
