//! The native twin: the same method outside WebAssembly, asking the same host over a connection.
//!
//! [`method!`](crate::method!) adds a test `tunebox_twin` that serves the host which `TUNEBOX_TWIN` names, so that
//! `tunebox test` can compare the twin with the component, and a debugger can stop in it.
//! [`bench`](crate::bench) is the other way round: a unit test that starts a host. A thread has one connection at most,
//! and the calls of `bindings` go over that of their thread.

mod codec;
mod connection;
mod frame;
mod panics;
mod serve;
#[cfg(test)]
pub(crate) mod tests;

use crate::bindings::exports::tunebox::method::training;
use crate::{Method, method};

pub use codec::{Decode, Encode, Malformed, Reader};
pub(crate) use codec::{cases, record};
pub use connection::{Borrowed, Handle, Request};
pub(crate) use connection::{Connected, Ended, Role};
pub(crate) use panics::forward_panic;
pub(crate) use serve::{Outcome, read_greeting, request_next, send_greeting, serve_calls};

/// A method with the manifest that `method!` generates.
pub trait Declared {
    /// The manifest, as it stands in the component.
    const MANIFEST: &'static str;
}

/// Runs one call of the host: the number of the function, its arguments, the buffer for its result.
pub(crate) type Dispatch = fn(u8, &mut Reader<'_>, &mut Vec<u8>) -> Result<(), Malformed>;

/// The function that runs calls of the host on the exports of the method `M`.
pub(crate) const fn dispatch_of<M: Method>() -> Dispatch {
    training::dispatch::<method::Exported<M>>
}

/// Connects to the host that `TUNEBOX_TWIN` names and serves it to its end. Does nothing if the variable is not set.
pub fn serve_method<M: Method + Declared>() {
    serve::twin(M::MANIFEST, dispatch_of::<M>());
}
