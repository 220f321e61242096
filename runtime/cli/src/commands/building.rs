//! What `build`, `test`, `dev` and `pack` have in common: they compile the source of a folder on this machine.

use std::path::Path;

use tunebox_package::Built;
use tunebox_package::build::{Options, build_watched, expect_method, known};

use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;
use crate::terminal::progress::Crates;

/// What the long help of each of them ends with.
pub(super) const RUNS_SOURCE: &str = "Building runs code of the folder on this machine, outside of the sandbox: build \
    scripts, procedural macros and tests in Rust; the modules, and the tools in `.venv`, in Python. Build what you \
    would run. A package needs no build: its component runs in the sandbox alone.";

/// Builds a folder or a module, and says so.
pub(super) fn built(terminal: Terminal, folder: &Path, options: &Options) -> Result<Built, Failure> {
    if !folder.is_file() {
        note_source(terminal, folder)?;
    }
    terminal.say("Building", folder.display().to_string());
    let mut crates = Crates::new(terminal);
    Ok(build_watched(folder, options, &mut |name| crates.compiled(name))?)
}

/// Says what building means, once for a folder that was not begun here. Errors: it holds no method.
pub(super) fn note_source(terminal: Terminal, folder: &Path) -> Result<(), Failure> {
    expect_method(folder)?;
    // Where nothing can be noted, it is said each time.
    if known::note(folder).unwrap_or(true) {
        terminal.say("Note", "building runs code of this folder on this machine, outside of the sandbox");
    }
    Ok(())
}
