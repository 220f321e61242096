//! Runs a method whose code is not trusted, and answers its calls to the host.
//!
//! `grants` and `admission` check a component before anything of it runs; `engine` and `compile` turn it into code, in
//! a `child` process if it is not built in, and cache that code. `session` calls `init`, `step` and `finish` (`call`
//! runs one call) of a `guest`: a component (`instance`), or a native process of the method's author (`native`).
//! `imports` implements the contract over `state`, one file for each interface; `limits`, `meters` and `memory` bound
//! the method; `cause`, `fault` and `error` describe how it ended. This crate knows neither packages nor terminals.
#![cfg_attr(
    not(test),
    deny(
        clippy::panic,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::unreachable,
        clippy::todo
    )
)]

mod admission;
mod backtrace;
mod batch;
mod bindings;
mod call;
mod call_thread;
mod cause;
pub mod child;
mod compile;
mod completions;
pub mod confinement;
mod costs;
mod engine;
mod entries;
mod environment;
mod error;
mod fault;
mod figures;
mod grants;
mod guest;
mod imports;
mod instance;
mod instructions;
mod isolated;
mod limits;
mod memory;
mod memory_images;
mod meters;
mod method_parameters;
pub mod native;
mod precompiled;
mod profile;
mod refusal;
mod reports;
mod run_hooks;
mod scores;
mod session;
mod settings;
mod state;
mod train_state;
mod usage;
mod verifier;

// For the modules of this crate, which call it `crate::printable`.
use tunebox_foundation::printable;

pub use admission::{admit, imports};
pub use batch::{Batch, Question};
pub use compile::{CodeOptions, Compiling, compile_for_parent};
pub use completions::{Completions, DECODED_BYTES};
pub use costs::{COSTS, Cost, TABLE as COST_TABLE, cost_of};
pub use engine::{Engine, Method, StartProcess};
pub use environment::{Environment, Responder, Response, Turn};
pub use error::{DeniedCall, Error};
pub use fault::{Function, Stop};
pub use grants::{Grants, interface_of};
pub use imports::NEW_TOKENS;
pub use limits::{LIMITS, Limit, Limits, NOT_COUNTED, Unit};
pub use method_parameters::{Extra, MethodParameters};
pub use profile::{Profiler, Recorded};
pub use reports::Combine;
pub use run_hooks::{RunHooks, ScoreRequest};
pub use session::{Session, StepReport, Value};
pub use settings::{CallEvent, CallObserver, SessionSettings};
pub use train_state::{Direction, TrainState};
pub use usage::{Counts, Slowest, Usage};
pub use verifier::{Judge, Verdict, Verifier};
