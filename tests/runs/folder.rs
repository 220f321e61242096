//! The folder of a run: not entered twice, never half-written, and holding no more than it should.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;

use tunebox_foundation::explain::Explain;
use tunebox_training::{Error, plan, run};

use super::ADAPTER;
use crate::support::tiny_run::{TestObserver, Workspace};

#[test]
fn a_run_that_exists_is_not_entered() {
    let place = Workspace::new();
    place.train("first", &["train.steps=2"]).unwrap();
    place.stop("begun", &["train.steps=2"], 1);
    let before = place.bytes("first", ADAPTER);
    let tried =
        [("first", "train.steps=2", false), ("begun", "train.steps=2", true), ("begun", "train.steps=3", false)];
    for (name, steps, could_go_on) in tried {
        let error = place.train(name, &[steps]).unwrap_err();
        assert_eq!(error.to_string(), format!("the run `{name}` exists already"));
        assert_eq!(error.hint().unwrap().contains("--resume"), could_go_on, "{name} {steps}");
    }
    assert_eq!(place.bytes("first", ADAPTER), before);
}

#[test]
fn runs_without_a_name_that_begin_at_once_take_a_number_each() {
    let (place, planned) = (Workspace::new(), Barrier::new(3));
    let train = || {
        let plan = plan(place.settings(&["train.steps=1"]).unwrap()).unwrap();
        planned.wait();
        assert_eq!(plan.run.summary.name, "lora-1");
        run(plan, &mut TestObserver::new(), &AtomicBool::new(false)).unwrap().name
    };
    let names: BTreeSet<String> = thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(train));
        threads.map(|thread| thread.join().unwrap()).into()
    });
    assert_eq!(names, BTreeSet::from(["lora-1", "lora-2", "lora-3"].map(str::to_owned)));
    assert!(place.text("lora-3", "run.toml").contains("name = \"lora-3\""));
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_one_before_whole() {
    let place = Workspace::new();
    let steps = place.path("runs/full/steps");
    let obstacle = steps.join(".000004.partial");
    let in_the_way = obstacle.clone();
    // A file where the folder of the coming checkpoint would be begun.
    let saved = move |step: u64, _: &std::path::Path| {
        if step == 2 {
            std::fs::write(&in_the_way, "").unwrap();
        }
    };
    let settings = ["train.steps=6", "train.save-every=2"];
    let mut watcher = TestObserver { saved: Box::new(saved), ..TestObserver::new() };
    let error = place.train_with("full", &settings, &mut watcher).unwrap_err();

    assert!(matches!(&error, Error::Step { kept: Some((2, _)), .. }), "{error:?}");
    assert!(error.explanation().kept.unwrap().starts_with("step 2, "));
    std::fs::remove_file(obstacle).unwrap();
    place.resume("full", &settings).unwrap();
    place.train("smooth", &settings).unwrap();
    assert!(place.bytes("full", ADAPTER) == place.bytes("smooth", ADAPTER), "the adapters differ");
}

#[test]
fn only_the_last_checkpoints_are_kept_and_the_artifact_is_the_last_one() {
    let place = Workspace::new();
    place.train("kept", &["train.steps=6", "train.save-every=1", "train.keep=2"]).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(place.path("runs/kept/steps")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();

    assert_eq!(names, ["000005", "000006"]);
    assert_eq!(place.bytes("kept", ADAPTER), place.bytes("kept", "steps/000006/adapter_model.safetensors"));
    for file in ["adapter_config.json", "README.md", "run.lock", "run.toml", "metrics.jsonl"] {
        assert!(!place.bytes("kept", file).is_empty(), "{file}");
    }
}

#[test]
fn a_dry_plan_leaves_nothing_behind() {
    let place = Workspace::new();
    let plan = place.plan("dry", &[]).unwrap();

    assert_eq!((plan.run.summary.steps, plan.run.summary.records), (4, 16));
    assert!(plan.run.summary.memory.total() > 0);
    assert!(!place.path("runs").exists());
}
