//! Runs a method that nobody vouches for, and answers what it asks.
//!
//! `grants` and `admission` decide before anything runs; `engine` compiles; `session` calls `init`,
//! `step` and `finish` (`call` is how); `imports` keeps the contract, one file an interface, over
//! `state`; `limits`, `meters` and `memory` bound it; `cause`, `fault` and `error` say how it ended.
//! What a package is, and what a terminal is, this room does not know.

mod admission;
mod batch;
mod bindings;
mod call;
mod cause;
mod engine;
mod entries;
mod error;
mod fault;
mod figures;
mod grants;
mod imports;
mod learner;
mod limits;
mod memory;
mod meters;
mod printable;
mod purse;
mod refusal;
mod reports;
mod scores;
mod session;
mod state;
mod verifier;
mod written;

pub use admission::imports;
pub use batch::{Batch, Question};
pub use engine::{Engine, Method};
pub use error::Error;
pub use fault::{Function, Stop};
pub use grants::Grants;
pub use learner::{Direction, Editing, Learner, Sampler, Sampling, Sizes};
pub use limits::Limits;
pub use reports::Combine;
pub use session::{Session, SessionSettings, StepReport, Value};
pub use verifier::{Judge, Verdict, Verifier, VerifierLimits};
pub use written::Written;
