//! Language models: reads checkpoints, tokenizers and chat templates, runs forward and backward passes of one decoder
//! that is configured for each family, and generates. Adapters are trained on frozen weights, or all weights are.
//!
//! Does not depend on the sandbox or on training runs.

pub mod adapter;
pub mod chat;
pub mod configuration;
pub mod decoder;
pub mod edit;
pub mod error;
pub mod export;
pub mod families;
mod fields;
mod files;
pub mod generate;
pub mod hub;
pub mod merge;
pub mod model;
pub mod policy;
pub mod ranks;
pub mod reward;
pub mod rows;
pub mod source;
pub mod stream;
#[cfg(test)]
#[path = "tests/tiny.rs"]
mod tiny;
pub mod tokenizer;
pub mod vectors;
pub mod watchdog;
pub mod weights;

pub use configuration::Configuration;
pub use error::{Error, Result};
pub use model::Model;
pub use policy::{Captured, Policy, PolicySettings, Scored, Seeds, Slice, View};
pub use ranks::{RankGroup, Ranks};
pub use reward::RewardModel;
pub use rows::Rows;
pub use source::{Source, digest};
pub use weights::Weights;
