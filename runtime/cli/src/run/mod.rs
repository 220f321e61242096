//! What the commands share that start or describe a run.

pub(crate) mod display;
pub(crate) mod plan;
pub(crate) mod summary;
