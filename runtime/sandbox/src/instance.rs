//! A component in its store: limits set, clocks checked, samples taken for a profile.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::component::Resource;
use wasmtime::{Store, StoreContextMut, UpdateDeadline, WasmBacktrace};

use crate::batch::Batch;
use crate::bindings::{Method, MethodPre, training};
use crate::guest::{ExportResult, Guest, Setting};
use crate::instructions;
use crate::state::{BatchEntry, State};

/// Handles in addition to the limit, since wasmtime counts a handle twice while it is borrowed.
const BORROWED_HANDLES: usize = 4_096;

/// A wasmtime store, and the method in it once it is instantiated.
pub(crate) struct Instance {
    store: Store<State>,
    instance_pre: MethodPre<State>,
    instance: Option<Method>,
    /// The bytes that the host keeps for the method's instances, memories and tables excluded.
    instance_bytes: u64,
}

impl Instance {
    /// Creates a store with the limits of `state`, without instantiating the method. At every tick (10 ms) while the
    /// method computes, the engine ends it if its time is up, and else takes a sample for the profile, if there is one.
    /// `instance_bytes`: what the host keeps for the method's instances, memories and tables excluded.
    pub(crate) fn new(instance_pre: &MethodPre<State>, instance_bytes: u64, state: State) -> Self {
        let (handles, transfer) = (state.limits.handles as usize, state.limits.transfer_bytes);
        let mut store = Store::new(instance_pre.engine(), state);
        store.limiter(|state| &mut state.memory);
        store.set_max_component_handles(handles + BORROWED_HANDLES);
        store.set_hostcall_fuel(usize::try_from(transfer).unwrap_or(usize::MAX));
        store.epoch_deadline_callback(|mut store| {
            store.data().meters.check_time()?;
            sample_stack(&mut store);
            Ok(UpdateDeadline::Continue(1))
        });
        Self { store, instance_pre: instance_pre.clone(), instance: None, instance_bytes }
    }

    /// Returns the method's exports and the store to call them in. Errors: the method is not instantiated.
    fn training(&mut self) -> wasmtime::Result<(&training::Guest, &mut Store<State>)> {
        let instance = self.instance.as_ref().ok_or_else(|| wasmtime::Error::msg("the method has no instance"))?;
        Ok((instance.tunebox_method_training(), &mut self.store))
    }
}

impl Guest for Instance {
    fn state(&mut self) -> &mut State {
        self.store.data_mut()
    }

    /// Resets the counters, starts the method's clock for `seconds`, and has the engine interrupt the method at the
    /// next tick. Lets the method execute `step_instructions`, any number if that is 0. Errors: such a limit where the
    /// component's code does not count instructions.
    fn begin(&mut self, seconds: f64) -> wasmtime::Result<()> {
        let state = self.store.data_mut();
        state.meters.begin(seconds);
        let limit = state.limits.step_instructions;
        self.store.set_epoch_deadline(1);
        instructions::set_limit(&mut self.store, limit)
    }

    /// Returns the instructions that the component executed in the present call; 0 without a limit of them.
    fn instructions(&self) -> u64 {
        instructions::executed_instructions(&self.store, self.store.data().limits.step_instructions)
    }

    /// Instantiates the component in its store, after counting `instance_bytes` as memory of the method. The inner
    /// result is always `Ok`. Errors: a limit is passed, or the instance cannot be made.
    fn start(&mut self) -> wasmtime::Result<ExportResult<()>> {
        self.store.data_mut().memory.reserve(self.instance_bytes)?;
        self.instance = Some(self.instance_pre.instantiate(&mut self.store)?);
        Ok(Ok(()))
    }

    /// Calls the component's export `init`; the inner `Err` is the method's own error message.
    fn init(&mut self, settings: &[Setting]) -> wasmtime::Result<ExportResult<()>> {
        let (training, store) = self.training()?;
        training.call_init(store, settings)
    }

    /// Calls the component's export `step`, lending it a handle of the batch that is deleted after the call, unless the
    /// method trapped. The inner `Err` is the method's own error message.
    fn step(&mut self, batch: Arc<Batch>) -> wasmtime::Result<ExportResult<()>> {
        let (training, store) = self.training()?;
        let entry = store.data_mut().table.push(BatchEntry(batch))?;
        let answer = training.call_step(&mut *store, Resource::new_borrow(entry.rep()))?;
        store.data_mut().table.delete(entry)?;
        Ok(answer)
    }

    /// Calls the component's export `finish`; the inner `Err` is the method's own error message.
    fn finish(&mut self) -> wasmtime::Result<ExportResult<()>> {
        let (training, store) = self.training()?;
        training.call_finish(store)
    }

    /// Calls the component's export `save-state` and returns its bytes. Does not check their number.
    fn save_state(&mut self) -> wasmtime::Result<Vec<u8>> {
        let (training, store) = self.training()?;
        training.call_save_state(store)
    }

    /// Calls the component's export `load-state` with the bytes that `save-state` returned. The inner `Err` is the
    /// method's own error message; the outer one means that the method has no instance, trapped or passed a limit.
    fn load_state(&mut self, state: &[u8]) -> wasmtime::Result<ExportResult<()>> {
        let (training, store) = self.training()?;
        training.call_load_state(store, state)
    }
}

/// Adds the method's call stack to the profile as a sample; does nothing without a profile. Captures no stack during
/// the pause after the last sample. The time that this takes does not count as the method's.
fn sample_stack(store: &mut StoreContextMut<'_, State>) {
    let state = store.data();
    let Some(profiler) = state.profiler.clone() else { return };
    let (begun, guest) = (Instant::now(), state.meters.guest_seconds());
    profiler.record_sample(guest, || WasmBacktrace::force_capture(&*store));
    store.data_mut().meters.exclude_time(begun.elapsed());
}
