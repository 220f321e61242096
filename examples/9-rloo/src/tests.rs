//! The method on a bench, with a verifier beside it.

use tunebox::bench::{Bench, json};

use super::LeaveOneOut;

/// The mean reward of a first step with a verifier of this weight.
fn reward(weight: f64) -> f64 {
    let verifier = json!({ "use": "overlong", "unit": "characters", "length": 4000, "buffer": 4000, "weight": weight });
    let records = [json!({ "prompt": "What is 2 + 3?", "answer": "5" })];
    let mut run = Bench::<LeaveOneOut>::new().records(records).verifier(verifier).start().unwrap();
    let report = run.step().unwrap();
    assert!(report.gradient_norm.unwrap() > 0.0);
    report.metric("reward")
}

#[test]
fn a_reward_is_the_verdict_times_its_weight() {
    let (once, twice) = (reward(1.0), reward(2.0));
    assert!(once < 0.0, "{once}");
    assert!((twice - 2.0 * once).abs() < 1e-6, "{twice} is not twice {once}");
}
