//! The last program of `cargo test --workspace`: runs the cases that need a device or a program which a machine may lack,
//! and prints how many cases of the workspace ran and which were skipped, and why.
//!
//! Such a case has `#[ignore = "needs …"]`, so its own program does not count it as passed, and panics with
//! "absent `NAME`: why" where this machine lacks what it needs. `TUNEBOX_DEVICES` and `TUNEBOX_TOOLS` name what must not
//! be absent. Filters on names apply as in every test program.
#![expect(clippy::print_stdout, reason = "the count is its output")]

use std::process::{Command, ExitCode};

use tunebox_workspace::{DEVICES, Outcomes, Program, TOOLS, required};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `--list` and `--ignored` are answered by the programs that hold the cases.
    if arguments.iter().any(|argument| ["--list", "--ignored", "--include-ignored"].contains(&argument.as_str())) {
        return ExitCode::SUCCESS;
    }
    let filters: Vec<String> = arguments.into_iter().filter(|argument| !argument.starts_with('-')).collect();
    match run(&filters) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("the cases that need a device or a program were not run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the optional cases and prints the count of all; false if one failed.
fn run(filters: &[String]) -> Outcome<bool> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let mut must = required(&variable("TUNEBOX_DEVICES"), &DEVICES)?;
    must.extend(required(&variable("TUNEBOX_TOOLS"), &TOOLS)?);
    let (mut ran, mut outcomes) = (0, Outcomes::default());
    for program in programs()? {
        let cases = program.cases(filters)?;
        ran += cases.ordinary;
        if !cases.optional.is_empty() {
            outcomes.extend(program.run(&cases.optional, &must)?);
        }
    }
    ran += outcomes.passed + outcomes.failed.len();
    let skipped: usize = outcomes.skipped.values().map(Vec::len).sum();
    for (absent, cases) in &outcomes.skipped {
        println!("skipped {}, {absent}:\n    {}", cases.len(), cases.join("\n    "));
    }
    for case in &outcomes.failed {
        println!("failed: {case}");
    }
    println!("\n{ran} cases ran, {skipped} were skipped\n");
    Ok(outcomes.failed.is_empty())
}

/// The test programs of the workspace, which cargo has just built.
fn programs() -> Outcome<Vec<Program>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--workspace", "--tests", "--no-run", "--frozen", "--message-format", "json"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // What cargo tells a test of its own package: a build script of a dependency reads it, and would run again.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_")) {
        cargo.env_remove(name);
    }
    for name in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_MANIFEST_LINKS"] {
        cargo.env_remove(name);
    }
    let output = cargo.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(Program::list(&String::from_utf8_lossy(&output.stdout)))
}
