//! `tunebox build`: a component from a method folder.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tunebox_package::build::{Options, build};

use super::{Ending, Outcome};
use crate::terminal::{Terminal, bytes, duration};

#[derive(Debug, Args)]
pub(crate) struct Build {
    /// The method's folder
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// The file to write; `NAME.wasm` in the folder unless given
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Build {
    pub(crate) fn run(self, terminal: Terminal) -> Outcome {
        terminal.say("Building", self.folder.display().to_string());
        let start = Instant::now();
        let built = build(&self.folder, &Options { output: self.out, ..Options::default() })?;
        let imports = tunebox_sandbox::imports(&built.bytes)?;
        terminal.say(
            "Built",
            format!("{}, {}, in {}", built.path.display(), bytes(built.size), duration(start.elapsed().as_secs_f64())),
        );
        let names: Vec<&str> =
            imports.iter().filter_map(|import| import.rsplit('/').next()?.split('@').next()).collect();
        terminal.say("Imports", format!("{}  (nothing else: no files, no network, no clock)", names.join(", ")));
        terminal.next(format!("tunebox train --sample --method {}", self.folder.display()));
        if terminal.json {
            terminal.object(json!({ "event": "built", "path": built.path, "bytes": built.size, "imports": imports, "name": built.manifest.name }));
        }
        Ok(Ending::Done)
    }
}
