//! Runs with an environment: what they learn from, how they end, what they record.

use serde_json::{Map, Value};
use tunebox_foundation::explain::{Exit, Explain};

use super::*;

fn number(row: &Map<String, Value>, name: &str) -> f64 {
    row.get(name).and_then(Value::as_f64).unwrap_or_else(|| panic!("no `{name}` in {row:?}"))
}

fn adapter(place: &Workspace, run: &str) -> Vec<u8> {
    place.bytes(run, "adapter_model.safetensors")
}

#[test]
fn methods_that_sample_learn_from_the_rewards_of_episodes_unchanged() {
    for method in ["grpo", "rlvr"] {
        let place = workspace(TALKS, "talks");
        let settings = settings(&place, method);
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        place.train(method, &settings).unwrap();
        let rows = place.metrics(method);
        assert_eq!(rows.len(), 3);
        for row in &rows {
            assert!((0.0..=1.0).contains(&number(row, "reward-talks-mean")), "{row:?}");
            assert_eq!(number(row, "reward-talks-failed"), 0.0);
        }
        assert!(rows.iter().any(|row| number(row, "gradient-norm") > 0.0), "{rows:?}");
    }
}

#[test]
fn a_stopped_run_goes_on_in_the_same_episodes_and_a_replay_has_the_same_bits() {
    let place = workspace(TALKS, "talks");
    let settings = settings(&place, "grpo");
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    place.train("whole", &settings).unwrap();
    place.stop("halved", &settings, 1);
    place.resume("halved", &settings).unwrap();
    assert!(adapter(&place, "whole") == adapter(&place, "halved"));
    let rewards = |run: &str| place.metrics(run).iter().map(|row| row["reward"].clone()).collect::<Vec<_>>();
    assert_eq!(rewards("whole"), rewards("halved"));

    let own = place.set("environment.use", "environment.wasm");
    let (inputs, _) = place.replay("halved", std::slice::from_ref(&own));
    assert!(inputs.iter().any(|one| one.what == "environment.sha256" && one.is_same()), "{inputs:?}");
    let digest = Reference::environment("./environment.wasm", &place.path("")).unwrap().open().unwrap().digest;
    for file in ["run.lock", "README.md"] {
        let text = place.text("whole", file);
        assert!(text.contains("talks") && text.contains(&digest), "{file}: {text}");
    }
}

#[test]
fn accumulation_changes_no_episode() {
    let place = workspace(TALKS, "talks");
    let settings = settings(&place, "grpo");
    let rewards = [(8, 1), (4, 2), (1, 8)].map(|(batch, accumulation)| {
        let name = format!("in-{batch}");
        let more =
            [format!("train.batch={batch}"), format!("train.accumulation={accumulation}"), "train.steps=1".into()];
        let all: Vec<&str> = settings.iter().chain(&more).map(String::as_str).collect();
        place.train(&name, &all).unwrap();
        let row = place.metrics(&name).remove(0);
        ["reward-talks-mean", "completions-mean-length"].map(|name| number(&row, name))
    });
    assert!(rewards.iter().all(|other| *other == rewards[0]), "{rewards:?}");
}

#[test]
fn another_environment_is_another_run() {
    let place = workspace(TALKS, "talks");
    let settings = settings(&place, "grpo");
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    place.stop("changed", &settings, 1);
    let other = workspace("(call $end (f32.const 1))", "talks");
    std::fs::copy(other.path("environment.wasm"), place.path("environment.wasm")).unwrap();
    let error = place.resume("changed", &settings).unwrap_err();
    assert_eq!(error.to_string(), "the run `changed` cannot go on: the environment is another");
}

#[test]
fn an_environment_that_fails_on_most_completions_ends_the_run_with_its_reason() {
    for (body, why) in [
        ("(unreachable)", "it gave up, as after a panic in Rust or an exception in Python; its own tests show where"),
        ("(call $end (f32.const inf))", "its reward is inf"),
        ("(call $say (i32.const 1024) (i32.const 9000))", "its message has 9,000 bytes, at most 8,192 are passed on"),
    ] {
        let error = train(body, "gives-up", &[]).err().unwrap();
        assert_eq!(error.to_string(), "the environment `gives-up` failed on 9 of 16 completions");
        assert_eq!(error.why().as_deref(), Some(why));
        assert_eq!(error.exit(), Exit::Sandbox);
    }
}

#[test]
fn an_environment_that_fails_now_and_then_is_counted_and_the_run_goes_on() {
    // It gives up where the length of the first completion is a multiple of four.
    let body =
        "(if (i32.eqz (i32.and (call $last (local.get $turns) (i32.const 1)) (i32.const 3))) (then (unreachable)))
        (call $end (f32.const 1))";
    let rows = train(body, "moody", &["train.steps=6"]).unwrap().metrics("moody");
    assert!(rows.iter().any(|row| number(row, "reward-moody-failed") > 0.0), "{rows:?}");
    for row in &rows {
        assert!(number(row, "unjudged") * 16.0 >= number(row, "reward-moody-failed"), "{row:?}");
    }
}

#[test]
fn an_environment_that_never_ends_an_episode_gives_no_reward_and_the_turns_are_counted() {
    let endless = "(call $say (i32.const 1024) (i32.const 6))";
    let lengths = ["1", "2"].map(|most| {
        let turns = format!("environment.max-turns={most}");
        let rows = train(endless, "endless", &[&turns, "train.steps=1"]).unwrap().metrics("endless");
        assert_eq!(number(&rows[0], "unjudged"), 1.0, "{rows:?}");
        assert!(!rows[0].contains_key("reward-endless-mean"), "{rows:?}");
        number(&rows[0], "completions-mean-length")
    });
    assert!(lengths[1] > lengths[0], "{lengths:?}");
}

#[test]
fn control_tokens_and_messages_past_the_room_go_on_or_end_the_episode() {
    let control =
        train("(call $say (i32.const 1024) (i32.const 13))", "control", &["environment.max-turns=2"]).unwrap();
    assert_eq!(control.metrics("control").len(), 3);
    let long = train("(call $say (i32.const 2048) (i32.const 500))", "long", &[]).unwrap();
    for row in long.metrics("long") {
        assert_eq!(number(&row, "unjudged"), 1.0, "{row:?}");
    }
}

#[test]
fn verifiers_judge_what_the_model_wrote_last() {
    let verifier =
        ["verifier.0.use=overlong", "verifier.0.length=12", "verifier.0.buffer=1", "verifier.0.unit=characters"];
    // A message alone has more characters than `overlong` lets pass.
    let more = [&verifier[..], &["method.max-tokens=6"]].concat();
    for row in train(TALKS, "talks", &more).unwrap().metrics("talks") {
        assert_eq!(number(&row, "reward-overlong-mean"), 0.0, "{row:?}");
        assert!(row.contains_key("reward-talks-mean"), "{row:?}");
    }
}

#[test]
fn held_out_prompts_are_answered_by_the_environment_as_well() {
    let place = workspace(TALKS, "talks");
    let held_out = place.set("data.validation", "data.jsonl");
    let settings = settings(&place, "rlvr");
    let all: Vec<&str> = settings.iter().map(String::as_str).chain([held_out.as_str()]).collect();
    place.train("looking", &all).unwrap();
    let rows = place.metrics("looking");
    let look = rows.iter().find(|row| row.contains_key("validation-pass-at-1")).unwrap();
    assert!(number(look, "validation-pass-at-1") > 0.0, "{look:?}");
    assert_eq!(number(look, "validation-pass-at-1"), number(look, "validation-reward"));
}

#[test]
fn an_environment_takes_no_longer_than_a_step_may() {
    let times = ["limits.step-wall-seconds=1", "limits.environment-seconds=3600"];
    let error = train("(loop $on (br $on)) (unreachable)", "slow", &times).err().unwrap();
    assert!(error.to_string().contains("took longer than a step may"), "{error}");
    assert_eq!(error.exit(), Exit::Sandbox);
}

#[test]
fn settings_that_leave_an_environment_without_a_use_are_refused() {
    let place = workspace(TALKS, "number");
    let refused = |method: &str, more: &[&str]| {
        let settings = [settings(&place, method), more.iter().map(ToString::to_string).collect()].concat();
        let settings: Vec<&str> =
            settings.iter().map(String::as_str).filter(|one| !one.contains("completions")).collect();
        place.plan("refused", &settings).err().unwrap().to_string()
    };
    assert_eq!(refused("lora", &[]), "`lora` samples no completions, and the run has an environment to answer them");
    assert_eq!(refused("grpo", &["verifier.0.use=number"]), "a verifier and the environment are called `number`");
    assert_eq!(refused("grpo", &["environment.use=grpo"]), "`grpo` is a method, an environment is wanted here");
    assert_eq!(refused("grpo", &["environment.use=nobodys"]), "there is no environment `nobodys`");
    assert!(refused("grpo", &["environment.depth=3"]).contains("`depth`"));
    place.write("model/tokenizer_config.json", &json!({ "eos_token": "<|end|>" }).to_string());
    place.write("data.jsonl", "{\"prompt\": \"Say it\"}\n");
    assert_eq!(refused("grpo", &[]), "the model has no chat template");
}
