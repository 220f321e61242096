//! How a worker ends: killed, aborted, without its parent, by a person's wish.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{succeed, train, worker, workspace, write_hostile};
use crate::support::processes::{processor_time, send, wait_for, wait_until_gone, watch_for};
use crate::support::workspace::{Workspace, errors};

/// Steps enough that a busy machine, too, does something to a run before it ends.
const LONG: [&str; 2] = ["--set", "train.steps=96"];

/// Trains as `name` and kills the worker `delay` after `seen` is true. `None` if the moment was missed, as on a busy machine,
/// which may not look for longer than a write takes: the run has ended or written `end` lines of
/// metrics by then.
fn kill_when(
    place: &Workspace,
    (name, more): (&str, &[&str]),
    seen: impl Fn() -> bool,
    delay: Duration,
    end: usize,
) -> Option<String> {
    let mut child = train(place, name, more).spawn().unwrap();
    let process = worker(&mut child);
    watch_for(&mut child, "the moment to kill it", || seen().then_some(()))?;
    std::thread::sleep(delay);
    // Fails if the worker has ended.
    let _ = kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), Signal::KILL);
    let output = child.wait_with_output().unwrap();
    if output.status.success() || place.steps(name) >= end {
        return None;
    }
    let text = errors(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("error[worker]: the worker of `lora` was killed (signal 9, SIGKILL) in step "), "{text}");
    Some(text)
}

#[test]
fn a_worker_that_is_killed_in_a_step_or_in_a_checkpoint_leaves_a_run_that_resumes_exactly() {
    let place = workspace();
    succeed(&place, "whole", &[]);
    let (mut torn, mut caught) = (0, 0);
    for number in 0..20 {
        let name = format!("killed-{number}");
        let partial = place.path(&format!("runs/{name}/steps/.000008.partial"));
        let seen = || if caught == 0 { place.steps(&name) >= 6 } else { partial.exists() };
        // Several moments of one write.
        let delay = Duration::from_micros(700 * caught);
        let Some(text) = kill_when(&place, (&name, &[]), seen, delay, 12) else { continue };
        caught += 1;
        torn += usize::from(partial.exists());
        assert!(text.contains("kept: step 4, ") || text.contains("kept: step 8, "), "{text}");
        let hint = format!("tunebox train runs/{name}/run.toml --resume");
        assert!(text.contains(&hint), "{text}");
        let report = std::fs::read_to_string(place.path(&format!("runs/{name}/report.html"))).unwrap();
        assert!(report.contains("The run failed.") && report.contains("SIGKILL"), "{report}");
        assert!(!report.contains("http-equiv=\"refresh\""), "a browser waits for a run that ended");
        // The very command of the hint.
        let resumed = place.tunebox(&["train", &format!("runs/{name}/run.toml"), "--resume"]).output().unwrap();
        assert!(resumed.status.success(), "{}", errors(&resumed));
        assert!(place.adapter(&name) == place.adapter("whole"), "{name}: the adapters differ");
        assert!(!partial.exists(), "what was half written is still there");
        if caught == 4 {
            break;
        }
    }
    assert!(caught == 4 && torn > 0, "of {caught} kills {torn} hit a checkpoint while it was written");
}

#[test]
fn a_worker_that_is_killed_while_it_writes_the_best_checkpoint_leaves_a_run_that_ships_the_same_bits() {
    let place = workspace();
    // The validations are at other steps than the checkpoints, and each is the best so far.
    let best =
        ["--set", "data.validation=answers.jsonl", "--set", "train.validate-every=3", "--set", "train.save-every=8"];
    succeed(&place, "whole", &best);
    // Up to step 11: that many lines of metrics, and 4 of validations.
    let kill = |number: usize| {
        let name = format!("killed-{number}");
        let partial = place.path(&format!("runs/{name}/steps/.000009.partial"));
        let text = kill_when(&place, (&name, &best), || partial.exists(), Duration::ZERO, 17)?;
        Some((name, partial, text))
    };
    let (name, partial, text) = (0..20).find_map(kill).expect("no write of a best checkpoint was seen");
    assert!(text.contains("kept: step 8, ") || text.contains("kept: step 9, "), "{text}");
    let resumed = place.tunebox(&["train", &format!("runs/{name}/run.toml"), "--resume"]).output().unwrap();
    assert!(resumed.status.success(), "{}", errors(&resumed));
    assert!(place.adapter(&name) == place.adapter("whole"), "the adapters differ");
    assert!(!partial.exists(), "what was half written is still there");
}

#[test]
fn a_worker_that_aborts_is_told_and_its_parent_ends_well() {
    let place = workspace();
    let mut child =
        train(&place, "aborted", &["--set", "train.steps=960", "--set", "train.save-every=960"]).spawn().unwrap();
    let process = worker(&mut child);
    wait_for(&mut child, "a step", || (place.steps("aborted") >= 1).then_some(()));
    send(process, Signal::ABORT);
    let output = child.wait_with_output().unwrap();
    let text = errors(&output);

    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("error[worker]: the worker of `lora` aborted (signal 6, SIGABRT) in step "), "{text}");
    assert!(text.contains("kept: nothing had been saved yet"), "{text}");
}

#[test]
fn a_worker_ends_with_its_parent_and_leaves_a_whole_checkpoint() {
    let place = workspace();
    succeed(&place, "whole", &LONG);
    let mut child = train(&place, "orphaned", &LONG).spawn().unwrap();
    let process = worker(&mut child);
    wait_for(&mut child, "a checkpoint", || (place.steps("orphaned") >= 6).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(process);
    assert!(place.steps("orphaned") < 96, "it had ended already");
    succeed(&place, "orphaned", &[LONG[0], LONG[1], "--resume"]);
    assert!(place.adapter("orphaned") == place.adapter("whole"), "the adapters differ");
}

#[test]
fn a_person_stops_a_worker_as_any_run_and_the_second_time_at_once() {
    let place = workspace();
    succeed(&place, "whole", &LONG);
    let mut child = train(&place, "stopped", &LONG).spawn().unwrap();
    wait_for(&mut child, "a step", || (place.steps("stopped") >= 2).then_some(()));
    send(child.id(), Signal::INT);
    let output = child.wait_with_output().unwrap();
    let text = errors(&output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("Stopped at step ") && text.contains(", saved runs/stopped/steps/0000"), "{text}");
    assert!(text.contains("tunebox chat runs/stopped\n"), "{text}");
    succeed(&place, "stopped", &[LONG[0], LONG[1], "--resume"]);
    assert!(place.adapter("stopped") == place.adapter("whole"), "the adapters differ");

    // A method that computes for ever hears no wish to stop.
    write_hostile(&place, "loops", include_str!("../cli/loops.wat"));
    let words = ["train", "--model", "model", "--data", "answers.jsonl", "--method", "loops.wasm", "--name", "deaf"];
    let mut child = place.tunebox(&words).spawn().unwrap();
    let process = worker(&mut child);
    let before =
        wait_for(&mut child, "its third step", || (place.steps("deaf") >= 3).then(|| processor_time(process))?);
    // Nothing but the endless fourth step takes half a second of a processor.
    wait_for(&mut child, "its fourth step", || (processor_time(process)? >= before + 50).then_some(()));
    send(child.id(), Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the first wish ends a step that is not done");
    send(child.id(), Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    wait_until_gone(process);
}
