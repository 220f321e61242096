//! Claims about models, in one program.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod adapters;
mod families;
mod reward_models;

/// What the modules share.
mod support {
    pub(crate) mod noise;
    pub(crate) mod reward_models;
    pub(crate) mod tiny_models;
}
