//! The targets, one file each. A new one is a file here, a line in the list, and a folder of inputs.

mod adapter;
mod admission;
mod checkpoint;
mod configuration;
mod continuation;
mod data_file;
mod gguf;
mod lock;
mod manifest;
mod operations;
mod publishers;
mod record;
mod run_file;
mod run_lock;
mod safetensors;
mod session;
mod signature;
mod statement;
mod template;
mod tokenizer;
mod verifiers;
mod worker;

use crate::Target;

/// Every target, by name.
pub const TARGETS: &[Target] = &[
    adapter::TARGET,
    admission::TARGET,
    checkpoint::TARGET,
    configuration::TARGET,
    continuation::TARGET,
    data_file::TARGET,
    gguf::TARGET,
    lock::TARGET,
    manifest::TARGET,
    operations::TARGET,
    publishers::TARGET,
    record::TARGET,
    run_file::TARGET,
    run_lock::TARGET,
    safetensors::TARGET,
    session::TARGET,
    signature::TARGET,
    statement::TARGET,
    template::TARGET,
    tokenizer::TARGET,
    verifiers::TARGET,
    worker::TARGET,
];
