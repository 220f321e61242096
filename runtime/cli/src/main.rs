//! The binary `tunebox`: what a person types and sees.
//!
//! Everything it does is one call into a library; this crate alone knows the terminal.

mod arguments;
mod commands;
mod terminal;

use std::process::ExitCode;

use arguments::Line;
use commands::{Command, Ending};
use terminal::Terminal;
use terminal::diagnostic::Failure;

fn main() -> ExitCode {
    let line = Line::read();
    // Not where a stranger's bytes are compiled: that process has little memory, and kept pages count.
    if !matches!(line.command, Command::CompileComponent) {
        tunebox_compute::allocator::keep_freed_pages();
    }
    let terminal = Terminal { json: line.global.json, quiet: line.global.quiet, verbose: line.global.verbose };
    if let Some(folder) = &line.global.folder
        && let Err(error) = std::env::set_current_dir(folder)
    {
        return fail(terminal, &Failure::file(folder, &error));
    }
    match line.command.run(terminal, &line.global) {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Exit(exit)) => ExitCode::from(exit as u8),
        Err(failure) => fail(terminal, &failure),
    }
}

/// Says what went wrong, in the form that was asked for.
fn fail(terminal: Terminal, failure: &Failure) -> ExitCode {
    if terminal.json {
        terminal.data(failure.json().to_string());
    } else {
        use std::io::Write;
        let _ = anstream::stderr().write_all(failure.text(terminal.verbose).as_bytes());
    }
    ExitCode::from(failure.exit as u8)
}
