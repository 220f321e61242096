//! The shape of every method, and how it becomes the component's exports.
//!
//! ```
//! use tunebox::prelude::*;
//!
//! /// Stops a run whose loss rises tenfold. A resumed run goes on with the lowest loss so far.
//! struct Guarded {
//!     lowest: f32,
//! }
//!
//! impl Method for Guarded {
//! #   type Settings = ();
//! #   fn init((): ()) -> Result<Self> { Ok(Self { lowest: f32::MAX }) }
//!     fn step(&mut self, batch: &Batch) -> Result<()> {
//!         let scores = score_for_learning(&batch.rows("example")?, Taps::empty(), 1.0)?;
//!         let loss = loss::token_mean(&-scores.logprob(), batch.window_targets("example")?);
//!         let seen = loss.item()?;
//!         if seen > 10.0 * self.lowest {
//!             return Err(Error::new(format!("the loss rose from {} to {seen}", self.lowest)));
//!         }
//!         self.lowest = self.lowest.min(seen);
//!         backward(&loss)
//!     }
//!
//!     fn save_state(&self) -> Vec<u8> {
//!         self.lowest.to_le_bytes().to_vec()
//!     }
//!
//!     fn load_state(&mut self, state: &[u8]) -> Result<()> {
//!         let bytes = state.try_into().map_err(|_| Error::new("the state is not 4 bytes"))?;
//!         self.lowest = f32::from_le_bytes(bytes);
//!         Ok(())
//!     }
//! }
//! ```

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;

use crate::bindings::exports::tunebox::method::training::Guest;
use crate::bindings::tunebox::method::{data, types};
use crate::{Batch, Error, Result, Settings};

/// A training method. The host calls `init` once, `step` for every micro-batch, `finish` once.
///
/// ```
/// use tunebox::prelude::*;
///
/// struct Likelihood;
///
/// impl Method for Likelihood {
///     type Settings = ();
///
///     fn init((): ()) -> Result<Self> {
///         Ok(Self)
///     }
///
///     fn step(&mut self, batch: &Batch) -> Result<()> {
///         let scores = score_for_learning(&batch.rows("example")?, Taps::empty(), 1.0)?;
///         backward(&loss::token_mean(&-scores.logprob(), batch.window_targets("example")?))
///     }
/// }
/// ```
pub trait Method: Sized + 'static {
    /// The settings in `run.toml`; often the method itself.
    type Settings: Settings;

    /// Creates the method from the run's settings, which the host has filled in and range-checked. An error ends the
    /// run before its first step.
    fn init(settings: Self::Settings) -> Result<Self>;

    /// Handles one micro-batch: scores it, builds the loss, and calls [`backward`](crate::learn::backward). An error
    /// ends the run at this step; the last checkpoint stays.
    fn step(&mut self, batch: &Batch) -> Result<()>;

    /// Runs once after the last step: closing reports, edits of the model. Does nothing by default.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns the method's own state for a checkpoint, at most 1 MiB; by default none.
    fn save_state(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Restores what [`save_state`](Self::save_state) returned, after `init` on resuming. By default refuses any bytes.
    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        if state.is_empty() {
            Ok(())
        } else {
            Err(Error::new("this method keeps no state, but the checkpoint has some"))
        }
    }
}

/// The component's exports for one method; [`method!`](crate::method!) names it.
#[doc(hidden)]
pub struct Exported<M>(PhantomData<M>);

/// Makes the compiler check that a type is a method, in a native build. Does nothing at run time.
#[doc(hidden)]
pub const fn check<M: Method>() {
    let _: fn(Vec<types::Setting>) -> Result<(), String> = <Exported<M> as Guest>::init;
}

impl<M: Method> Guest for Exported<M> {
    fn init(settings: Vec<types::Setting>) -> Result<(), String> {
        std::panic::set_hook(Box::new(forward_panic));
        let settings = M::Settings::read(&settings).map_err(|error| error.report())?;
        let method = M::init(settings).map_err(|error| error.report())?;
        RUNNING.set(Some(Box::new(method)));
        Ok(())
    }

    fn step(batch: &data::Batch) -> Result<(), String> {
        running(|method: &mut M| method.step(&Batch::new(batch)))
    }

    fn finish() -> Result<(), String> {
        running(M::finish)
    }

    fn save_state() -> Vec<u8> {
        running(|method: &mut M| Ok(method.save_state())).unwrap_or_default()
    }

    fn load_state(state: Vec<u8>) -> Result<(), String> {
        running(|method: &mut M| method.load_state(&state))
    }
}

thread_local! {
    /// The one method of this component, from `init` on.
    static RUNNING: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Calls `work` with the method that `init` created. Errors: `init` was not called; those of `work`, as text.
fn running<M: Method, T>(work: impl FnOnce(&mut M) -> Result<T>) -> Result<T, String> {
    RUNNING.with_borrow_mut(|running| match running.as_mut().and_then(|method| method.downcast_mut()) {
        Some(method) => work(method).map_err(|error| error.report()),
        None => Err("`init` has not been called".to_owned()),
    })
}

/// The panic hook: sends message and location to the host, before the trap that follows.
#[cfg(target_arch = "wasm32")]
fn forward_panic(panic: &std::panic::PanicHookInfo<'_>) {
    use crate::bindings::tunebox::method::run;

    let message = panic.payload_as_str().unwrap_or("the method panicked");
    match panic.location() {
        Some(place) => run::fault(message, place.file(), place.line(), place.column()),
        None => run::fault(message, "", 0, 0),
    }
}

// A panic that can be caught is sent when the call returns.
#[cfg(not(target_arch = "wasm32"))]
use crate::native::forward_panic;
