//! Claims about models, in one program.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod adapters;
mod families;

/// What the modules share.
mod support {
    pub(crate) mod tiny_models;
}
