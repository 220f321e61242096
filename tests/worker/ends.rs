//! How a worker ends: killed, aborted, without its parent, by a person's wish.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{ROOT, Workspace, output_text, status, wait_for, worker};

fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), signal).unwrap();
}

fn is_gone(process: u32) -> bool {
    status(process).is_none_or(|(state, _)| state == 'Z')
}

#[test]
fn a_worker_that_is_killed_in_a_step_or_in_a_checkpoint_leaves_a_run_that_resumes_exactly() {
    let place = Workspace::new();
    place.succeed("whole", &[]);
    let mut torn = 0;
    for (number, moment) in ["step", "write", "write", "write"].into_iter().enumerate() {
        let name = format!("killed-{number}");
        let mut child = place.train(&name, &[]).spawn().unwrap();
        let process = worker(&mut child);
        let partial = place.path(&format!("runs/{name}/steps/.000008.partial"));
        wait_for(&mut child, moment, || match moment {
            "step" => (place.steps(&name) >= 6).then_some(()),
            _ => partial.exists().then_some(()),
        });
        // Several moments of one write.
        std::thread::sleep(Duration::from_micros(700 * number as u64));
        send(process, Signal::KILL);
        let output = child.wait_with_output().unwrap();
        torn += usize::from(partial.exists());
        let text = output_text(&output);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("error[worker]: the worker of `lora` was killed (signal 9, SIGKILL) in step "), "{text}");
        assert!(text.contains("kept: step 4, ") || text.contains("kept: step 8, "), "{text}");
        let hint = format!("tunebox train runs/{name}/run.toml --resume");
        assert!(text.contains(&hint), "{text}");
        let report = std::fs::read_to_string(place.path(&format!("runs/{name}/report.html"))).unwrap();
        assert!(report.contains("The run failed.") && report.contains("SIGKILL"), "{report}");
        assert!(!report.contains("http-equiv=\"refresh\""), "a browser waits for a run that ended");
        // The very command of the hint.
        let resumed = place.tunebox(&["train", &format!("runs/{name}/run.toml"), "--resume"]).output().unwrap();
        assert!(resumed.status.success(), "{}", output_text(&resumed));
        assert!(place.adapter(&name) == place.adapter("whole"), "{name}: the adapters differ");
        assert!(!partial.exists(), "what was half written is still there");
    }
    assert!(torn > 0, "no kill hit a checkpoint while it was written");
}

#[test]
fn a_worker_that_is_killed_while_it_writes_the_best_checkpoint_leaves_a_run_that_ships_the_same_bits() {
    let place = Workspace::new();
    // The validations are at other steps than the checkpoints, and each is the best so far.
    let best =
        ["--set", "data.validation=answers.jsonl", "--set", "train.validate-every=3", "--set", "train.save-every=8"];
    place.succeed("whole", &best);
    let mut child = place.train("killed", &best).spawn().unwrap();
    let process = worker(&mut child);
    let partial = place.path("runs/killed/steps/.000009.partial");
    wait_for(&mut child, "the best checkpoint", || partial.exists().then_some(()));
    send(process, Signal::KILL);
    let text = output_text(&child.wait_with_output().unwrap());
    assert!(text.contains("kept: step 8, ") || text.contains("kept: step 9, "), "{text}");
    let resumed = place.tunebox(&["train", "runs/killed/run.toml", "--resume"]).output().unwrap();
    assert!(resumed.status.success(), "{}", output_text(&resumed));
    assert!(place.adapter("killed") == place.adapter("whole"), "the adapters differ");
    assert!(!partial.exists(), "what was half written is still there");
}

#[test]
fn a_worker_that_aborts_is_told_and_its_parent_ends_well() {
    let place = Workspace::new();
    let mut child = place.train("aborted", &[]).spawn().unwrap();
    let process = worker(&mut child);
    wait_for(&mut child, "a step", || (place.steps("aborted") >= 1).then_some(()));
    send(process, Signal::ABORT);
    let output = child.wait_with_output().unwrap();
    let text = output_text(&output);

    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("error[worker]: the worker of `lora` aborted (signal 6, SIGABRT) in step "), "{text}");
    assert!(text.contains("kept: nothing had been saved yet"), "{text}");
}

#[test]
fn a_worker_ends_with_its_parent_and_leaves_a_whole_checkpoint() {
    let place = Workspace::new();
    place.succeed("whole", &[]);
    let mut child = place.train("orphaned", &[]).spawn().unwrap();
    let process = worker(&mut child);
    wait_for(&mut child, "a checkpoint", || (place.steps("orphaned") >= 6).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    let begun = Instant::now();
    while !is_gone(process) {
        assert!(begun.elapsed() < Duration::from_secs(10), "the worker goes on without its parent");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(place.steps("orphaned") < 24, "it had ended already");
    place.succeed("orphaned", &["--resume"]);
    assert!(place.adapter("orphaned") == place.adapter("whole"), "the adapters differ");
}

#[test]
fn a_person_stops_a_worker_as_any_run_and_the_second_time_at_once() {
    let place = Workspace::new();
    place.succeed("whole", &[]);
    let mut child = place.train("stopped", &[]).spawn().unwrap();
    wait_for(&mut child, "a step", || (place.steps("stopped") >= 2).then_some(()));
    send(child.id(), Signal::INT);
    let output = child.wait_with_output().unwrap();
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("Stopped at step ") && text.contains(", saved runs/stopped/steps/0000"), "{text}");
    assert!(text.contains("tunebox chat runs/stopped\n"), "{text}");
    place.succeed("stopped", &["--resume"]);
    assert!(place.adapter("stopped") == place.adapter("whole"), "the adapters differ");

    // A method that computes for ever hears no wish to stop.
    let text = std::fs::read_to_string(Path::new(ROOT).join("tests/cli/loops.wat")).unwrap();
    place.hostile("loops", &text);
    let words = ["train", "--model", "model", "--data", "answers.jsonl", "--method", "loops.wasm", "--name", "deaf"];
    let mut child = place.tunebox(&words).spawn().unwrap();
    let process = worker(&mut child);
    wait_for(&mut child, "its fourth step", || (place.steps("deaf") >= 3).then_some(()));
    send(child.id(), Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the first wish ends a step that is not done");
    let begun = Instant::now();
    send(child.id(), Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    while !is_gone(process) {
        assert!(begun.elapsed() < Duration::from_secs(10), "the worker goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}
