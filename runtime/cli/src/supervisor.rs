//! Commands that read untrusted files run in a child process of this program, so that a file that crashes it or takes all
//! memory ends the child only, and the parent reports it.
//!
//! The child has the streams, the environment and the terminal of its parent. Nothing of the files is read in the parent.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus as ProcessStatus};

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, kill_process};
use tunebox_foundation::explain::{Exit, Explanation};
use tunebox_model::watchdog;
use tunebox_sandbox::child::{self, Program};
use tunebox_sandbox::confinement;

use crate::terminal::{Failure, Terminal};

/// The option that marks the child; `Global` declares it.
const MARK: &str = "--supervised";

/// Runs the command line of this process in a child, and returns the child's exit code; 3, with the reason shown, if the
/// child did not end by itself. Signals that end a process go on to the child.
pub(crate) fn supervise(terminal: Terminal) -> ExitCode {
    let ended = run_child().map_err(|error| {
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
            _ => explain_death(status),
        },
        Err(failure) => failure,
    };
    failure.show(terminal);
    ExitCode::from(failure.exit as u8)
}

/// Starts the child and waits until it ends. Passes on SIGINT, SIGTERM and SIGHUP. Ctrl-C in a
/// terminal reaches both, so the child gets it twice; see `stop_on_interrupt`.
fn run_child() -> io::Result<ProcessStatus> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD]);
    signals.thread_block()?;
    let mut child = Program::this()?.inheriting().arg(MARK).args(std::env::args_os().skip(1)).spawn()?;
    loop {
        let signal = signals.wait()?;
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let passed = match signal {
            Signal::SIGCHLD => None,
            Signal::SIGINT => Some(rustix::process::Signal::INT),
            Signal::SIGHUP => Some(rustix::process::Signal::HUP),
            _ => Some(rustix::process::Signal::TERM),
        };
        if let Some(signal) = passed {
            // If the child has just ended, the next round of the loop returns.
            let _ = kill_process(Pid::from_child(&child), signal);
        }
    }
}

/// The failure for a child that a signal ended.
fn explain_death(status: ProcessStatus) -> Failure {
    let what = format!("the process of this command {}", child::ending(status));
    let why =
        "it took more memory than it may, or a file of the model or of the data broke it; nothing else was harmed";
    let hint =
        "use the files that came with the model; `SECURITY.md` says where to report files that break the program";
    Failure::new(Explanation::new("process", what).with_why(why).with_hint(hint), Exit::Sandbox)
}

/// Prepares this process to be such a child: no core dumps, no new privileges, an end with its parent, no more
/// memory than the machine has free, and a watchdog that ends it with exit code 2 if a file of a model takes far longer than its size explains. Fails if the
/// system refuses.
pub(crate) fn prepare_child(terminal: Terminal) -> Result<(), Failure> {
    settle(terminal).map_err(|error| {
        Failure::usage(format!("the process of this command cannot be set up: {error}"), "start the command again")
    })
}

/// Does the work of [`prepare_child`].
fn settle(terminal: Terminal) -> io::Result<()> {
    // Its parent blocked those that it waits for.
    SigSet::all().thread_unblock()?;
    child::settle()?;
    #[cfg(target_os = "linux")]
    rustix::thread::set_no_new_privs(true)?;
    confinement::limit_to_free_memory()?;
    watchdog::start(move |explanation| {
        let failure = Failure::new(explanation, Exit::Usage);
        failure.show(terminal);
        std::process::exit(failure.exit as i32);
    })
}
