//! A run's folder that comes from others: nothing in it is followed through a link, and its counts are checked.

use std::fs;
use std::os::unix::fs::symlink;

use tunebox_foundation::explain::{Exit, Explain};
use tunebox_sandbox::Compiling;
use tunebox_training::verify;

use crate::support::tiny_run::Workspace;

const STEPS: [&str; 2] = ["train.steps=4", "train.save-every=1"];

/// A run that was stopped after its second step, and so can be resumed.
fn stopped() -> Workspace {
    let place = Workspace::new();
    place.stop("run", &STEPS, 2);
    place
}

/// Resumes the run, which must be refused as a wrong file; the message.
fn refuse(place: &Workspace) -> String {
    let error = place.resume("run", &STEPS).unwrap_err();
    assert_eq!(error.exit(), Exit::Usage, "{error}");
    format!("{error}: {}", error.why().unwrap_or_default())
}

#[test]
fn checkpoints_behind_a_link_are_neither_resumed_nor_removed() {
    let place = stopped();
    let (steps, target) = (place.path("runs/run/steps"), place.path("target"));
    fs::rename(&steps, &target).unwrap();
    fs::create_dir(target.join(".git")).unwrap();
    for link in [&target, &place.path("nowhere")] {
        symlink(link, &steps).unwrap();
        assert!(refuse(&place).ends_with("steps` cannot be used: it is a link, and may lead anywhere"));
        assert!(verify(&place.path("runs/run"), &[], true, Compiling::default()).is_err());
        fs::remove_file(&steps).unwrap();
    }
    assert_eq!(fs::read_dir(&target).unwrap().count(), 3);
    // What is hidden among the checkpoints and was not written by a run stays too.
    fs::rename(&target, &steps).unwrap();
    place.resume("run", &STEPS).unwrap();
    assert!(steps.join(".git").is_dir());
}

#[test]
fn no_file_of_a_run_is_read_or_created_through_a_link() {
    let place = stopped();
    let (run, outside) = (place.path("runs/run"), place.path("outside"));
    for name in ["metrics.jsonl", "run.lock", ".training", "steps/000002/state.json", "steps/.000003.partial"] {
        let (file, kept) = (run.join(name), run.with_extension("kept"));
        let existed = fs::rename(&file, &kept).is_ok();
        symlink(&outside, &file).unwrap();
        let told = refuse(&place);
        assert!(told.ends_with("cannot be used: it is a link, and may lead anywhere"), "{name}: {told}");
        assert!(!outside.exists(), "{name}");
        fs::remove_file(&file).unwrap();
        if existed {
            fs::rename(&kept, &file).unwrap();
        }
    }
    // A file that is another one as well is locked, and stays what it is.
    fs::write(&outside, "mine").unwrap();
    fs::hard_link(&outside, run.join(".training"))
        .or_else(|_| {
            fs::remove_file(run.join(".training"))?;
            fs::hard_link(&outside, run.join(".training"))
        })
        .unwrap();
    drop(place.resume("run", &["train.steps=2", "train.save-every=1"]));
    assert_eq!(fs::read_to_string(&outside).unwrap(), "mine");
    fs::remove_file(run.join(".training")).unwrap();
    // The run's folder itself.
    fs::rename(&run, place.path("elsewhere")).unwrap();
    symlink(place.path("elsewhere"), &run).unwrap();
    assert!(refuse(&place).contains("it is a link"));
}

#[test]
fn a_checkpoint_whose_counts_no_run_reaches_is_damaged() {
    let place = stopped();
    let state = place.path("runs/run/steps/000002/state.json");
    let text = fs::read_to_string(&state).unwrap();
    for (from, to) in [
        ("\"step\": 2", "\"step\": 9223372036854775808"),
        ("\"step\": 2", "\"step\": 3"),
        ("\"epoch\": 0", "\"epoch\": 9223372036854775808"),
        ("\"updates\": 2", "\"updates\": 18446744073709551615"),
        ("\"snapshots\": []", "\"snapshots\": [\"a\", \"a\"]"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        fs::write(&state, changed).unwrap();
        assert!(refuse(&place).contains("is damaged: it claims"), "{to}");
    }
    fs::write(&state, text.replacen("\"step\": 2", "\"step\": 9223372036854775808", 1)).unwrap();
    let last = place.path("runs/run/steps/9223372036854775808");
    fs::rename(place.path("runs/run/steps/000002"), last).unwrap();
    assert!(refuse(&place).contains("is damaged: it claims step 9223372036854775808 of 4"));
}

#[test]
fn a_run_that_ended_before_its_first_checkpoint_starts_over() {
    let place = Workspace::new();
    place.train("whole", &STEPS).unwrap();
    // As a full disk leaves it: steps without a checkpoint, and a part of one.
    let late = ["train.steps=4", "train.save-every=4"];
    place.kill("run", &late, 2);
    fs::create_dir_all(place.path("runs/run/steps/.000004.partial")).unwrap();
    let error = place.train("run", &STEPS).unwrap_err();
    assert!(error.hint().unwrap().contains("--resume"), "{error}");
    place.resume("run", &STEPS).unwrap();
    let adapter = "adapter_model.safetensors";
    assert_eq!(place.bytes("run", adapter), place.bytes("whole", adapter));
    assert_eq!(place.metrics("run").len(), place.metrics("whole").len());
    assert!(!place.path("runs/run/steps/.000004.partial").exists());
}
