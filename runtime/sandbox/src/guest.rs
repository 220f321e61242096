//! What a session calls: the exports of the contract, whoever offers them.
//!
//! A component instance offers them inside the sandbox, here; the same source as a process of its own over a
//! connection, in `native`. Both work on the same state, through the same functions of `imports`.

use std::sync::Arc;

use wasmtime::component::Resource;

use crate::batch::Batch;
use crate::bindings::types;
use crate::cause::Cause;
use crate::instance::Instance;
use crate::state::{BatchEntry, State};

/// The method's own answer: a value, or its words of refusal.
pub(crate) type Answer<R> = Result<R, String>;

/// A setting as it crosses the wall.
pub(crate) type Setting = (String, types::Value);

/// A method at work.
pub(crate) trait Guest: Send {
    /// What it holds and has used up.
    fn state(&mut self) -> &mut State;

    /// Starts the clocks of a call in which the method itself may compute for so many seconds.
    fn begin(&mut self, seconds: f64);

    /// Makes it ready for `init`.
    fn start(&mut self) -> wasmtime::Result<Answer<()>>;

    /// `init`.
    fn init(&mut self, settings: &[Setting]) -> wasmtime::Result<Answer<()>>;

    /// `step`.
    fn step(&mut self, batch: Batch) -> wasmtime::Result<Answer<()>>;

    /// `finish`.
    fn finish(&mut self) -> wasmtime::Result<Answer<()>>;

    /// `save-state`.
    fn save_state(&mut self) -> wasmtime::Result<Vec<u8>>;

    /// `load-state`.
    fn load_state(&mut self, state: &[u8]) -> wasmtime::Result<Answer<()>>;

    /// Answers what the method asks outside of a call, until it says what it wants next; `None` once it is gone.
    ///
    /// # Errors
    /// A component asks nothing outside of a call.
    fn wait(&mut self) -> wasmtime::Result<Option<String>> {
        Err(Cause::Protocol("it was waited for outside of a call".into()).into())
    }
}

impl Guest for Instance {
    fn state(&mut self) -> &mut State {
        self.store().data_mut()
    }

    fn begin(&mut self, seconds: f64) {
        let store = self.store();
        store.data_mut().meters.begin(seconds);
        store.set_epoch_deadline(1);
    }

    fn start(&mut self) -> wasmtime::Result<Answer<()>> {
        self.instantiate()
    }

    fn init(&mut self, settings: &[Setting]) -> wasmtime::Result<Answer<()>> {
        let (training, store) = self.training()?;
        training.call_init(store, settings)
    }

    fn step(&mut self, batch: Batch) -> wasmtime::Result<Answer<()>> {
        let (training, store) = self.training()?;
        let entry = store.data_mut().table.push(BatchEntry(Arc::new(batch)))?;
        let answer = training.call_step(&mut *store, Resource::new_borrow(entry.rep()))?;
        store.data_mut().table.delete(entry)?;
        Ok(answer)
    }

    fn finish(&mut self) -> wasmtime::Result<Answer<()>> {
        let (training, store) = self.training()?;
        training.call_finish(store)
    }

    fn save_state(&mut self) -> wasmtime::Result<Vec<u8>> {
        let (training, store) = self.training()?;
        training.call_save_state(store)
    }

    fn load_state(&mut self, state: &[u8]) -> wasmtime::Result<Answer<()>> {
        let (training, store) = self.training()?;
        training.call_load_state(store, state)
    }
}
