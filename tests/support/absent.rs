//! What a test needs and a machine may lack, as a device or a program.
//!
//! Such a test has `#[ignore = "needs …"]`. `tests/optional` runs it after all others, and counts it as skipped if it ends
//! here.

use std::process::{Command, Stdio};

/// Fails a test because this machine lacks what the test needs.
pub(crate) fn absent(name: &str, why: &str) -> ! {
    panic!("absent `{name}`: {why}")
}

/// Fails a test with [`absent`] if a program cannot be started with this argument.
pub(crate) fn require(program: &str, argument: &str) {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.status() {
        absent(program, &error.to_string());
    }
}
