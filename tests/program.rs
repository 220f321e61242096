//! Claims about the program `tunebox`, in one program.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod authoring;
mod cli;
mod contract;
mod dev;
mod device;
mod drift;
mod languages;
mod launchers;
mod memory;
mod parsers;
mod sharing;
mod speed;
mod twin;
mod worker;

/// What the modules share.
mod support {
    pub(crate) mod absent;
    #[expect(dead_code, reason = "another program uses the rest")]
    pub(crate) mod attack;
    pub(crate) mod fake_hub;
    #[expect(dead_code, reason = "another program uses the rest")]
    pub(crate) mod fake_registry;
    pub(crate) mod fake_run;
    pub(crate) mod folders;
    pub(crate) mod given_scores;
    pub(crate) mod golden;
    #[expect(dead_code, reason = "another program uses the rest")]
    pub(crate) mod golden_rows;
    pub(crate) mod guest;
    pub(crate) mod manifested;
    pub(crate) mod method_table;
    pub(crate) mod picture;
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "tests for Linux use the rest"))]
    pub(crate) mod processes;
    #[expect(dead_code, reason = "another program uses the rest")]
    pub(crate) mod real_registry;
    pub(crate) mod renamed;
    pub(crate) mod tiny_policy;
    pub(crate) mod transcript;
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "tests for Linux use the rest"))]
    pub(crate) mod workspace;
}
