//! Claims about the sandbox, in one program.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod attacks;
mod sessions;
mod wall;

/// What the modules share.
mod support {
    pub(crate) mod attack;
    pub(crate) mod fake_run;
    pub(crate) mod guest;
    pub(crate) mod own_process;
    pub(crate) mod tiny_policy;
}
