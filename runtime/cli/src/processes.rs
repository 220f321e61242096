//! The child processes of this program, the configuration by which methods are compiled, and the handling of Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tunebox_compute::code_cache;
use tunebox_foundation::explain::Exit;
use tunebox_sandbox::Compiling;
use tunebox_sandbox::child::Program;

use crate::terminal::{Failure, Terminal};

/// Returns the program to start as a run's worker process: this one with the command `worker`. `None` if `in_process`
/// is true. Fails if the path of this program is unknown.
pub(crate) fn worker_program(in_process: bool) -> Result<Option<Program>, Failure> {
    if in_process { Ok(None) } else { this_program("worker").map(Some) }
}

/// Returns the configuration for compiling methods: a child process compiles those that are not built in, and the
/// compiled code is cached in the user's cache folder. Fails if the path of this program is unknown.
pub(crate) fn compile_settings() -> Result<Compiling, Failure> {
    let (cache, program) = (code_cache::folder("compiled"), this_program("compile-component")?);
    Ok(Compiling { cache, program: Some(program), ..Compiling::default() })
}

/// Returns the executable of this process with `command` as its argument, not started. Fails if the path of the
/// executable is unknown.
fn this_program(command: &str) -> Result<Program, Failure> {
    let program = Program::this().map_err(|error| {
        Failure::usage(format!("the path of this program is unknown: {error}"), "start it by its full path")
    })?;
    Ok(program.with(command))
}

/// Two interrupt signals within this time count as one Ctrl-C: the terminal sends one, and the parent passes on
/// another.
const INTERRUPT_WINDOW: Duration = Duration::from_millis(200);

/// Installs the handler of Ctrl-C and of SIGTERM. Returns the flag that the first signal sets to true; the first signal
/// also shows `note`, if one is given. A second signal, more than 200 ms after the first, ends the process with exit
/// code 130, unless the flag was set to false in between. Fails if the process has a handler already.
pub(crate) fn stop_on_interrupt(note: Option<(Terminal, &'static str)>) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let (flag, mut first) = (Arc::clone(&stop), Instant::now());
    ctrlc::set_handler(move || {
        if !flag.swap(true, Ordering::SeqCst) {
            first = Instant::now();
            if let Some((terminal, text)) = note {
                terminal.note(text);
            }
        } else if first.elapsed() > INTERRUPT_WINDOW {
            std::process::exit(Exit::Interrupted as i32);
        }
    })
    .map_err(|error| Failure::usage(format!("Ctrl-C cannot be handled: {error}"), "run it without another handler"))?;
    Ok(stop)
}
