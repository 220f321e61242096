//! Claims about packages and registries, in one program.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod build;
mod registry;

/// What the modules share.
mod support {
    pub(crate) mod absent;
    pub(crate) mod fake_registry;
    pub(crate) mod folders;
    pub(crate) mod real_registry;
}
