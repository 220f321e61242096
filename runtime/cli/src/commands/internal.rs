//! The internal commands: `worker` and `compile-component`, which run untrusted methods in child processes, and `host`,
//! which serves the host functions to a unit test of a method.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use nix::sys::signal::{SigSet, Signal};
use tunebox_foundation::explain::Exit;
use tunebox_sandbox::child;
use tunebox_sandbox::compile_for_parent;
use tunebox_sandbox::native::UnitTest;
use tunebox_training::serve;

use crate::processes::compile_settings;
use crate::terminal::{CommandResult, ExitStatus, Failure};

/// Reads the environment and the settings of a run from stdin, carries the run out, and writes its events and result to
/// the original stdout. Redirects stdout to stderr. Leaves Ctrl-C to the parent, which orders a stop.
pub(super) fn run_worker() -> CommandResult {
    child::prepare_as_child().map_err(internal_failure)?;
    let reports = take_stdout().map_err(internal_failure)?;
    child::receive_environment(&mut io::stdin().lock()).map_err(internal_failure)?;
    let stop = Arc::new(AtomicBool::new(false));
    // A handler would need a thread, which the ring for files would not surround.
    SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]).thread_block().map_err(internal_failure)?;
    let exit = serve(io::stdin(), Arc::new(Mutex::new(reports)), compile_settings()?, &stop, || {
        std::process::exit(Exit::Interrupted as i32)
    });
    Ok(exit.map_or(ExitStatus::Success, ExitStatus::Code))
}

/// Duplicates stdout, the pipe to the parent, and redirects stdout to stderr. What libraries print then cannot corrupt
/// the reports.
fn take_stdout() -> io::Result<std::fs::File> {
    use std::os::fd::AsFd;
    let pipe = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(pipe.into())
}

/// Compiles the component from stdin, under the limits that come before it, and writes the code to stdout, or the
/// compiler's message if it does not compile. Ctrl-C is left to the parent.
pub(super) fn compile_component() -> CommandResult {
    ctrlc::set_handler(|| {}).map_err(internal_failure)?;
    compile_for_parent().map_err(internal_failure)?;
    Ok(ExitStatus::Success)
}

/// Serves the host functions to the unit test that is connected to standard input, until the test disconnects. Returns
/// every error; sends its text to the test as well, except for an error while it connects.
pub(super) fn serve_test() -> CommandResult {
    let test = UnitTest::find().map_err(internal_failure)?;
    let notifier = test.method.notifier().map_err(internal_failure)?;
    tunebox_training::twin::serve_test(test).map_err(|error| {
        let failure = Failure::from(error);
        notifier.stop(&anstream::adapter::strip_str(&failure.text(false, usize::MAX)).to_string());
        failure
    })?;
    Ok(ExitStatus::Success)
}

/// Creates the failure for an internal command that fails to set up, as when a user starts it.
fn internal_failure(error: impl std::fmt::Display) -> Failure {
    Failure::usage(
        format!("this command is internal to tunebox: {error}"),
        "`tunebox train` and the tests of a method start it when needed",
    )
}
