//! Child processes of this program, where compiled methods come from, and Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tunebox_compute::code_cache;
use tunebox_foundation::explain::Exit;
use tunebox_sandbox::Compiling;
use tunebox_sandbox::child::Program;

use crate::terminal::Failure;

/// The program to start as a run's worker. `None` with `--in-process`.
pub(crate) fn worker_program(in_process: bool) -> Result<Option<Program>, Failure> {
    if in_process { Ok(None) } else { this_program("worker").map(Some) }
}

/// Compiles methods that are not built in by a child process, and caches compiled code in the user's cache folder.
pub(crate) fn compiling() -> Result<Compiling, Failure> {
    Ok(Compiling { program: Some(this_program("compile-component")?), ..compiling_in_process() })
}

/// Compiles every method in this process, with the same cache.
pub(crate) fn compiling_in_process() -> Compiling {
    Compiling { cache: code_cache::folder("compiled"), ..Compiling::default() }
}

/// This program with a command as its argument.
fn this_program(command: &str) -> Result<Program, Failure> {
    let program = Program::this().map_err(|error| {
        Failure::usage(format!("the path of this program is unknown: {error}"), "start it by its full path")
    })?;
    Ok(program.with(command))
}

/// A flag that the first Ctrl-C sets. The second Ctrl-C ends the process.
pub(crate) fn stop_on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(Exit::Interrupted as i32);
        }
    })
    .map_err(|error| Failure::usage(format!("Ctrl-C cannot be handled: {error}"), "run it without another handler"))?;
    Ok(stop)
}
