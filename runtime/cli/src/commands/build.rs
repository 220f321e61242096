//! `tunebox build`: builds a component from a method folder, or wraps a core module of another compiler.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tunebox_package::build::Options;
use tunebox_sandbox::interface_of;

use crate::arguments::Global;
use crate::package::build::{BUILD_WARNING, build_method, show_compiler_warnings, show_source_warnings};
use crate::package::describe::train_built_command;
use crate::terminal::{CommandResult, ExitStatus, Terminal};
use tunebox_foundation::format::{bytes, duration};

#[derive(Debug, Args)]
#[command(after_long_help = BUILD_WARNING)]
pub(crate) struct Build {
    /// Method folder; or a WebAssembly module that another compiler made for the interfaces in `wit/`, to wrap
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Component file to write [default: NAME.wasm in the folder]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Keep function names and lines of a method in Rust for errors and profiles; the component is larger
    #[arg(long)]
    debug: bool,
}

impl Build {
    /// Builds the component, shows its imports and warnings, and suggests the command that trains with it, or that
    /// inspects a verifier or environment. With `--json` emits a `built` event.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        let start = Instant::now();
        let is_elsewhere = self.out.is_some();
        let options = Options { output: self.out, debug: self.debug, offline: global.offline, ..Options::default() };
        let built = build_method(terminal, &self.folder, &options)?;
        show_compiler_warnings(terminal, &built.warnings);
        let (imports, size) = (tunebox_sandbox::imports(&built.bytes)?, built.bytes.len() as u64);
        let time = duration(start.elapsed().as_secs_f64());
        terminal.status("Built", format!("{}, {}, in {time}", built.path.display(), bytes(size)));
        let names: Vec<&str> = imports.iter().map(|import| interface_of(import).unwrap_or(import)).collect();
        terminal.status("Imports", format!("{}  (nothing else: no files, no network, no clock)", names.join(", ")));
        show_source_warnings(terminal, &self.folder, &built);
        let next = train_built_command(&self.folder, is_elsewhere, &built.path, size, &imports);
        let inspect = || format!("tunebox inspect {}", built.path.display());
        terminal.suggest(if built.manifest.world.is_method() { next } else { inspect() });
        terminal.event(json!({ "event": "built", "path": built.path, "bytes": size, "imports": imports, "name": built.manifest.name }));
        Ok(ExitStatus::Success)
    }
}
