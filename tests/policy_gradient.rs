//! Claims about the policy-gradient methods: their losses, gradients and metrics, and where they start.
//!
//! The numbers are rows of `golden/methods/grpo.jsonl`, made in f64 by `golden/policy_gradient.py`; here the
//! real components run inside the sandbox over a learner whose completions, scores and rewards are given.
//! ℓ_old is what the first of two updates scores, ℓ what the second one does.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/given_rollout.rs"]
mod given_rollout;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use given_rollout::{GivenRollout, Rollout};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use tunebox_model::rows::Rows;
use tunebox_package::{Reference, Value as Given, resolve_settings};
use tunebox_sandbox::{
    Batch, Engine, Error, Grants, Limits, Question, Session, SessionSettings, StepReport, Value,
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

/// Prompts of one token, for completions in groups of two.
fn batch(prompts: usize) -> Batch {
    let rows = Rows::new(vec![vec![5]; prompts], vec![vec![false]; prompts]).unwrap();
    Batch {
        sides: vec![("prompt".into(), Arc::new(rows))],
        size: prompts as u32,
        window_size: prompts as u32,
        questions: vec![Question::default(); prompts],
        ..Batch::default()
    }
}

/// What one step of a method reports, and the gradients of its updates.
type Step = Result<(StepReport, Vec<Vec<Vec<f32>>>), Error>;

fn step(method: &str, settings: &Map<String, Json>, rollout: Rollout) -> Step {
    let package = Reference::parse(method, &root()).unwrap().open().unwrap();
    let settings = resolve_settings(&package.manifest, &toml::Table::try_from(settings).unwrap()).unwrap();
    let settings: Vec<_> = settings.into_iter().map(|(name, given)| (name, value(given))).collect();
    let engine = Engine::new()?;
    let method = engine.admit(&package.bytes, method, &Grants::default(), &Limits::default())?;
    let prompts = rollout.lengths.len() / 2;
    let (learner, arrived) = GivenRollout::new(rollout);
    let own = SessionSettings { metric_names: package.manifest.metrics, ..SessionSettings::default() };
    let mut session = Session::start(&method, learner, own)?;
    session.init(&settings)?;
    let report = session.step(batch(prompts))?;
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
        let (report, arrived) = step("grpo", &settings, row.rollout()).unwrap_or_else(|error| panic!("{what}: {error}"));
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
        for place in 0..row.lengths[number] {
            near(f64::from(arrived[0][number][place]), -advantage / 9.0, "gradient");
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
