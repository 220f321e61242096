//! `tunebox build`: a component from a method folder, or from the module that another compiler made.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tunebox_package::build::{Options, build};
use tunebox_sandbox::Limits;

use super::{Ending, Outcome};
use crate::terminal::{Terminal, bytes, duration};

#[derive(Debug, Args)]
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
    pub(crate) fn run(self, terminal: Terminal) -> Outcome {
        terminal.say("Building", self.folder.display().to_string());
        let start = Instant::now();
        let built = build(&self.folder, &Options { output: self.out, debug: self.debug, ..Options::default() })?;
        let imports = tunebox_sandbox::imports(&built.bytes)?;
        terminal.say(
            "Built",
            format!("{}, {}, in {}", built.path.display(), bytes(built.size), duration(start.elapsed().as_secs_f64())),
        );
        let names: Vec<&str> =
            imports.iter().filter_map(|import| import.rsplit('/').next()?.split('@').next()).collect();
        terminal.say("Imports", format!("{}  (nothing else: no files, no network, no clock)", names.join(", ")));
        let method = if self.folder.is_file() { &built.path } else { &self.folder };
        terminal.next(format!("tunebox train --sample --method {}{}", method.display(), needs(built.size)));
        if terminal.json {
            terminal.object(json!({ "event": "built", "path": built.path, "bytes": built.size, "imports": imports, "name": built.manifest.name }));
        }
        Ok(Ending::Done)
    }
}

/// The limits that a run of a component has to raise, as arguments: one with an interpreter in it is larger than most,
/// and takes longer to compile.
fn needs(size: u64) -> String {
    let usual = Limits::default();
    if size <= usual.component_bytes as u64 {
        return String::new();
    }
    let (bytes, seconds) = (size.next_power_of_two(), 15.0 * usual.compile_seconds);
    format!(" --set limits.component-bytes={bytes} --set limits.compile-seconds={seconds}")
}
