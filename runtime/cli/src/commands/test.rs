//! `tunebox test`: runs a method's own tests, then compares its component with its native twin: the same method,
//! compiled for this machine, or run by plain Python.

mod native_build;
mod twin_process;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use native_build::NativeBuild;
use serde_json::json;
use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_foundation::files::temporary_folder;
use tunebox_foundation::format::{bytes, group_digits, pluralize};
use tunebox_package::build::{Built, Options, expect_method, python};
use tunebox_package::{Manifest, Reference, toolchain};
use tunebox_sandbox::Limits;
use tunebox_sandbox::native::{Arrival, Twin, TwinListener};
use tunebox_training::twin::{Comparison, Difference};
use tunebox_training::{RunSettings, twin};
pub(crate) use twin_process::start_process;
use twin_process::{NativeTwin, TwinProcess, run_tests};

use crate::arguments::Global;
use crate::package::build::{BUILD_WARNING, build_method, show_compiler_warnings, show_source_warnings};
use crate::package::describe::train_built_command;
use crate::processes::compile_settings;
use crate::terminal::progress::step_bar;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

/// Time limit for the twin to connect after its start.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

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
    /// Print the command that starts the native build under a debugger, and wait for it
    #[arg(long)]
    debug: bool,
}

impl Test {
    /// Builds the component and runs the method's own tests. If they pass, compares the component with its native twin
    /// on the sample; a verifier or environment has no twin and skips this. Exit code 1 if a test fails or the two
    /// differ.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        expect_method(&self.folder)?;
        let is_python = python::is_python(&self.folder);
        let toolchain = if is_python { None } else { Some(toolchain::find()?) };
        let place = temporary_folder(&std::env::temp_dir(), "tunebox-test-")?;
        let (output, offline) = (self.out.clone(), global.offline);
        let options = Options { toolchain: toolchain.clone(), output, offline, ..Options::default() };
        let built = build_method(terminal, &self.folder, &options)?;
        if is_python {
            show_compiler_warnings(terminal, &built.warnings);
        }
        terminal.status("Built", format!("{}, {}", built.path.display(), bytes(built.bytes.len() as u64)));
        show_source_warnings(terminal, &self.folder, &built);
        terminal.status("Testing", "the method's own tests");
        let (twin, tests) = match toolchain {
            Some(toolchain) => {
                let native = NativeBuild { toolchain, folder: self.folder.clone(), offline, quiet: terminal.quiet };
                let (executable, tests) = (native.build_tests()?, native.test_command()?);
                (NativeTwin::Rust(native, executable), Some(tests))
            }
            None => {
                let twin = python::Twin::open(&self.folder, &mut |_| {})?;
                let tests = twin.tests()?;
                (NativeTwin::Python(Box::new(twin)), tests)
            }
        };
        if tests.is_none() {
            terminal.note("the folder has no tests: no `test_*.py` in `tests`");
        }
        let passed = tests.map_or(Ok(true), |tests| run_tests(tests, terminal.quiet))?;
        if !passed || !built.manifest.world.is_method() {
            return Ok(show_own_tests(terminal, &built.manifest, passed));
        }
        let settings = self.sample_settings(global, &built, place.path())?;
        let next = train_built_command(
            &self.folder,
            self.out.is_some(),
            &built.path,
            built.bytes.len() as u64,
            &built.imports,
        );
        self.compare(terminal, &twin, settings, &next)
    }

    /// Returns the settings of the sample run that component and twin both carry out, with its files under `place` and
    /// the limits that the method needs.
    fn sample_settings(&self, global: &Global, built: &Built, place: &Path) -> Result<RunSettings, Failure> {
        let set = [self.limit_overrides(built.bytes.len())?, self.set.clone()].concat();
        let mut settings = twin::sample(&built.path, &built.imports, self.steps, place, &set)?;
        settings.offline = global.offline;
        settings.compiling = compile_settings()?;
        settings.compiling.code.source_lines = true;
        Ok(settings)
    }

    /// The `--set` arguments with the limits of the folder's `run.toml`, raised without a question where a component of
    /// `size` bytes needs more: the user who runs its tests is its author.
    fn limit_overrides(&self, size: usize) -> Result<Vec<String>, Failure> {
        let mut limits = RunSettings::limits_of_method(&Reference::path_argument(&self.folder), &[])?;
        if limits.component_bytes < size {
            (limits.component_bytes, limits.compile_seconds) = (size, Limits::INTERPRETER_SECONDS);
        }
        Ok(limits.changed().map(|(limit, value, _)| format!("limits.{}={value}", limit.name)).collect())
    }

    /// Starts the native twin, runs component and twin on the sample, and shows the result. With `--debug` prints the
    /// debugger command instead of starting the twin. `next` is the command to suggest if both agree. A difference is a
    /// failure with exit code 1.
    fn compare(&self, terminal: Terminal, native: &NativeTwin, settings: RunSettings, next: &str) -> CommandResult {
        let listener = TwinListener::open().map_err(|error| connection_failure(&error))?;
        terminal.status("Comparing", format!("component and {}, on the sample", native.name()));
        let mut process = if self.debug {
            show_debugger_command(terminal, &native.debugger_command(&listener)?);
            None
        } else {
            Some(native.start(&listener, terminal.quiet, terminal.verbose)?)
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
        let problem = match listener.wait(coming, call, ended).map_err(|error| connection_failure(&error))? {
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
fn connection_failure(error: &std::io::Error) -> Failure {
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

/// Shows the result of the own tests of a component that is not compared with a twin: exit code 1 if a test failed, 0
/// for a verifier or environment, which has no twin.
fn show_own_tests(terminal: Terminal, manifest: &Manifest, passed: bool) -> ExitStatus {
    terminal.event(json!({ "event": "tested", "method": manifest.name, "own": passed, "same": null }));
    if passed {
        let world = manifest.world.name();
        let text = format!("the {world}'s own tests; it calls no host functions, so there is no twin to compare");
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
    let (metrics, bits) = (group_digits(metrics), group_digits(bits));
    terminal
        .status("Same", format!("{}, {metrics} metrics, {bits} bits of weights and state", pluralize(steps, "step")));
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
