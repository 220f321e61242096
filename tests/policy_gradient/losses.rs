//! Losses, gradients and metrics over completions, scores and rewards that are given.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use tunebox_sandbox::{Error, StepReport};

use super::{batch, session, with};
use crate::support::given_rollout::{GivenRollout, Rollout};
use crate::support::golden::root;
use crate::support::golden_rows::metric;

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

/// What one step of a method reports, and the gradients of its updates.
type Step = Result<(StepReport, Vec<Vec<Vec<f32>>>), Error>;

/// One step over completions in groups of two, after prompts of one token.
fn step(method: &str, settings: &Map<String, Json>, rollout: Rollout) -> Step {
    let prompts = vec![vec![5]; rollout.lengths.len() / 2];
    let (train_state, arrived) = GivenRollout::with_arrivals(rollout);
    let report = session(method, settings, train_state)?.step(batch(prompts))?;
    let arrived = arrived.lock().unwrap().clone();
    Ok((report, arrived))
}

fn assert_near(found: f64, wanted: f64, what: &str) {
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
        assert_near(metric(&report, "loss"), row.loss, &format!("{what} loss"));
        for (number, wanted) in row.gradient.iter().enumerate() {
            for (place, wanted) in wanted.iter().enumerate() {
                assert_near(f64::from(arrived[1][number][place]), *wanted, &format!("{what} [{number}][{place}]"));
            }
        }
        for (name, wanted) in &row.metrics {
            assert_near(metric(&report, name), *wanted, &format!("{what} {name}"));
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
            assert_near(f64::from(*slope), -advantage / 9.0, "gradient");
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
fn completions_that_no_verifier_could_judge_are_counted_and_not_learned_from() {
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
    assert_near(metric(&report, "reward"), (1.0 + 0.1 + 1.2 + 0.0) / 4.0, "reward");
    assert_near(f64::from(arrived[0][0][0]), -0.45 / 9.0, "gradient");
    assert_near(f64::from(arrived[0][2][0]), -0.6 / 9.0, "gradient");
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
        assert_near(metric(&report, "loss"), row.loss, "loss");
        assert_near(metric(&report, "pass-at-one"), 5.0 / 6.0, "pass-at-one");
        assert_near(metric(&report, "pass-at-k"), 1.0, "pass-at-k");
        for (found, wanted) in arrived[1].iter().flatten().zip(row.gradient.iter().flatten()) {
            assert_near(f64::from(*found), *wanted, "gradient");
        }
    }
}
