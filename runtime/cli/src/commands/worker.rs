//! Two commands that only this program calls: `worker` does a run for a stranger's method, `compile-component`
//! compiles a stranger's component. And what both are started with.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tunebox_compute::code_cache;
use tunebox_foundation::explain::Exit;
use tunebox_sandbox::child::{self, Program};
use tunebox_sandbox::{Compiling, compile_for_parent};
use tunebox_training::serve;

use super::{Ending, Outcome};
use crate::terminal::diagnostic::Failure;

/// This program as the worker of a run.
pub(super) fn worker() -> Result<Program, Failure> {
    Ok(this()?.with("worker"))
}

/// Where compiled methods come from: kept in the user's own cache, a stranger's compiled by a child.
pub(super) fn compiling() -> Result<Compiling, Failure> {
    let aside = Some(this()?.with("compile-component"));
    Ok(Compiling { cache: code_cache::folder("compiled"), aside, ..Compiling::default() })
}

/// The same without a child: everything is compiled in this process.
pub(super) fn compiling_here() -> Compiling {
    Compiling { cache: code_cache::folder("compiled"), ..Compiling::default() }
}

fn this() -> Result<Program, Failure> {
    Program::this().map_err(|error| {
        Failure::usage(format!("this program does not find itself: {error}"), "start it by its full path")
    })
}

/// Does the run that comes in on stdin, and tells it on what was stdout.
pub(super) fn run_for_parent() -> Outcome {
    child::settle().map_err(|error| lost(&error))?;
    let told = told_apart().map_err(|error| lost(&error))?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // The terminal's Ctrl-C comes here as well. The parent decides what the second one means.
    ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst)).map_err(|error| lost(&error))?;
    let exit = serve(io::stdin(), told, compiling()?, &stop, || std::process::exit(i32::from(Exit::Interrupted as u8)));
    Ok(exit.map_or(Ending::Done, Ending::Exit))
}

/// The pipe to the parent under a number that nothing else writes to; what a library prints goes to stderr instead.
fn told_apart() -> io::Result<std::fs::File> {
    use std::os::fd::AsFd;
    let pipe = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(pipe.into())
}

/// Compiles the component that comes in on stdin.
pub(super) fn compile() -> Outcome {
    // The terminal's Ctrl-C comes here as well; what it means is for the parent to say.
    ctrlc::set_handler(|| {}).map_err(|error| lost(&error))?;
    compile_for_parent().map_err(|error| lost(&error))?;
    Ok(Ending::Done)
}

fn lost(error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("this command is for tunebox itself: {error}"), "`tunebox train` calls it when it is needed")
}
