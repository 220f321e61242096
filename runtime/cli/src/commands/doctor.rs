//! `tunebox doctor`: checks the devices and build tools of this machine.

use clap::Args;
use serde::Serialize;
use serde_json::json;
use tunebox_compute::device::{self, DeviceInfo};
use tunebox_compute::fused::{bf16_instruction, bf16_is_faster, instruction_sets, vector_lanes};
use tunebox_compute::precision::SMALL_MODEL;
use tunebox_foundation::explain::{Exit, Explain as _};
use tunebox_package::build::python::find_tools;
use tunebox_package::{builtin, toolchain};
use tunebox_sandbox::confinement::{CONFINED, Ring};
use tunebox_training::plan::available;

use crate::terminal::{CommandResult, ExitStatus, Terminal};
use tunebox_foundation::format::bytes;

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Install the WebAssembly target of Rust if it is missing; it is needed to build methods
    #[arg(long)]
    fix: bool,
}

impl Doctor {
    /// Shows cores, memory, devices, what the system denies to a worker and to the child of a command, methods and
    /// build tools; with `--fix` installs the WebAssembly target first. Exit code 1 if methods cannot be built.
    pub(crate) fn run(self, terminal: Terminal) -> CommandResult {
        if self.fix {
            for command in toolchain::install()? {
                terminal.status("Ran", command);
            }
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = available().map_or_else(|| "unknown".into(), bytes);
        terminal.status("Machine", format!("{threads} cores, {memory} of memory free"));
        let (processor, lanes) = (instruction_sets(), vector_lanes());
        terminal.status("Machine", format!("CPU {}", describe_vectors(lanes, &processor)));
        if let Some(warning) = vector_warning(lanes) {
            terminal.warn(warning);
        }
        let bf16 = bf16_instruction();
        terminal.status("Machine", format!("CPU {} (`train.compute` and `--compute` change it)", number_format(bf16)));
        let devices = ["cpu", "cuda", "metal"].map(probe_device);
        for DeviceState { name, state, .. } in &devices {
            terminal.status("Device", format!("{name}: {state}"));
        }
        let rings = Ring::list();
        for process in CONFINED {
            for Ring { name, is_active } in rings {
                let state = if is_active { "confined" } else { "not confined by this system" };
                terminal.status("Rings", format!("{process}: {name} {state}"));
            }
        }
        let methods: Vec<&str> = builtin::list().iter().map(|method| method.name).collect();
        terminal.status("Methods", methods.join(", "));
        let found = toolchain::find().is_ok();
        for line in toolchain::report() {
            terminal.status("Guests", line);
        }
        let python = find_tools(None)
            .map_or_else(|error| format!("{error}; needed only to build methods in Python"), |tools| tools.release);
        terminal.status("Guests", python);
        terminal.event(json!({ "event": "doctor", "cores": threads, "processor": processor, "vector_lanes": lanes, "bf16_products": bf16, "bf16_is_faster": bf16_is_faster(), "devices": devices, "confined": CONFINED, "rings": rings, "methods": methods, "guest_toolchain": found }));
        if found {
            terminal.suggest("tunebox train --sample");
            return Ok(ExitStatus::Success);
        }
        terminal.suggest("tunebox doctor --fix    (needed only to build methods)");
        Ok(ExitStatus::Code(Exit::No))
    }
}

/// A kind of device and its state.
#[derive(Serialize)]
struct DeviceState {
    name: &'static str,
    available: bool,
    /// The device and its memory, or why it is not available.
    state: String,
}

/// Opens the device `cpu`, `cuda` or `metal` and describes it with its memory, or says why it is not available.
fn probe_device(name: &'static str) -> DeviceState {
    let found = device::parse(name).and_then(|found| Ok((device::describe(&found), device::info(&found)?)));
    let available = found.is_ok();
    let state = match found {
        Ok((device, None)) => device,
        Ok((device, Some(DeviceInfo { name, architecture, software, free, total, .. }))) => {
            format!("{device}, {name} ({architecture}), {} of {} free, {software}", bytes(free), bytes(total))
        }
        Err(error) => error.why().map_or_else(|| error.to_string(), |why| format!("not available: {why}")),
    };
    DeviceState { name, available, state }
}

/// Describes the number format in which the CPU computes by default. `bf16` is the name of the instruction by which it
/// multiplies bf16, or `None` if it has none.
fn number_format(bf16: Option<&str>) -> String {
    let millions = SMALL_MODEL / 1_000_000;
    match bf16 {
        Some(name) if bf16_is_faster() => {
            format!("computes models of {millions} million weights and more in bf16, by {name}")
        }
        Some(name) => format!("computes in f32; it multiplies bf16 by {name}, but slower"),
        None => "computes in f32; it has no instruction for products of bf16".into(),
    }
}

/// Describes the vectors with which the program computes: how many f32 numbers they hold, and the instruction sets of
/// the CPU that it uses.
pub(super) fn describe_vectors(lanes: usize, processor: &str) -> String {
    let sets = if processor.is_empty() { "none of the instruction sets that it knows" } else { processor };
    if lanes == 1 {
        format!("computes without vectors ({sets})")
    } else {
        format!("computes in vectors of {lanes} f32 numbers ({sets})")
    }
}

/// Returns a warning if the program uses no vectors on this CPU.
fn vector_warning(lanes: usize) -> Option<String> {
    let needs = if cfg!(target_arch = "x86_64") { "AVX2 and FMA" } else { "NEON" };
    (lanes == 1).then(|| {
        format!("this CPU, or the virtual machine, does not offer {needs}; everything works, but several times slower")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_without_vectors_gets_a_warning_and_others_do_not() {
        assert_eq!(vector_warning(8), None);
        assert!(vector_warning(1).is_some_and(|warning| warning.contains("slower")));
        assert_eq!(describe_vectors(8, "AVX2, FMA"), "computes in vectors of 8 f32 numbers (AVX2, FMA)");
        let scalar = "computes without vectors (none of the instruction sets that it knows)";
        assert_eq!(describe_vectors(1, ""), scalar);
    }
}
