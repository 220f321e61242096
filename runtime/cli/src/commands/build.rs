//! `tunebox build`: a component from a method folder, or from the module that another compiler made.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tunebox_package::Reference;
use tunebox_package::build::Options;
use tunebox_sandbox::{Limits, interface_of};

use super::building::{RUNS_SOURCE, built, warn, warn_of_compiler};
use super::{Ending, Outcome};
use crate::arguments::Global;
use crate::terminal::Terminal;
use tunebox_foundation::format::{bytes, duration};

#[derive(Debug, Args)]
#[command(after_long_help = RUNS_SOURCE)]
pub(crate) struct Build {
    /// The method's folder; or a core module, made by another compiler from the contract, to wrap
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// The file to write; `NAME.wasm` in the folder unless given
    #[arg(long)]
    out: Option<PathBuf>,
    /// Keep the names and lines of a method in Rust, so that faults and profiles show them; larger, not for publishing
    #[arg(long)]
    debug: bool,
}

impl Build {
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> Outcome {
        let start = Instant::now();
        let elsewhere = self.out.is_some();
        let options = Options { output: self.out, debug: self.debug, offline: global.offline, ..Options::default() };
        let built = built(terminal, &self.folder, &options)?;
        warn_of_compiler(terminal, &built.warnings);
        let imports = tunebox_sandbox::imports(&built.bytes)?;
        terminal.say(
            "Built",
            format!("{}, {}, in {}", built.path.display(), bytes(built.size), duration(start.elapsed().as_secs_f64())),
        );
        let names: Vec<&str> = imports.iter().map(|import| interface_of(import).unwrap_or(import)).collect();
        terminal.say("Imports", format!("{}  (nothing else: no files, no network, no clock)", names.join(", ")));
        warn(terminal, &self.folder, &built);
        terminal.next(training(&self.folder, elsewhere, &built.path, built.size));
        if terminal.json {
            terminal.object(json!({ "event": "built", "path": built.path, "bytes": built.size, "imports": imports, "name": built.manifest.name }));
        }
        Ok(Ending::Done)
    }
}

/// What trains with what was built: its folder, or the component where no folder has it in its place.
pub(super) fn training(folder: &Path, elsewhere: bool, component: &Path, size: u64) -> String {
    let method = if elsewhere || folder.is_file() { component } else { folder };
    training_with(Reference::written(method), size)
}

/// What trains with a component of this size, with the limits that it has to raise: one with an interpreter in it is
/// larger than most, and takes longer to compile.
pub(super) fn training_with(method: impl Display, size: u64) -> String {
    let command = format!("tunebox train --sample --method {method}");
    let usual = Limits::default();
    if size <= usual.component_bytes as u64 {
        return command;
    }
    let (bytes, seconds) = (size.next_power_of_two(), Limits::INTERPRETER_SECONDS);
    format!("{command} --set limits.component-bytes={bytes} --set limits.compile-seconds={seconds}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_component_is_trained_with_the_limits_that_it_needs() {
        assert_eq!(training_with("calm", 90 << 10), "tunebox train --sample --method calm");
        let raised = training_with("pete", 18 << 20);
        assert!(raised.contains("--set limits.component-bytes=33554432 --set limits.compile-seconds=120"), "{raised}");
    }

    #[test]
    fn what_is_trained_with_is_what_was_built() {
        let place = tempfile::tempdir().unwrap();
        let (folder, component) = (place.path(), place.path().join("out/calm.wasm"));
        let method = |folder: &Path, elsewhere: bool| {
            let command = training(folder, elsewhere, &component, 90 << 10);
            command.strip_prefix("tunebox train --sample --method ").unwrap().to_owned()
        };
        assert_eq!(method(folder, false), folder.display().to_string());
        assert_eq!(method(folder, true), component.display().to_string());
        // A folder that is called like a built-in method, which its name alone would mean.
        assert_eq!(method(Path::new("lora"), false), "./lora");
    }
}
