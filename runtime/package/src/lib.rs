//! Packages of methods: finds, reads, builds, signs, stores and transfers them, and decides which signers are accepted.
//!
//! A package is one WebAssembly component with its manifest in a custom section. This crate reads packages without
//! running their code; `tunebox_sandbox` decides what a method may do, and runs it.

pub mod artifact;
pub mod build;
pub mod builtin;
pub mod component;
mod constants;
mod counterpart;
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
pub use manifest::{Cadence, Kind, Manifest, Setting, Updates, Value, World, read_manifest};
pub use reference::{Package, Reference};
pub use settings::resolve_settings;
pub use store::{Store, Stored};
pub use trust::Trust;
pub use tunebox_foundation::bounded;
