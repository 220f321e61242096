//! The program `tunebox`: its commands, arguments and output.
//!
//! Each command is a few calls of the libraries; only this crate writes to the terminal.

mod arguments;
mod command_line;
mod commands;
mod evaluation;
mod generation;
mod model;
mod package;
mod processes;
mod run;
mod steering;
mod supervisor;
mod terminal;

use std::process::ExitCode;

use commands::{Command, CommandLine};
use terminal::{CommandResult, ExitStatus};
use tunebox_foundation::files::FileError;

fn main() -> ExitCode {
    let CommandLine { global, command } = command_line::parse();
    // Not in the process that compiles an untrusted component: its memory is limited, and retained pages count.
    if !matches!(command, Command::CompileComponent) {
        tunebox_compute::allocator::keep_freed_pages();
    }
    let terminal = global.terminal;
    if command.is_supervised() && !global.supervised {
        return supervisor::supervise(terminal);
    }
    let run = || -> CommandResult {
        if global.supervised {
            supervisor::prepare_child(terminal)?;
        }
        if let Some(folder) = &global.folder {
            std::env::set_current_dir(folder).map_err(FileError::at("used", folder))?;
        }
        command.run(terminal, &global)
    };
    match run() {
        Ok(ExitStatus::Success) => ExitCode::SUCCESS,
        Ok(ExitStatus::Code(exit)) => ExitCode::from(exit as u8),
        Err(failure) => {
            failure.show(terminal);
            ExitCode::from(failure.exit as u8)
        }
    }
}
