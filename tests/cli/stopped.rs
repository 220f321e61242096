//! Runs that are stopped from outside, and go on.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::{train, workspace};

/// Waits until a run has written the metrics of so many steps.
fn await_step(place: &Path, name: &str, step: usize, child: &mut Child) {
    let metrics = place.join("runs").join(name).join("metrics.jsonl");
    let begun = Instant::now();
    while std::fs::read_to_string(&metrics).map_or(0, |text| text.lines().count()) < step {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before step {step}");
        assert!(begun.elapsed() < Duration::from_secs(120), "step {step} does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends a signal by the shell's own `kill`, which needs no unsafe code.
fn signal(child: &Child, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
    assert!(status.success());
}

fn adapter(place: &Path, name: &str) -> Vec<u8> {
    std::fs::read(place.join("runs").join(name).join("adapter_model.safetensors")).unwrap()
}

#[test]
fn a_run_that_is_interrupted_or_killed_and_resumed_ends_in_the_bits_of_one_that_was_not() {
    let place = workspace();
    let place = place.path();
    assert!(train(place, "whole", false).status().unwrap().success());
    for (name, how, code) in [("interrupted", "INT", Some(130)), ("killed", "KILL", None)] {
        let mut child = train(place, name, false).spawn().unwrap();
        await_step(place, name, 8, &mut child);
        signal(&child, how);
        assert_eq!(child.wait().unwrap().code(), code, "{name}");
        assert!(!place.join("runs").join(name).join("adapter_model.safetensors").exists(), "{name} was not stopped");
        assert!(train(place, name, true).status().unwrap().success(), "{name} does not resume");
        assert!(adapter(place, name) == adapter(place, "whole"), "{name}: the adapters differ");
    }
}
