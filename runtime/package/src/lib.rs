//! A method as a file: what it says about itself, how it is found, how it is built.
//!
//! A package is one component with its manifest in a custom section; it is read here without
//! running anything. What a method may do, and running it, is the sandbox's.

pub mod build;
pub mod builtin;
pub mod component;
pub mod digest;
pub mod error;
pub mod manifest;
pub mod nearest;
pub mod reference;
pub mod section;
pub mod settings;
pub mod toolchain;

pub use build::{Built, build};
pub use error::Error;
pub use manifest::{Cadence, Kind, Manifest, Setting, Value, World, read_manifest};
pub use reference::{Package, Reference};
pub use settings::resolve_settings;
