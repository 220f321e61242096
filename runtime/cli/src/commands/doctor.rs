//! `tunebox doctor`: is this machine ready.

use clap::Args;
use serde::Serialize;
use serde_json::json;
use tunebox_compute::device::{self, DeviceInfo};
use tunebox_foundation::explain::{Exit, Explain as _};
use tunebox_package::build::python::find_on_path;
use tunebox_package::{builtin, toolchain};
use tunebox_training::plan::available;

use super::{Ending, Outcome};
use crate::terminal::Terminal;
use tunebox_foundation::format::bytes;

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Install what is missing: the WebAssembly target of Rust, for building methods
    #[arg(long)]
    fix: bool,
}

impl Doctor {
    pub(crate) fn run(self, terminal: Terminal) -> Outcome {
        if self.fix {
            let installed = toolchain::install()?;
            for command in &installed.commands {
                terminal.say("Ran", command);
            }
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = available().map_or_else(|| "unknown".into(), bytes);
        terminal.say("Machine", format!("{threads} cores, {memory} of memory free"));
        let devices = devices();
        for Found { name, state, .. } in &devices {
            terminal.say("Device", format!("{name}: {state}"));
        }
        let methods: Vec<&str> = builtin::list().iter().map(|method| method.name).collect();
        terminal.say("Methods", methods.join(", "));
        let found = toolchain::find().is_ok();
        for line in toolchain::report() {
            terminal.say("Guests", line);
        }
        terminal.say("Guests", python());
        if terminal.json {
            terminal.object(json!({ "event": "doctor", "cores": threads, "devices": devices, "methods": methods, "guest_toolchain": found }));
        }
        if found {
            terminal.next("tunebox train --sample");
            return Ok(Ending::Done);
        }
        terminal.next("tunebox doctor --fix    (only needed to build methods; training works without)");
        Ok(Ending::Exit(Exit::No))
    }
}

/// What makes components of methods in Python here.
fn python() -> String {
    match find_on_path() {
        Ok(tools) => tools.release,
        Err(error) => format!("{error}: only needed to build methods in Python"),
    }
}

/// A device that a run can name.
#[derive(Serialize)]
struct Found {
    name: &'static str,
    available: bool,
    /// What it is, or why it is not there.
    state: String,
}

fn devices() -> Vec<Found> {
    ["cpu", "cuda", "metal"].into_iter().map(found).collect()
}

fn found(name: &'static str) -> Found {
    let found = device::parse(name).and_then(|found| Ok((device::describe(&found), device::info(&found)?)));
    Found { name, available: found.is_ok(), state: state(found) }
}

fn state(found: Result<(String, Option<DeviceInfo>), tunebox_compute::Error>) -> String {
    match found {
        Ok((name, None)) => name,
        Ok((name, Some(about))) => {
            let (free, total) = (bytes(about.free), bytes(about.total));
            let DeviceInfo { name: maker, architecture, software, .. } = about;
            format!("{name}, {maker} ({architecture}), {free} of {total} free, {software}")
        }
        Err(error) => match error.why() {
            Some(why) => format!("not available: {why}"),
            None => error.to_string(),
        },
    }
}
