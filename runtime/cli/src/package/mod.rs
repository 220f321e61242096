//! What the commands share that work with packages and method folders.

pub(crate) mod build;
pub(crate) mod describe;
pub(crate) mod trust;
