//! Commands that read untrusted files run in a child process of this program, so that a file that crashes it or takes
//! all memory ends the child only, and the parent reports it.
//!
//! The parent asks the user, downloads models and compiles components: see `Command::prepare`. Of a model, it reads
//! only the files that name the model and list its files. The child has the streams and the terminal of its parent, and
//! on Linux no network and no other files than those of its [`Access`].

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus as ProcessStatus};

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, kill_process, waitid};
use tunebox_foundation::environment;
use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_model::watchdog;
use tunebox_sandbox::child::{self, Program};
use tunebox_sandbox::confinement;

use crate::access::Access;
use crate::terminal::{Failure, Terminal};

/// The option that marks the child; `Global` declares it.
const SUPERVISED_FLAG: &str = "--supervised";

/// The environment variables of a child that say how to write to a terminal and where temporary files go.
const INHERITED_VARIABLES: [&str; 12] = [
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "LINES",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "RUST_BACKTRACE",
    "TMPDIR",
];

/// The signals that the parent waits for.
fn awaited_signals() -> SigSet {
    SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD])
}

/// Blocks the signals that [`supervise`] waits for, in this thread and those that it starts.
pub(crate) fn block_signals() -> io::Result<()> {
    Ok(awaited_signals().thread_block()?)
}

/// Runs the command line of this process in a child, and returns the child's exit code. If a signal ended the child,
/// returns 128 plus its number for SIGINT, SIGTERM, SIGHUP and SIGPIPE, else 3 with a failure shown. Returns 2 if the
/// child cannot be started. Passes on signals that end a process. Creates the missing folders of `access.write`, and
/// removes them at the end if they are empty.
///
/// A child with `access` has only the environment variables that it needs, and gets `--offline`, unless `is_offline`
/// says that the command line has it, as its parent has fetched the model. Without `access`, the child inherits the
/// environment.
pub(crate) fn supervise(terminal: Terminal, access: Option<&Access>, is_offline: bool) -> ExitCode {
    let program = Program::this().map(|program| match access {
        Some(access) => confined_command(&program, access, is_offline),
        None => program.inheriting(),
    });
    let folders = access.map_or(&[][..], |access| access.write.as_slice());
    let is_new = |folder: &&PathBuf| !folder.exists() && std::fs::create_dir_all(folder).is_ok();
    let created: Vec<&PathBuf> = folders.iter().filter(is_new).collect();
    let ended = program.and_then(run_child);
    for folder in created {
        // Removes it only if it is empty.
        let _ = std::fs::remove_dir(folder);
    }
    let ended = ended.map_err(|error| {
        let why = format!("the process of this command cannot be started: {error}");
        Failure::usage(why, "start the program by its full path")
    });
    let failure = match ended {
        Ok(status) => match (status.code(), status.signal().and_then(|number| Signal::try_from(number).ok())) {
            (Some(code), _) => return ExitCode::from(u8::try_from(code).unwrap_or(Exit::Sandbox as u8)),
            // The user or the system ended it on purpose.
            (None, Some(signal @ (Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGPIPE))) => {
                return ExitCode::from(128 + signal as u8);
            }
            _ => signal_failure(status),
        },
        Err(failure) => failure,
    };
    failure.show(terminal);
    ExitCode::from(failure.exit as u8)
}

/// Prepares the command of a child with only the environment variables that it needs. `TUNEBOX_CACHE` names the folder
/// in which the parent put compiled components, if it compiled any, and `TMPDIR` the folder `access.scratch`, if there
/// is one. Adds `--offline` unless `is_offline`, since the command line then has it.
fn confined_command(program: &Program, access: &Access, is_offline: bool) -> Command {
    let mut command = program.alone();
    command.envs(environment::child_variables());
    command.envs(INHERITED_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    if let Some(cache) = access.code.as_ref().and_then(|code| code.folder.as_deref()).and_then(Path::parent) {
        command.env("TUNEBOX_CACHE", cache);
    }
    command.envs(access.scratch.as_ref().map(|folder| ("TMPDIR", folder.path())));
    command.args((!is_offline).then_some("--offline"));
    command
}

/// Starts the child, with the arguments of this process and `--supervised`, and returns its status once it has ended.
/// Passes on SIGINT, SIGTERM and SIGHUP, and stops with the child at Ctrl-Z. Ctrl-C in a terminal reaches both
/// processes, so the child gets it twice; see `stop_on_interrupt`.
fn run_child(mut program: Command) -> io::Result<ProcessStatus> {
    block_signals()?;
    let signals = awaited_signals();
    let mut child = program.arg(SUPERVISED_FLAG).args(std::env::args_os().skip(1)).spawn()?;
    loop {
        let signal = signals.wait()?;
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if signal == Signal::SIGCHLD {
            stop_like_child(&child);
        } else if let Some(signal) = rustix::process::Signal::from_named_raw(signal as i32) {
            // If the child has just ended, the next round of the loop returns.
            let _ = kill_process(Pid::from_child(&child), signal);
        }
    }
}

/// Stops this process if the child stopped itself at Ctrl-Z, as a line editor does: a confined child cannot stop its
/// parent.
fn stop_like_child(child: &Child) {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    // Fails if the child has just ended, which the next signal tells.
    let stopped = waitid(WaitId::Pid(Pid::from_child(child)), options).ok().flatten();
    if stopped.is_some_and(|status| status.stopping_signal() == Some(Signal::SIGTSTP as i32)) {
        let _ = kill_process(getpid(), rustix::process::Signal::STOP);
    }
}

/// The failure for a child that a signal ended.
fn signal_failure(status: ProcessStatus) -> Failure {
    let what = format!("the process of this command {}", child::describe_exit(status));
    let why =
        "it took more memory than it may, or a file of the model or of the data broke it; nothing else was harmed";
    let hint =
        "use the files that came with the model; `SECURITY.md` says where to report files that break the program";
    Failure::new(Explanation::new("process", what).with_why(why).with_hint(hint), Exit::Sandbox)
}

/// Prepares this process to be the child of a command: it receives the signals again that its parent blocked, writes no
/// core dumps, and may use no more memory than the machine has free; on Linux it gets no new privileges and ends when
/// its parent ends. Fails if the system refuses.
pub(crate) fn prepare_child() -> Result<(), Failure> {
    let prepare = || -> io::Result<()> {
        // Its parent blocked those that it waits for.
        SigSet::all().thread_unblock()?;
        child::prepare_as_child()?;
        #[cfg(target_os = "linux")]
        rustix::thread::set_no_new_privs(true)?;
        confinement::limit_to_free_memory()
    };
    prepare().map_err(|error| setup_failure(&error))
}

/// Denies this process everything but `access`, if that is given, and starts the watchdog, which ends the process with
/// exit code 2 if a file of a model takes far longer than its size explains. Fails if the system refuses. Comes before
/// any other thread starts.
pub(crate) fn confine_child(terminal: Terminal, access: Option<&Access>) -> Result<(), Failure> {
    let confine = || -> io::Result<()> {
        if let Some(Access { read, write, edits_lines, .. }) = access {
            confinement::confine_files(read, write)?;
            if *edits_lines { confinement::deny_calls_to_line_editor()? } else { confinement::deny_calls()? }
        }
        watchdog::start(move |explanation| {
            let failure = Failure::new(explanation, Exit::Usage);
            failure.show(terminal);
            std::process::exit(failure.exit as i32);
        })
    };
    confine().map_err(|error| setup_failure(&error))
}

/// The failure for a system that does not let this process be set up.
fn setup_failure(error: &io::Error) -> Failure {
    Failure::usage(format!("the process of this command cannot be set up: {error}"), "start the command again")
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
