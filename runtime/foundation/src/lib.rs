//! Code without tensors that all other crates share: structured error messages, file operations, paths, and escapes for
//! untrusted text.

// The derive names this crate by its own name.
extern crate self as tunebox_foundation;

pub mod bounded;
pub mod contract;
pub mod environment;
pub mod explain;
pub mod files;
pub mod format;
pub mod hexadecimal;
pub mod nearest;
pub mod panics;
pub mod paths;
pub mod printable;
pub mod setting;
