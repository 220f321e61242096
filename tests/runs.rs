//! What a run promises: the same bits after any stop, nothing half-written, nothing overwritten.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/tiny_run.rs"]
mod tiny_run;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;

use tiny_run::{Place, Watcher, records};
use tunebox_compute::explain::{Exit, Explain};
use tunebox_sandbox::Compiling;
use tunebox_training::{Comparison, Error, Outcome, RunSettings, plan, run, verify};

const ADAPTER: &str = "adapter_model.safetensors";

/// Everything that could lead a resumed run astray: epochs, packing, accumulation, dropout, warm-up.
const HARD: [&str; 8] = [
    "train.steps=20",
    "train.save-every=5",
    "train.batch=2",
    "train.accumulation=2",
    "train.warmup=3",
    "train.adapter.dropout=0.1",
    "data.packing=true",
    "data.max-length=96",
];

fn whole(place: &Place) -> Vec<u8> {
    place.train("whole", &HARD, &mut Watcher::new()).unwrap();
    place.bytes("whole", ADAPTER)
}

fn losses(place: &Place, run: &str) -> Vec<f64> {
    place.metrics(run).iter().filter_map(|row| row.get("loss")?.as_f64()).collect()
}

#[test]
fn a_run_stopped_at_ten_and_resumed_ends_in_the_bits_of_one_never_stopped() {
    let place = Place::new();
    let mut watcher = Watcher { stop_after: Some(10), ..Watcher::new() };
    let outcome = place.train("stopped", &HARD, &mut watcher).unwrap();

    assert!(matches!(outcome, Outcome::Interrupted(_)));
    assert_eq!(outcome.exit(), Some(Exit::Interrupted));
    assert!(!place.path("runs/stopped").join(ADAPTER).exists());

    let mut watcher = Watcher::new();
    place.resume("stopped", &HARD, &mut watcher).unwrap();

    assert_eq!(watcher.steps, (11..=20).collect::<Vec<_>>());
    assert!(place.bytes("stopped", ADAPTER) == whole(&place), "the adapters differ");
    assert_eq!(losses(&place, "stopped"), losses(&place, "whole"));
}

/// What a look at a finished run, and running it again, find different.
fn replayed(place: &Place, run: &str) -> Vec<Comparison> {
    let verification = verify(&place.path("runs").join(run), true, Compiling::default()).unwrap();
    let looked: Vec<_> = verification.artifact.iter().chain(&verification.inputs).cloned().collect();
    assert!(looked.len() > 8, "model, data, method, seed, steps and two files: {looked:?}");
    let replay = verification.replay(None, &mut Watcher::new(), &AtomicBool::new(false)).unwrap().unwrap();
    assert_eq!(replay.steps, 20);
    looked.into_iter().chain(replay.artifact).chain(replay.first_difference).filter(|one| !one.same()).collect()
}

#[test]
fn a_finished_run_is_replayed_to_the_same_bits_even_if_it_was_stopped_on_the_way() {
    let place = Place::new();
    whole(&place);
    assert_eq!(replayed(&place, "whole"), []);
    let mut watcher = Watcher { stop_after: Some(7), ..Watcher::new() };
    place.train("stopped", &HARD, &mut watcher).unwrap();
    assert!(matches!(verify(&place.path("runs/stopped"), true, Compiling::default()), Err(Error::Unfinished { .. })));
    place.resume("stopped", &HARD, &mut Watcher::new()).unwrap();
    assert_eq!(replayed(&place, "stopped"), []);
    let left: Vec<_> = std::fs::read_dir(place.path("runs")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the folder of the replay is gone: {left:?}");
}

#[test]
fn a_replay_finds_an_adapter_and_a_number_that_the_run_did_not_make() {
    let place = Place::new();
    whole(&place);
    let metrics = String::from_utf8(place.bytes("whole", "metrics.jsonl")).unwrap();
    let lock = String::from_utf8(place.bytes("whole", "run.lock")).unwrap();
    let digest = lock.lines().rfind(|line| line.starts_with("sha256")).unwrap();
    place.write("runs/whole/metrics.jsonl", &metrics.replacen("\"step\":5,", "\"step\":5,\"secret\":1,", 1));
    place.write("runs/whole/run.lock", &lock.replace(digest, &format!("sha256 = \"{}\"", "0".repeat(64))));
    let found: Vec<String> = replayed(&place, "whole").into_iter().map(|one| one.what).collect();
    assert_eq!(found, ["adapter_config.json", "adapter_config.json", "secret of step 5"]);
}

#[test]
fn a_run_killed_between_checkpoints_ends_in_the_bits_of_one_never_stopped() {
    let place = Place::new();
    let mut watcher = Watcher { die_after: Some(8), ..Watcher::new() };
    catch_unwind(AssertUnwindSafe(|| place.train("killed", &HARD, &mut watcher))).unwrap_err();
    assert_eq!(place.metrics("killed").len(), 8);

    let mut watcher = Watcher::new();
    place.resume("killed", &HARD, &mut watcher).unwrap();

    assert_eq!(watcher.steps, (6..=20).collect::<Vec<_>>());
    assert!(place.bytes("killed", ADAPTER) == whole(&place), "the adapters differ");
    assert_eq!(losses(&place, "killed"), losses(&place, "whole"));
}

#[test]
fn two_micro_batches_of_two_are_one_batch_of_four() {
    let place = Place::new();
    let run = |name: &str, batch: &str, accumulation: &str| {
        place.train(name, &["train.steps=4", batch, accumulation], &mut Watcher::new()).unwrap();
        let rows = place.metrics(name);
        let column = |key: &str| rows.iter().map(|row| row[key].as_f64().unwrap()).collect::<Vec<f64>>();
        (column("loss"), column("gradient-norm"))
    };
    let four = run("four", "train.batch=4", "train.accumulation=1");
    let two = run("two", "train.batch=2", "train.accumulation=2");
    let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs().max(1.0));

    assert_eq!(four.0.len(), 4);
    assert!(near(&four.0, &two.0), "losses {four:?} {two:?}");
    assert!(near(&four.1, &two.1), "gradient norms {four:?} {two:?}");
}

#[test]
fn training_makes_the_loss_smaller() {
    let place = Place::new();
    place.train("learns", &["train.steps=30"], &mut Watcher::new()).unwrap();
    let losses = losses(&place, "learns");

    assert!(losses[29] < 0.5 * losses[0], "{losses:?}");
}

#[test]
fn a_run_that_exists_is_not_entered() {
    let place = Place::new();
    place.train("first", &["train.steps=2"], &mut Watcher::new()).unwrap();
    let before = place.bytes("first", ADAPTER);
    let error = place.train("first", &["train.steps=3"], &mut Watcher::new()).unwrap_err();

    assert_eq!(error.to_string(), "the run `first` exists already");
    assert!(error.hint().unwrap().contains("--resume"));
    assert_eq!(place.bytes("first", ADAPTER), before);
}

#[test]
fn a_resumed_run_with_another_rate_is_refused_with_the_difference() {
    let place = Place::new();
    let mut watcher = Watcher { stop_after: Some(2), ..Watcher::new() };
    place.train("changed", &["train.steps=4"], &mut watcher).unwrap();
    let error = place.resume("changed", &["train.steps=4", "train.rate=0.5"], &mut Watcher::new()).unwrap_err();

    assert_eq!(error.to_string(), "the run `changed` cannot go on: `train.rate` was `0.01`, is `0.5`");
}

#[test]
fn a_resumed_run_with_other_data_is_refused() {
    let place = Place::new();
    let mut watcher = Watcher { stop_after: Some(2), ..Watcher::new() };
    place.train("moved", &["train.steps=4"], &mut watcher).unwrap();
    place.write("data.jsonl", &records(17));
    let error = place.resume("moved", &["train.steps=4"], &mut Watcher::new()).unwrap_err();

    assert_eq!(error.to_string(), "the run `moved` cannot go on: the data file is another");
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_one_before_whole() {
    let place = Place::new();
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
    let mut watcher = Watcher { saved: Box::new(saved), ..Watcher::new() };
    let error = place.train("full", &settings, &mut watcher).unwrap_err();

    assert!(matches!(&error, Error::Step { kept: Some((2, _)), .. }), "{error:?}");
    assert!(error.explanation().kept.unwrap().starts_with("step 2, "));
    std::fs::remove_file(obstacle).unwrap();
    place.resume("full", &settings, &mut Watcher::new()).unwrap();
    place.train("smooth", &settings, &mut Watcher::new()).unwrap();
    assert!(place.bytes("full", ADAPTER) == place.bytes("smooth", ADAPTER), "the adapters differ");
}

#[test]
fn only_the_last_checkpoints_are_kept_and_the_artifact_is_the_last_one() {
    let place = Place::new();
    place.train("kept", &["train.steps=6", "train.save-every=1", "train.keep=2"], &mut Watcher::new()).unwrap();
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
fn the_written_run_file_gives_the_same_run_again() {
    let place = Place::new();
    place.train("one", &["train.steps=3"], &mut Watcher::new()).unwrap();
    let file = place.path("runs/one/run.toml");
    let settings = RunSettings::load(&file, &["run.name=two".into()]).unwrap();
    run(plan(settings).unwrap(), &mut Watcher::new(), &AtomicBool::new(false)).unwrap();

    assert_eq!(place.bytes("one", ADAPTER), place.bytes("two", ADAPTER));
}

#[test]
fn the_seventh_line_that_is_not_json_is_named_and_nothing_is_written() {
    let place = Place::new();
    let mut lines: Vec<String> = records(9).lines().map(str::to_owned).collect();
    lines[6] = r#"{"messages": [}"#.into();
    place.write("data.jsonl", &lines.join("\n"));
    let error = place.train("bad", &["train.steps=2"], &mut Watcher::new()).unwrap_err().explanation();

    assert_eq!(error.area, "data");
    assert!(error.what.starts_with("the line is not JSON"), "{}", error.what);
    assert!(error.place.unwrap().ends_with("data.jsonl:7:15"));
    assert!(error.hint.unwrap().contains("--set data.skip-bad=true"));
    assert!(!place.path("runs").exists());
}

#[test]
fn lines_that_are_skipped_are_listed() {
    let place = Place::new();
    let text = format!("{}not json\n{}", records(2), r#"{"messages": []}"#);
    place.write("data.jsonl", &text);
    let plan = place.plan("skips", &["data.skip-bad=true"]).unwrap();
    let skipped: Vec<u64> = plan.run.data.report.skipped.iter().map(|skipped| skipped.line).collect();

    assert_eq!(skipped, [3, 4]);
    assert_eq!(plan.run.data.examples.len(), 2);
}

#[test]
fn data_without_a_record_is_an_error() {
    let place = Place::new();
    place.write("data.jsonl", "\n\n");
    let error = place.plan("empty", &[]).err().unwrap();

    assert!(error.to_string().ends_with("holds no record to learn from"), "{error}");
}

#[test]
fn an_unknown_setting_of_the_method_is_shown_where_it_was_given() {
    let place = Place::new();
    let error = place.plan("setting", &["method.label-smothing=0.1"]).err().unwrap().explanation();

    assert_eq!(error.what, "unknown key `label-smothing`");
    assert_eq!(error.place.as_deref(), Some("`--set method.label-smothing=0.1`"));
    assert!(error.hint.unwrap().contains("did you mean `label-smoothing`?"));
}

#[test]
fn a_dry_plan_leaves_nothing_behind() {
    let place = Place::new();
    let plan = place.plan("dry", &[]).unwrap();

    assert_eq!((plan.run.steps, plan.run.summary.records), (4, 16));
    assert!(plan.run.summary.memory.total() > 0);
    assert!(!place.path("runs").exists());
}

#[test]
fn validation_data_is_looked_at_before_during_and_after() {
    let place = Place::new();
    place.write("held-out.jsonl", &records(4));
    let held_out = format!("data.validation={}", place.path("held-out.jsonl").display());
    let settings = ["train.steps=6", "train.validate-every=3", &held_out];
    place.train("looks", &settings, &mut Watcher::new()).unwrap();
    let rows = place.metrics("looks");
    let looks: Vec<_> =
        rows.iter().filter_map(|row| Some((row["step"].as_u64()?, row.get("validation-loss")?))).collect();

    assert_eq!(looks.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [0, 3, 6]);
    assert!(looks[2].1.as_f64() < looks[0].1.as_f64());
}

#[test]
fn looking_at_validation_data_changes_no_bit_of_the_run() {
    let place = Place::new();
    let held_out = format!("data.validation={}", place.path("data.jsonl").display());
    place.train("seen", &[&HARD[..], &["train.validate-every=2", &held_out]].concat(), &mut Watcher::new()).unwrap();

    assert!(place.bytes("seen", ADAPTER) == whole(&place), "the adapters differ");
}

#[test]
fn a_run_that_trains_all_weights_resumes_and_leaves_a_model() {
    let place = Place::new();
    let settings = ["train.steps=6", "train.adapter.kind=full", "train.rate=0.001"];
    place.train("all", &settings, &mut Watcher::new()).unwrap();
    let mut watcher = Watcher { stop_after: Some(3), ..Watcher::new() };
    place.train("halves", &settings, &mut watcher).unwrap();
    place.resume("halves", &settings, &mut Watcher::new()).unwrap();

    assert!(
        place.bytes("all", "model.safetensors") == place.bytes("halves", "model.safetensors"),
        "the weights differ"
    );
    assert!(!place.bytes("all", "tokenizer.json").is_empty());
}

#[test]
fn a_run_goes_on_from_the_adapter_of_another() {
    let place = Place::new();
    place.train("base", &["train.steps=10"], &mut Watcher::new()).unwrap();
    let adapter = format!("model.adapter={}", place.path("runs/base").display());
    place.train("next", &[&adapter, "train.steps=1"], &mut Watcher::new()).unwrap();

    assert!(losses(&place, "next")[0] < 0.9 * losses(&place, "base")[0]);
}

#[test]
fn a_kept_reference_changes_no_bit_of_a_run_or_of_a_resumed_one() {
    let place = Place::new();
    let pairs: String = (0..9)
        .map(|number| {
            let answers = (format!("It is {}.", 2 * number), format!("No.{}", "!".repeat(number % 4)));
            format!(
                "{}\n",
                serde_json::json!({ "prompt": format!("{number}?"), "chosen": answers.0, "rejected": answers.1 })
            )
        })
        .collect();
    place.write("data.jsonl", &pairs);
    let settings = ["method.use=dpo", "train.steps=12", "train.batch=2", "train.accumulation=2", "train.save-every=4"];
    let settings = [&settings[..], &["train.adapter.dropout=0.1"]].concat();
    place.train("kept", &settings, &mut Watcher::new()).unwrap();
    place.train("anew", &[&settings[..], &["train.cache-reference=false"]].concat(), &mut Watcher::new()).unwrap();
    assert!(place.bytes("kept", ADAPTER) == place.bytes("anew", ADAPTER), "the adapters differ");
    assert!(place.path("runs/kept/reference.cache").exists());
    assert!(!place.path("runs/anew/reference.cache").exists());

    let mut watcher = Watcher { stop_after: Some(5), ..Watcher::new() };
    place.train("halves", &settings, &mut watcher).unwrap();
    place.resume("halves", &settings, &mut Watcher::new()).unwrap();
    assert!(place.bytes("halves", ADAPTER) == place.bytes("kept", ADAPTER), "the adapters differ");
    assert_eq!(losses(&place, "halves"), losses(&place, "anew"));
}

#[test]
fn a_kept_reference_that_was_damaged_is_made_anew() {
    let place = Place::new();
    let line = r#"{"prompt": "2+2?", "chosen": "4", "rejected": "5"}"#;
    place.write("data.jsonl", &format!("{line}\n{line}\n"));
    let settings = ["method.use=dpo", "train.steps=6", "train.save-every=2"];
    place.train("smooth", &settings, &mut Watcher::new()).unwrap();
    let mut watcher = Watcher { stop_after: Some(3), ..Watcher::new() };
    place.train("hurt", &settings, &mut watcher).unwrap();
    place.write("runs/hurt/reference.cache", "tunebox-logprob1 and nonsense");
    place.resume("hurt", &settings, &mut Watcher::new()).unwrap();

    assert!(place.bytes("hurt", ADAPTER) == place.bytes("smooth", ADAPTER), "the adapters differ");
}

#[test]
fn a_method_of_windows_gets_all_records_of_an_update_at_once() {
    let place = Place::new();
    let line = |number: u32| serde_json::json!({ "prompt": format!("{number}?"), "completion": "yes", "label": number.is_multiple_of(2) });
    place.write("data.jsonl", &(0..8).map(|number| format!("{}\n", line(number))).collect::<String>());
    let settings = ["method.use=kto", "train.batch=2", "train.accumulation=4", "train.steps=2"];
    place.train("window", &settings, &mut Watcher::new()).unwrap();
    let row = place.metrics("window").remove(1);

    // A mean reward of good and of bad answers in one line: both kinds were in the one call of the step.
    assert!(row["rewards-chosen"].is_number() && row["rewards-rejected"].is_number());
    assert!(row["kl"].as_f64().unwrap() >= 0.0);
}
