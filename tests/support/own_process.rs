//! Runs an ignored test in a process of its own, because memory and the error stream belong to a process.

use std::process::{Command, Output};

/// Runs the ignored test with this path, and no other, and returns what it printed.
pub(crate) fn output(test: &str) -> Output {
    output_of(test, &[])
}

/// Runs the ignored test with this path, and no other, under these variables of the environment.
pub(crate) fn output_of(test: &str, variables: &[(&str, &str)]) -> Output {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.envs(variables.iter().copied());
    program.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]).output().unwrap()
}
