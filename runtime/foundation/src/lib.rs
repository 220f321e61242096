//! What every other crate builds on and what needs no tensor: errors that explain themselves, files and paths, text that
//! is safe to show.

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
pub mod paths;
pub mod printable;
pub mod setting;
