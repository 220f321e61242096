//! The program `tunebox`: its commands, arguments and output.
//!
//! Each command is a few calls of the libraries; only this crate writes to the terminal.

mod access;
mod arguments;
mod browser;
mod command_line;
mod commands;
mod evaluation;
mod generation;
mod key_flags;
mod model;
mod package;
mod processes;
mod run;
mod run_file;
mod steering;
mod supervisor;
mod terminal;
mod tips;

use std::process::ExitCode;

use arguments::Global;
use commands::{Command, CommandLine};
use terminal::{ExitStatus, Failure, Terminal};
use tunebox_foundation::files::FileError;

/// Parses the command line and runs its command. Shows a failure and returns its exit code. The allocator keeps freed
/// pages, except in the process that compiles a component.
fn main() -> ExitCode {
    let CommandLine { global, command } = command_line::parse();
    // Not in the process that compiles an untrusted component: its memory is limited, and retained pages count.
    if !matches!(command, Command::CompileComponent) {
        tunebox_compute::allocator::keep_freed_pages();
    }
    let terminal = global.terminal;
    match run_command(command, terminal, &global) {
        Ok(code) => code,
        Err(failure) => {
            failure.show(terminal);
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// Runs a command and returns its exit code: in a child process if the command reads untrusted files
/// ([`Command::is_supervised`]), else in this process. First changes to the folder of `-C`. With `--supervised` this
/// process is that child: it prepares the command, confines itself, and runs the command.
fn run_command(command: Command, terminal: Terminal, global: &Global) -> Result<ExitCode, Failure> {
    // A child is in that folder already.
    if let Some(folder) = global.folder.as_ref().filter(|_| !global.supervised) {
        std::env::set_current_dir(folder).map_err(FileError::at("used", folder))?;
    }
    if global.supervised {
        supervisor::prepare_child()?;
        let access = command.prepare(terminal, global)?;
        supervisor::confine_child(terminal, access.as_ref())?;
    } else if command.is_supervised() {
        let access = command.prepare(terminal, global)?;
        let code = supervisor::supervise(terminal, access.as_ref(), global.offline);
        if code == ExitCode::SUCCESS {
            command.publish(terminal)?;
        }
        return Ok(code);
    }
    Ok(match command.run(terminal, global)? {
        ExitStatus::Success => ExitCode::SUCCESS,
        ExitStatus::Code(exit) => ExitCode::from(exit as u8),
    })
}
