//! `tunebox test`: runs a method's own tests, then compares its component with its native twin: the same method, compiled
//! for this machine.

mod native_build;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use native_build::{NativeBuild, TwinProcess};
use serde_json::json;
use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_foundation::files::temporary_folder;
use tunebox_foundation::format::{bytes, counted, grouped};
use tunebox_foundation::paths;
use tunebox_package::build::python::is_python;
use tunebox_package::build::{Built, Options, expect_method};
use tunebox_package::{Reference, toolchain};
use tunebox_sandbox::native::{Arrival, Twin, TwinListener};
use tunebox_training::twin::{Comparison, Difference};
use tunebox_training::{RunSettings, twin};

use crate::arguments::Global;
use crate::package::build::{BUILD_WARNING, build_method, show_source_warnings};
use crate::package::describe::{train_built_command, train_command};
use crate::processes::compiling;
use crate::terminal::progress::step_bar;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

/// Time limit for the twin to connect after its start.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Assumed size of a component in Python, which is not built here, in bytes.
const PYTHON_COMPONENT_BYTES: u64 = 32 << 20;

/// Time limit for one call of the twin, so that one that hangs ends.
const CALL_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug, Args)]
#[command(after_long_help = BUILD_WARNING)]
pub(crate) struct Test {
    /// Method folder
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Component file to write [default: NAME.wasm in the folder]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Optimizer steps to compare [default: 5, or one pass over the data for a method that does not learn]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    steps: Option<u32>,
    /// Set a key of the run, for example `method.beta=0.2`. Can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print the command that starts the twin under a debugger, and wait for it
    #[arg(long)]
    debug: bool,
}

impl Test {
    /// Builds the component and runs the method's own tests. If they pass, compares the component with its native twin
    /// on the sample; a verifier has no twin and skips this. Exit code 1 if a test fails or the two differ.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        self.expect_rust()?;
        let toolchain = toolchain::find()?;
        let place = temporary_folder(&std::env::temp_dir(), "tunebox-test-")?;
        let output = self.out.clone();
        let (offline, folder) = (global.offline, self.folder.clone());
        let options = Options { toolchain: Some(toolchain.clone()), output, offline, ..Options::default() };
        let built = build_method(terminal, &folder, &options)?;
        terminal.status("Built", format!("{}, {}", built.path.display(), bytes(built.bytes.len() as u64)));
        show_source_warnings(terminal, &folder, &built);
        let (quiet, verbose) = (terminal.quiet, terminal.verbose);
        let native = NativeBuild { toolchain, folder, offline, quiet, verbose };
        terminal.status("Testing", "the method's own tests");
        let executable = native.build_tests()?;
        let passed = native.run_tests()?;
        if !passed || !built.manifest.world.is_method() {
            return Ok(show_own_tests(terminal, &built.manifest.name, passed));
        }
        let settings = self.settings(global, &built, place.path())?;
        let next = train_built_command(&self.folder, self.out.is_some(), &built.path, built.bytes.len() as u64);
        self.compare(terminal, &native, &executable, settings, &next)
    }

    /// Fails if the folder holds no method, or one in Python, with the command that trains it as the hint.
    fn expect_rust(&self) -> Result<(), Failure> {
        expect_method(&self.folder)?;
        if !is_python(&self.folder) {
            return Ok(());
        }
        let folder = paths::simplify(&self.folder);
        let run = paths::simplify(&folder.join("run.toml"));
        // The run file of a method in Python has the limits that its component needs.
        let train = if run.is_file() {
            format!("tunebox train {}", run.display())
        } else {
            train_command(Reference::written(&folder), PYTHON_COMPONENT_BYTES)
        };
        let folder = folder.display();
        let what = format!("the method in `{folder}` is in Python; only methods in Rust have a native twin to test");
        Err(Failure::usage(what, format!("`tunebox build {folder}; {train}` trains with it")))
    }

    /// Returns the settings of the sample run that component and twin both carry out, with its files under `place`.
    fn settings(&self, global: &Global, built: &Built, place: &Path) -> Result<RunSettings, Failure> {
        let mut settings = twin::sample(&built.path, &built.imports, self.steps, place, &self.set)?;
        settings.offline = global.offline;
        settings.compiling = compiling()?;
        settings.compiling.code.source_lines = true;
        Ok(settings)
    }

    /// Starts the native twin, runs component and twin on the sample, and shows the result. With `--debug` prints the
    /// debugger command instead of starting the twin. `next` is the command to suggest if both agree.
    fn compare(
        &self,
        terminal: Terminal,
        native: &NativeBuild,
        executable: &Path,
        settings: RunSettings,
        next: &str,
    ) -> CommandResult {
        let listener = TwinListener::open().map_err(|error| unreachable_twin(&error))?;
        terminal.status("Comparing", "component and native twin on the sample");
        let mut process = if self.debug {
            show_debugger_command(terminal, &native.debugger_command(executable, &listener)?);
            None
        } else {
            Some(native.start_twin(executable, &listener)?)
        };
        let twin = self.wait_for_twin(&listener, process.as_mut())?;
        let mut bar = None;
        let compared = twin::compare(settings, twin, &mut |step, total| {
            bar.get_or_insert_with(|| step_bar(terminal, "steps", Some(total))).set_position(step);
        });
        drop(bar);
        show_comparison(terminal, compared?, next)
    }

    /// Waits until the native twin connects. Fails if it does not connect in 60 seconds or its `process` ends first;
    /// with `--debug` waits without a time limit.
    fn wait_for_twin(&self, listener: &TwinListener, mut process: Option<&mut TwinProcess>) -> Result<Twin, Failure> {
        let (coming, call) = if self.debug { (None, None) } else { (Some(CONNECT_TIMEOUT), Some(CALL_TIMEOUT)) };
        let ended = || process.as_mut().is_some_and(|process| process.has_ended());
        let problem = match listener.wait(coming, call, ended).map_err(|error| unreachable_twin(&error))? {
            Arrival::Connected(twin) => return Ok(twin),
            Arrival::TimedOut => "it was started and did not connect",
            Arrival::Cancelled => "its test process ended without connecting",
        };
        let explanation = Explanation::new("test", "the method has no native twin").with_why(problem).with_hint(
            "`method!` of this version's SDK adds it to the tests; look for `tunebox_twin` in `cargo test -- --list`",
        );
        Err(Failure::new(explanation, Exit::Usage))
    }
}

/// Creates the failure for an I/O error of the connection to the twin.
fn unreachable_twin(error: &std::io::Error) -> Failure {
    let explanation = Explanation::new("test", "the native twin cannot be reached").with_why(error.to_string());
    Failure::new(explanation, Exit::Usage)
}

/// Shows the debugger command that the user must run for the test to continue. Shows it with `--quiet` too.
fn show_debugger_command(terminal: Terminal, command: &str) {
    terminal.event(json!({ "event": "waiting", "command": command }));
    terminal.status("Debug", command);
    if terminal.quiet && !terminal.json {
        terminal.print_line(command);
    }
}

/// Shows the result of the own tests of a method or verifier whose component is not compared with a twin: exit code 1 if
/// a test failed, 0 for a verifier, which has no twin.
fn show_own_tests(terminal: Terminal, method: &str, passed: bool) -> ExitStatus {
    terminal.event(json!({ "event": "tested", "method": method, "own": passed, "same": null }));
    if passed {
        let text = "the verifier's own tests; a verifier calls no host functions, so there is no twin to compare";
        terminal.status("Passed", text);
        return ExitStatus::Success;
    }
    terminal.status("Failed", "a test of the method; component and native twin were not compared");
    ExitStatus::Code(Exit::No)
}

/// Shows that component and twin agree and suggests the command `next`, or fails with the first difference.
fn show_comparison(terminal: Terminal, comparison: Comparison, next: &str) -> CommandResult {
    let Comparison { method, steps, metrics, bits, weights, difference } = comparison;
    terminal.event(json!({
        "event": "tested", "method": method, "own": true, "same": difference.is_none(), "steps": steps,
        "metrics": metrics, "bits": bits, "weights": weights, "difference": difference,
    }));
    if let Some(difference) = difference {
        return Err(difference_failure(&method, difference));
    }
    let (metrics, bits) = (grouped(metrics), grouped(bits));
    terminal.status("Same", format!("{}, {metrics} metrics, {bits} bits of weights and state", counted(steps, "step")));
    terminal.suggest(next);
    Ok(ExitStatus::Success)
}

/// Creates the failure for a difference between component and twin, with both values: exit code 1.
fn difference_failure(method: &str, difference: Difference) -> Failure {
    let Difference { moment, what, component, twin } = difference;
    let explanation = Explanation::new("test", format!("the component and the native twin of `{method}` differ"))
        .with_location(format!("{what} {moment}"))
        .with_why(format!("component: {component}; native twin: {twin}"))
        .with_hint("look for code that depends on the compilation target or on anything but its inputs");
    Failure::new(explanation, Exit::No)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        test: Test,
    }

    #[test]
    fn a_method_in_python_is_refused_with_the_command_that_trains_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        std::fs::write(folder.path().join("pyproject.toml"), "").unwrap();
        let hint = || {
            let refused = CommandLine::parse_from(["tunebox", path]).test.expect_rust().unwrap_err();
            refused.explanation.hint.unwrap()
        };
        let limits = "--set limits.component-bytes=33554432 --set limits.compile-seconds=120";
        assert_eq!(
            hint(),
            format!("`tunebox build {path}; tunebox train --sample --method {path} {limits}` trains with it")
        );
        std::fs::write(folder.path().join("run.toml"), "").unwrap();
        assert_eq!(hint(), format!("`tunebox build {path}; tunebox train {path}/run.toml` trains with it"));
    }
}
