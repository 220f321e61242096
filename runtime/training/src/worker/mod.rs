//! A run in a process of its own, for methods and verifiers that are not built in.
//!
//! The parent ([`carry_out`]) never compiles or runs a stranger's bytes: it starts the worker, hands it
//! the settings, passes on what it tells, and says what ended it. The worker ([`serve`]) does the whole
//! run: model, tensors, compiling, training, checkpoints. `protocol` is what they say to each other.
//!
//! A crash, an abort or a kill of the worker leaves the caller, and the last checkpoint, whole. The worker
//! ends with its parent. The method cannot write to the pipe between them; only the host does.

mod child;
mod fault;
mod protocol;
mod supervise;

pub use child::serve;
pub use fault::{WorkerError, WorkerFault};
pub use supervise::carry_out;
