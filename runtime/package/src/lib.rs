//! A method as a file: what it says about itself, how it is found, how it is built.
//!
//! A package is one component with its manifest in a custom section; it is read here without
//! running anything. What a method may do, and running it, is the sandbox's.

pub mod artifact;
pub mod build;
pub mod builtin;
pub mod component;
mod constants;
pub mod digest;
pub mod error;
mod file_lock;
mod files;
pub mod home;
pub mod manifest;
pub mod pack;
pub mod provenance;
pub mod reference;
pub mod registry;
pub mod section;
pub mod settings;
pub mod signature;
pub mod sizes;
pub mod sources;
pub mod statement;
pub mod store;
pub mod template;
pub mod toolchain;
pub mod trust;
pub mod world;

pub use artifact::Artifact;
pub use build::Built;
pub use error::Error;
pub use manifest::{Cadence, Kind, Manifest, Setting, Value, World, read_manifest};
pub use reference::{Package, Reference};
pub use settings::resolve_settings;
pub use store::{Store, Stored};
pub use trust::Trust;
pub use tunebox_foundation::bounded;
