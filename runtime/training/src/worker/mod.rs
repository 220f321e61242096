//! A run in its own process.
//!
//! `parent` has the components compiled in child processes, starts the worker, sends it the settings, forwards its
//! events, ends it if a call lasts too long, and reports how it ended. It never runs the method. `child` is the worker,
//! which executes the whole run. `protocol` is the messages between them. `on_ranks` carries out the share of one rank
//! in a run on several ranks.
//!
//! If the worker crashes or is killed, the parent and the last checkpoint stay intact. The worker ends when its parent
//! does. The method cannot write to the pipe between them.

mod child;
mod confinement;
mod on_ranks;
mod parent;
mod protocol;

pub use child::serve;
pub use confinement::{
    active_rings, component_files, confine_memory, data_files, list_read_files, memory_of_plan, model_files,
    package_files,
};
pub use on_ranks::execute_on_ranks;
pub use parent::execute;
