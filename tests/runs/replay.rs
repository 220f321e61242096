//! Running a finished run again: it is the same to the bit, and what it did not make is found.

use std::sync::atomic::AtomicBool;

use tunebox_sandbox::Compiling;
use tunebox_training::{Comparison, RunSettings, plan, run, verify};

use super::{ADAPTER, HARD, whole};
use crate::support::tiny_run::{TestObserver, Workspace};

/// What a look at a finished run, and running it again, find different.
fn replayed(place: &Workspace, run: &str) -> Vec<Comparison> {
    let verification = verify(&place.path("runs").join(run), &[], true, Compiling::default()).unwrap();
    let looked: Vec<_> = verification.artifact.iter().chain(&verification.inputs).cloned().collect();
    assert!(looked.len() > 8, "model, data, method, seed, steps and two files: {looked:?}");
    let replay = verification
        .replay(&std::env::temp_dir(), None, &mut TestObserver::new(), &AtomicBool::new(false))
        .unwrap()
        .unwrap();
    assert_eq!(replay.steps, 20);
    looked.into_iter().chain(replay.artifact).chain(replay.first_difference).filter(|one| !one.is_same()).collect()
}

#[test]
fn a_finished_run_is_replayed_to_the_same_bits_even_if_it_was_stopped_on_the_way() {
    let place = Workspace::new();
    whole(&place);
    assert_eq!(replayed(&place, "whole"), []);
    place.stop("stopped", &HARD, 7);
    let error = verify(&place.path("runs/stopped"), &[], true, Compiling::default()).err().unwrap();
    assert_eq!(error.to_string(), "the run is not finished");
    place.resume("stopped", &HARD).unwrap();
    assert_eq!(replayed(&place, "stopped"), []);
    let left: Vec<_> = std::fs::read_dir(place.path("runs")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the folder of the replay is gone: {left:?}");
}

#[test]
fn a_replay_finds_an_adapter_and_a_number_that_the_run_did_not_make() {
    let place = Workspace::new();
    whole(&place);
    let metrics = place.text("whole", "metrics.jsonl");
    let lock = place.text("whole", "run.lock");
    let digest = lock.lines().rfind(|line| line.starts_with("sha256")).unwrap();
    place.write("runs/whole/metrics.jsonl", &metrics.replacen("\"step\":5,", "\"step\":5,\"secret\":1,", 1));
    place.write("runs/whole/run.lock", &lock.replace(digest, &format!("sha256 = \"{}\"", "0".repeat(64))));
    let found: Vec<String> = replayed(&place, "whole").into_iter().map(|one| one.what).collect();
    assert_eq!(found, ["adapter_config.json", "adapter_config.json", "secret of step 5"]);
}

#[test]
fn the_written_run_file_gives_the_same_run_again() {
    let place = Workspace::new();
    place.train("one", &["train.steps=3"]).unwrap();
    let file = place.path("runs/one/run.toml");
    let settings = RunSettings::load(&file, &["run.name=two".into()]).unwrap();
    run(plan(settings).unwrap(), &mut TestObserver::new(), &AtomicBool::new(false)).unwrap();

    assert_eq!(place.bytes("one", ADAPTER), place.bytes("two", ADAPTER));
}
