//! Claims about the policy-gradient methods: their losses, gradients and metrics, and where they start.
//!
//! The numbers are rows of `golden/methods/grpo.jsonl`, made in f64 by `golden/policy_gradient.py`; here the
//! real components run inside the sandbox over a learner whose completions, scores and rewards are given.
//! ℓ_old is what the first of two updates scores, ℓ what the second one does.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/fixed_completions.rs"]
mod fixed_completions;
#[path = "support/given_rollout.rs"]
mod given_rollout;
#[path = "support/tiny_run.rs"]
mod tiny_run;

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fixed_completions::FixedCompletions;
use given_rollout::{GivenRollout, Rollout};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use tiny_run::{Place, Watcher};
use tunebox_model::Slice;
use tunebox_model::rows::Rows;
use tunebox_package::build::{self, Options};
use tunebox_package::{Reference, Value as Given, resolve_settings};
use tunebox_sandbox::{
    Batch, Compiling, Engine, Error, Grants, Learner, Limits, Question, Session, SessionSettings, StepReport, Value,
};

/// One line of `golden/methods/grpo.jsonl`.
#[derive(Deserialize)]
struct Row {
    settings: Map<String, Json>,
    logprob: Vec<Vec<f32>>,
    old: Vec<Vec<f32>>,
    reference: Vec<Vec<f32>>,
    lengths: Vec<usize>,
    rewards: Vec<f32>,
    finished: Option<Vec<bool>>,
    entropy: Option<Vec<Vec<f32>>>,
    loss: f64,
    gradient: Vec<Vec<f64>>,
    metrics: BTreeMap<String, f64>,
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(root().join("tests/golden/methods/grpo.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl Row {
    fn rollout(&self) -> Rollout {
        let count = self.lengths.len();
        Rollout {
            lengths: self.lengths.clone(),
            finished: self.finished.clone().unwrap_or(vec![true; count]),
            logprob: self.logprob.clone(),
            old: self.old.clone(),
            reference: self.reference.clone(),
            entropy: self.entropy.clone().unwrap_or(vec![vec![0.5; 3]; count]),
            rewards: self.rewards.clone(),
            weights: vec![1.0],
        }
    }
}

fn value(value: Given) -> Value {
    match value {
        Given::Boolean(value) => Value::Boolean(value),
        Given::Integer(value) => Value::Integer(value),
        Given::Number(value) => Value::Number(value),
        Given::Text(value) => Value::Text(value),
    }
}

/// A batch of prompts.
fn batch(prompts: Vec<Vec<u32>>) -> Batch {
    let (count, marks) = (prompts.len(), prompts.iter().map(|ids| vec![false; ids.len()]).collect());
    Batch {
        sides: vec![("prompt".into(), Arc::new(Rows::new(prompts, marks).unwrap()))],
        size: count as u32,
        window_size: count as u32,
        questions: vec![Question::default(); count],
        ..Batch::default()
    }
}

/// A session of a method with its settings taken.
fn session(method: &str, settings: &Map<String, Json>, learner: Box<dyn Learner>) -> Result<Session, Error> {
    let package = Reference::parse(method, &root()).unwrap().open().unwrap();
    let settings = resolve_settings(&package.manifest, &toml::Table::try_from(settings).unwrap()).unwrap();
    let settings: Vec<_> = settings.into_iter().map(|(name, given)| (name, value(given))).collect();
    let engine = Engine::new()?;
    let method = engine.admit(&package.bytes, method, &Grants::default(), &Limits::default())?;
    let own = SessionSettings { metric_names: package.manifest.metrics, ..SessionSettings::default() };
    let mut session = Session::start(&method, learner, own)?;
    session.init(&settings)?;
    Ok(session)
}

/// What one step of a method reports, and the gradients of its updates.
type Step = Result<(StepReport, Vec<Vec<Vec<f32>>>), Error>;

/// One step over completions in groups of two, after prompts of one token.
fn step(method: &str, settings: &Map<String, Json>, rollout: Rollout) -> Step {
    let prompts = vec![vec![5]; rollout.lengths.len() / 2];
    let (learner, arrived) = GivenRollout::with_arrivals(rollout);
    let report = session(method, settings, learner)?.step(batch(prompts))?;
    let arrived = arrived.lock().unwrap().clone();
    Ok((report, arrived))
}

fn with(settings: &Map<String, Json>, more: Json) -> Map<String, Json> {
    let mut settings = settings.clone();
    settings.extend(more.as_object().unwrap().clone());
    settings
}

/// The last value under a name: that of the last update.
fn metric(report: &StepReport, name: &str) -> f64 {
    let found = report.metrics.iter().rev().find(|(other, ..)| other == name);
    found.unwrap_or_else(|| panic!("no metric `{name}` in {:?}", report.metrics)).1
}

fn near(found: f64, wanted: f64, what: &str) {
    assert!((found - wanted).abs() <= 2e-7 + 1e-5 * wanted.abs(), "{what}: {found}, wanted {wanted}");
}

#[test]
fn every_loss_has_the_value_and_the_gradient_of_the_reference() {
    let rows = rows();
    assert_eq!(rows.len(), 23);
    for row in rows {
        let what = Json::Object(row.settings.clone()).to_string();
        let settings = with(&row.settings, json!({ "completions": 2, "updates": 2 }));
        let (report, arrived) =
            step("grpo", &settings, row.rollout()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(arrived.len(), 2, "{what}");
        near(metric(&report, "loss"), row.loss, &format!("{what} loss"));
        for (number, wanted) in row.gradient.iter().enumerate() {
            for (place, wanted) in wanted.iter().enumerate() {
                near(f64::from(arrived[1][number][place]), *wanted, &format!("{what} [{number}][{place}]"));
            }
        }
        for (name, wanted) in &row.metrics {
            near(metric(&report, name), *wanted, &format!("{what} {name}"));
        }
    }
}

#[test]
fn on_fresh_completions_the_ratio_is_one_and_the_gradient_is_that_of_the_advantages() {
    let row = &rows()[2];
    let settings = with(&row.settings, json!({ "completions": 2 }));
    let (report, arrived) = step("grpo", &settings, row.rollout()).unwrap();
    let advantages = [0.707006795, -0.707006795, -0.707040121, 0.707040121];

    assert_eq!(metric(&report, "clip-ratio-region-mean"), 0.0);
    assert_eq!(metric(&report, "sampling-difference-max"), 0.0);
    for (number, advantage) in advantages.iter().enumerate() {
        for slope in &arrived[0][number][..row.lengths[number]] {
            near(f64::from(*slope), -advantage / 9.0, "gradient");
        }
    }
}

#[test]
fn groups_without_a_signal_move_nothing_and_when_all_are_such_no_weight_moves() {
    let row = &rows()[2];
    let mut rollout = row.rollout();
    rollout.rewards = vec![1.0; 4];
    let settings = with(&row.settings, json!({ "completions": 2, "skip-even-groups": true }));
    let (report, arrived) = step("grpo", &settings, rollout).unwrap();
    assert!(arrived.is_empty());
    assert_eq!(metric(&report, "frac-reward-zero-std"), 1.0);
}

#[test]
fn dynamic_sampling_learns_from_the_first_groups_with_a_signal_as_if_there_were_no_others() {
    let row = &rows()[2];
    let even_and_differing = Rollout { rewards: vec![1.0, 1.0, 0.5, 2.0], ..row.rollout() };
    let differing =
        Rollout { lengths: row.lengths[2..].to_vec(), rewards: vec![0.5, 2.0], ..even_and_differing.clone() };
    let whole = Rollout {
        finished: differing.finished[2..].to_vec(),
        old: differing.old[2..].to_vec(),
        logprob: differing.logprob[2..].to_vec(),
        reference: differing.reference[2..].to_vec(),
        entropy: differing.entropy[2..].to_vec(),
        ..differing
    };
    for method in ["grpo", "rlvr"] {
        let settings = with(&Map::new(), json!({ "completions": 2, "updates": 2 }));
        let (report, arrived) = step(method, &settings, whole.clone()).unwrap();
        let chosen = with(&settings, json!({ "dynamic-sampling": 1 }));
        let (chosen_report, chosen_arrived) = step(method, &chosen, even_and_differing.clone()).unwrap();
        assert_eq!(chosen_arrived, arrived);
        assert!(arrived[1].iter().flatten().any(|slope| *slope != 0.0));
        assert_eq!(metric(&chosen_report, "loss"), metric(&report, "loss"));
        assert_eq!(metric(&chosen_report, "frac-reward-zero-std"), 0.5);
    }
}

#[test]
fn completions_that_no_verifier_could_judge_are_counted_and_learned_from_by_nobody() {
    let row = &rows()[2];
    let mut rollout = row.rollout();
    rollout.rewards = vec![1.0, 0.0, f32::NAN, f32::NAN];
    let settings = with(&row.settings, json!({ "completions": 2 }));
    let (report, arrived) = step("grpo", &settings, rollout).unwrap();
    assert_eq!(metric(&report, "unjudged"), 0.5);
    assert!(arrived[0][2..].iter().flatten().all(|slope| *slope == 0.0));
    assert!(arrived[0][0][0] < 0.0);
}

#[test]
fn several_verifiers_are_weighed_before_they_are_compared() {
    let row = &rows()[2];
    let mut rollout = row.rollout();
    rollout.rewards = vec![1.0, 0.0, 0.0, 0.5, 1.0, 1.0, 0.0, 0.0];
    rollout.weights = vec![1.0, 0.2];
    let settings = with(&row.settings, json!({ "completions": 2, "scale-rewards": "none" }));
    let (report, arrived) = step("grpo", &settings, rollout).unwrap();
    near(metric(&report, "reward"), (1.0 + 0.1 + 1.2 + 0.0) / 4.0, "reward");
    near(f64::from(arrived[0][0][0]), -0.45 / 9.0, "gradient");
    near(f64::from(arrived[0][2][0]), -0.6 / 9.0, "gradient");
}

#[test]
fn settings_that_do_not_go_together_are_refused_before_the_first_step() {
    for (more, wanted) in [
        (json!({ "loss": "cispo" }), "epsilon-high"),
        (json!({ "loss": "dr-grpo" }), "max-tokens"),
        (json!({ "delta": 1.1 }), "delta"),
    ] {
        let settings = with(&Map::new(), with(&Map::new(), json!({ "completions": 2 })).into());
        let error = step("grpo", &with(&settings, more), rows()[2].rollout()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_method_that_asks_for_more_tokens_than_the_run_allows_is_told_the_limit() {
    let settings = with(&Map::new(), json!({ "completions": 2, "max-tokens": 65 }));
    let error = step("grpo", &settings, rows()[2].rollout()).unwrap_err().to_string();
    assert!(error.contains("`max-tokens` is 65; it must be 1 to 64"), "{error}");
}

#[test]
fn rlvr_is_the_clipped_loss_of_grpo_over_the_groups_that_differ() {
    for row in rows().iter().filter(|row| row.settings.get("skip-even-groups").is_some()) {
        let settings = with(&Map::new(), json!({ "completions": 2, "updates": 2 }));
        let (report, arrived) = step("rlvr", &settings, row.rollout()).unwrap();
        near(metric(&report, "loss"), row.loss, "loss");
        near(metric(&report, "pass-at-one"), 5.0 / 6.0, "pass-at-one");
        near(metric(&report, "pass-at-k"), 1.0, "pass-at-k");
        for (found, wanted) in arrived[1].iter().flatten().zip(row.gradient.iter().flatten()) {
            near(f64::from(*found), *wanted, "gradient");
        }
    }
}

/// A tiny random model, prompts, and a verifier that likes short answers.
fn place() -> Place {
    let place = Place::new();
    let prompt = |number: usize| {
        format!("{}\n", json!({ "prompt": format!("Say {number}{}", "!".repeat(number % 5)), "answer": "x" }))
    };
    place.write("data.jsonl", &(0..16).map(prompt).collect::<String>());
    place
}

/// The settings of a small run of a method over those.
fn run_of(method: &str) -> Vec<String> {
    let settings = [
        "data.max-length=40",
        "method.completions=4",
        "train.steps=4",
        "train.rate=0.001",
        "verifier.0.use=overlong",
        "verifier.0.length=40",
        "verifier.0.buffer=40",
        "verifier.0.unit=characters",
    ];
    settings.iter().map(ToString::to_string).chain([format!("method.use={method}")]).collect()
}

fn train(place: &Place, name: &str, settings: &[String], more: &[&str]) {
    let settings: Vec<&str> = settings.iter().map(String::as_str).chain(more.iter().copied()).collect();
    place.train(name, &settings, &mut Watcher::new()).unwrap();
}

#[test]
fn accumulation_changes_neither_the_completions_nor_the_gradient() {
    let place = place();
    for (method, more) in [("grpo", "method.beta=0.1"), ("rlvr", "method.learn-from-truncated=true")] {
        let settings = [run_of(method), vec![more.to_owned()]].concat();
        let rows = [(8, 1), (4, 2), (1, 8)].map(|(batch, accumulation)| {
            let name = format!("{method}-{batch}");
            let (batch, accumulation) = (format!("train.batch={batch}"), format!("train.accumulation={accumulation}"));
            train(&place, &name, &settings, &["train.steps=1", &batch, &accumulation]);
            place.metrics(&name).remove(0)
        });
        for other in &rows[1..] {
            for name in ["reward", "completions-mean-length", "loss", "entropy", "gradient-norm"] {
                let (one, two) = (rows[0][name].as_f64().unwrap(), other[name].as_f64().unwrap());
                assert!((one - two).abs() <= 1e-6 * one.abs().max(1.0), "{method} {name}: {one} and {two}");
            }
        }
        assert!(
            rows[0]["gradient-norm"].as_f64().unwrap() > 1e-3,
            "the rewards differ, so there is something to learn"
        );
    }
}

#[test]
fn a_run_that_was_stopped_writes_the_same_completions_when_it_goes_on() {
    let place = place();
    let settings = run_of("grpo");
    let settings: Vec<&str> =
        settings.iter().map(String::as_str).chain(["method.entropy-target=1", "train.batch=4"]).collect();
    place.train("whole", &settings, &mut Watcher::new()).unwrap();
    let mut watcher = Watcher { stop_after: Some(2), ..Watcher::new() };
    place.train("halved", &settings, &mut watcher).unwrap();
    place.resume("halved", &settings, &mut Watcher::new()).unwrap();

    let adapter = |run: &str| place.bytes(run, "adapter_model.safetensors");
    assert!(adapter("whole") == adapter("halved"));
    let rewards = |run: &str| place.metrics(run).iter().map(|row| row["reward"].clone()).collect::<Vec<_>>();
    assert_eq!(rewards("whole"), rewards("halved"));
    let verification = tunebox_training::verify(&place.path("runs/halved"), true, Compiling::default()).unwrap();
    assert!(verification.inputs.iter().any(|one| one.what == "verifier.0.sha256"));
    let replay = verification.replay(None, &mut Watcher::new(), &AtomicBool::new(false)).unwrap().unwrap();
    assert!(replay.same(), "{replay:?}");
}

#[test]
fn held_out_prompts_are_answered_and_judged_along_the_way() {
    let place = place();
    place.write("held-out.jsonl", "{\"prompt\": \"Say it\", \"answer\": \"\"}\n{\"prompt\": \"No\"}\n");
    let held_out = format!("data.validation={}", place.path("held-out.jsonl").display());
    train(&place, "looking", &run_of("rlvr"), &["train.validate-every=2", &held_out, "train.validate-completions=3"]);
    let rows = place.metrics("looking");
    let looks: Vec<_> = rows.iter().filter(|row| row.contains_key("validation-pass-at-1")).collect();
    assert_eq!(looks.iter().map(|row| row["step"].clone()).collect::<Vec<_>>(), [0, 2, 4]);
    assert!(looks.iter().all(|row| row["validation-reward"].as_f64().unwrap() <= 0.0));
    assert!(looks[0].contains_key("validation-pass-at-3"));
    let step = rows.iter().find(|row| row.contains_key("pass-at-k")).unwrap();
    assert!(step.contains_key("reward-overlong-mean") && step["reward-overlong-failed"] == 0.0);
    let lock = String::from_utf8(place.bytes("looking", "run.lock")).unwrap();
    assert!(lock.contains("[[verifier]]\nname = \"overlong\""), "{lock}");
}

#[test]
fn held_out_prompts_that_nobody_would_judge_are_refused_before_the_first_step() {
    let place = place();
    let held_out = format!("data.validation={}", place.path("data.jsonl").display());
    let refused = place.plan("unjudged", &["method.use=grpo", "data.max-length=40", &held_out]).err().unwrap();
    assert!(refused.to_string().contains("nothing judges the answers"), "{refused}");
}

#[test]
fn a_method_that_lives_outside_learns_by_the_sdk_alone() {
    let source = std::fs::read_to_string(root().join("examples/9-rloo/src/lib.rs")).unwrap();
    assert!(source.lines().count() < 100);
    let place = place();
    let options = Options { output: Some(place.path("rloo.wasm")), ..Options::default() };
    build::build(&root().join("examples/9-rloo"), &options).unwrap_or_else(|error| panic!("{error}"));
    train(&place, "rloo", &run_of(&place.path("rloo.wasm").display().to_string()), &["train.batch=4"]);
    let rows = place.metrics("rloo");
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row["gradient-norm"].as_f64().unwrap() > 0.0), "{rows:?}");
    assert_eq!(rows[0]["kl"], 0.0);
    assert_ne!(rows[3]["kl"], 0.0);
}

/// What `peers/trl_grpo.py` wrote.
#[derive(Deserialize)]
struct Peer {
    prompts: Vec<Vec<u32>>,
    completions: Vec<Vec<Vec<u32>>>,
    rewards: Vec<Vec<f32>>,
    longest: u32,
    runs: Vec<PeerRun>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PeerRun {
    loss_type: String,
    beta: f64,
    loss: f64,
    gradient_norm: f64,
    kl: Option<f64>,
}

/// Needs the model and the adapter that the script was given: TUNEBOX_PEER_MODEL, TUNEBOX_PEER_ADAPTER.
#[test]
#[ignore = "needs a real model and the adapter of `peers/trl_grpo.py`"]
fn the_first_step_on_a_real_model_is_that_of_trl() {
    let folder = |name| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("`{name}` is not set")));
    let text = std::fs::read_to_string(root().join("tests/golden/methods/trl_grpo.json")).unwrap();
    let peer: Peer = serde_json::from_str(&text).unwrap();
    for (number, run) in peer.runs.iter().enumerate() {
        let slice = [Slice::Whole, Slice::Rows(1)][number % 2];
        let (model, adapter) = (folder("TUNEBOX_PEER_MODEL"), folder("TUNEBOX_PEER_ADAPTER"));
        let (completions, rewards) = (peer.completions.concat(), peer.rewards.concat());
        let learner = FixedCompletions::new(&model, &adapter, slice, &completions, &rewards);
        let settings = json!({
            "completions": 2, "max-tokens": peer.longest, "loss": run.loss_type.replace('_', "-"), "beta": run.beta,
        });
        let mut session = session("grpo", &with(&Map::new(), settings), Box::new(learner)).unwrap();
        let report = session.step(batch(peer.prompts.clone())).unwrap();
        let learner: &dyn Any = session.learner();
        let norm = learner.downcast_ref::<FixedCompletions>().unwrap().policy.parameters().gradient_norm().unwrap();
        let (loss, what) = (metric(&report, "loss"), format!("{} β {}", run.loss_type, run.beta));
        assert!((loss - run.loss).abs() <= 1e-4, "{what}: loss {loss}, TRL {}", run.loss);
        assert!(
            (norm - run.gradient_norm).abs() <= 1e-3 * run.gradient_norm,
            "{what}: norm {norm}, TRL {}",
            run.gradient_norm
        );
        if let Some(kl) = run.kl.filter(|_| run.beta > 0.0) {
            assert!((metric(&report, "kl") - kl).abs() <= 1e-4, "{what}: kl {}, TRL {kl}", metric(&report, "kl"));
        }
    }
}
