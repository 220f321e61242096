//! Claims about tensor operations and optimizers, in one program.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod ops;
mod optimizers;

/// What the modules share.
mod support {
    #[expect(dead_code, reason = "another program uses the rest")]
    pub(crate) mod golden;
}
