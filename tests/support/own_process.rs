//! Runs an ignored test in a process of its own, because memory and the error stream belong to a process.

use std::process::{Command, Output};

/// Runs the ignored test with this path, and no other, and returns what it printed.
pub(crate) fn output(test: &str) -> Output {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]).output().unwrap()
}
