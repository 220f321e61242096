//! A method in a process of its own, for its author: the same source, compiled for the machine at hand, calls the host
//! over a connection instead of through wasmtime.
//!
//! `listener` accepts the connection, `frame` carries messages and `codec` the values in them (both are files of the
//! SDK, the other end), `dispatch` (written by the build script from `wit/`) finds the function of `imports` that a
//! request names, `process` makes the calls of a session. Checks, costs, limits and meters are those of a component;
//! the method itself runs outside the sandbox, so this is for code that one would compile and run anyway.

#[path = "../../../../sdk/rust/src/native/codec.rs"]
#[allow(unreachable_pub, reason = "the SDK exports it")]
mod codec;
mod dispatch;
#[path = "../../../../sdk/rust/src/native/frame.rs"]
mod frame;
mod listener;
mod process;
mod resource;

pub use listener::{ADDRESS, Arrival, Notifier, Twin, TwinListener, UnitTest};
pub(crate) use process::Process;
use tunebox_foundation::contract::{CONTRACT, PACKAGE};

/// Returns the full names, with this host's contract version, of all interfaces with functions that a method may
/// import, in alphabetical order.
#[must_use]
pub fn every_interface() -> Vec<String> {
    dispatch::interfaces().map(|interface| format!("{PACKAGE}/{interface}@{CONTRACT}")).collect()
}
