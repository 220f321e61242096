//! Claims about methods and runs, in one program.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod base;
mod editing;
mod environments;
mod escapes;
mod methods;
mod own_tokens;
mod own_updates;
mod policy_gradient;
mod ranks;
mod rewards;
mod runs;
#[path = "../runtime/training/benches/twin/tests.rs"]
mod twin_bench;

/// What the modules share.
mod support {
    pub(crate) mod built;
    pub(crate) mod fixed_completions;
    pub(crate) mod given_rollout;
    pub(crate) mod given_scores;
    pub(crate) mod given_stream;
    pub(crate) mod golden;
    pub(crate) mod golden_rows;
    pub(crate) mod guest;
    pub(crate) mod manifested;
    pub(crate) mod noise;
    pub(crate) mod reward_models;
    pub(crate) mod tiny_policy;
    pub(crate) mod tiny_run;
}
