//! Claims about what is generated from the contract, in one program.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod generated;

/// What the modules share.
mod support {
    #[expect(dead_code, reason = "another program uses the rest")]
    pub(crate) mod golden;
}
