//! Gradients: which of them reach the model, and which are refused.

use std::sync::{Arc, Mutex};

use tunebox_sandbox::Error;

use super::{error_text, run_steps, step_of};
use crate::support::fake_run::Record;

/// Runs a step with this body; its answer, and the record.
fn learn(body: &str) -> (Result<(), Error>, Arc<Mutex<Record>>) {
    let (_, record, answer) = run_steps(&step_of(body), 1);
    (answer, record)
}

#[test]
fn the_gradient_of_a_loss_at_the_taps_is_what_the_model_gets() {
    let (answer, record) = learn(
        r#"
        (local $tap i32)
        (local.set $tap (call $model/scores.logprob (call $scores (call $examples (local.get $batch)))))
        (call $tensor/multiply (local.get $tap) (local.get $tap) (i32.const 64))
        (call $learn/backward (call $total (call $handle)) (i32.const 64))"#,
    );
    answer.unwrap();
    // The fake scores every target with −1, so d(Σ x²)/dx is −2 there and nothing elsewhere.
    assert_eq!(record.lock().unwrap().seeds, [[[0.0, -2.0, -2.0], [0.0, -2.0, 0.0]]]);
}

#[test]
fn a_loss_over_two_scores_reaches_both_in_their_order() {
    let (answer, record) = learn(
        r#"
        (local $first i32) (local $second i32)
        (local.set $first (call $model/scores.logprob (call $scores (call $examples (local.get $batch)))))
        (local.set $second (call $model/scores.logprob (call $scores (call $examples (local.get $batch)))))
        (call $tensor/multiply (local.get $first) (call $minus (local.get $second)) (i32.const 64))
        (call $learn/backward (call $total (call $handle)) (i32.const 64))"#,
    );
    answer.unwrap();
    let one_sign = |seeds: &Vec<Vec<f32>>| seeds.iter().flatten().sum::<f32>();
    let totals: Vec<f32> = record.lock().unwrap().seeds.iter().map(one_sign).collect();
    assert_eq!(totals, [3.0, 3.0]);
}

#[test]
fn a_gradient_goes_on_when_the_handle_of_the_scores_is_dropped_early() {
    let (answer, record) = learn(
        r#"
        (local $scores i32) (local $tap i32)
        (local.set $scores (call $scores (call $examples (local.get $batch))))
        (local.set $tap (call $model/scores.logprob (local.get $scores)))
        (call $model/scores.drop (local.get $scores))
        (call $learn/backward (call $total (local.get $tap)) (i32.const 64))"#,
    );
    answer.unwrap();
    assert_eq!(record.lock().unwrap().seeds.len(), 1);
}

#[test]
fn coefficients_of_the_methods_own_count_only_where_the_mask_is_one() {
    let (answer, record) = learn(
        r#"
        (local $rows i32) (local $scores i32)
        (local.set $rows (call $examples (local.get $batch)))
        (call $model/score (call $model/policy) (local.get $rows) (i32.const 0) (i32.const 0) (f32.const 1) (i32.const 64))
        (local.set $scores (call $handle))
        (call $tensor/ones (i32.const 512) (i32.const 2) (i32.const 5) (i32.const 64))
        (call $learn/backward-from (local.get $scores) (call $handle) (i32.const 0) (i32.const 0) (i32.const 64))"#,
    );
    answer.unwrap();
    assert_eq!(record.lock().unwrap().seeds, [[[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]]]);
}

#[test]
fn scores_of_the_reference_take_no_gradient() {
    let (answer, record) = learn(
        r#"
        (local $scores i32)
        (call $model/reference (i32.const 64))
        (call $model/score (call $handle) (call $examples (local.get $batch)) (i32.const 0) (i32.const 0) (f32.const 1) (i32.const 64))
        (local.set $scores (call $handle))
        (call $tensor/ones (i32.const 512) (i32.const 2) (i32.const 5) (i32.const 64))
        (call $learn/backward-from (local.get $scores) (call $handle) (i32.const 0) (i32.const 0) (i32.const 64))"#,
    );
    assert!(error_text(answer).ends_with("only scores of the policy take a gradient, these are of another view"));
    assert!(record.lock().unwrap().seeds.is_empty());
}

#[test]
fn scores_from_before_an_update_take_no_gradient() {
    let (answer, record) = learn(
        r#"
        (local $tap i32)
        (local.set $tap (call $model/scores.logprob (call $scores (call $examples (local.get $batch)))))
        (call $learn/backward (call $total (local.get $tap)) (i32.const 64))
        (call $learn/update (i32.const 64))
        (call $learn/backward (call $total (local.get $tap)) (i32.const 64))"#,
    );
    assert!(
        error_text(answer).ends_with("the weights were updated after these scores were made; score the rows again")
    );
    assert_eq!(record.lock().unwrap().updates, 1);
    assert_eq!(record.lock().unwrap().seeds.len(), 1);
}

#[test]
fn a_second_gradient_through_the_same_scores_is_refused() {
    let (answer, record) = learn(
        r#"
        (local $tap i32)
        (local.set $tap (call $model/scores.logprob (call $scores (call $examples (local.get $batch)))))
        (call $learn/backward (call $total (local.get $tap)) (i32.const 64))
        (call $learn/backward (call $total (local.get $tap)) (i32.const 64))"#,
    );
    assert!(error_text(answer).ends_with("add the losses to one loss, or score the rows again"));
    assert_eq!(record.lock().unwrap().seeds.len(), 1);
}

#[test]
fn rows_that_have_a_gradient_get_another_one_only_after_an_update_or_if_the_method_allows_it() {
    let twice = |between: &str| {
        let step = r#"
        (call $learn/backward (call $total (call $model/scores.logprob (call $scores (call $examples (local.get $batch))))) (i32.const 64))
        BETWEEN
        (call $learn/backward (call $total (call $model/scores.logprob (call $scores (call $examples (local.get $batch))))) (i32.const 64))"#;
        learn(&step.replace("BETWEEN", between))
    };
    let (answer, record) = twice("");
    assert!(error_text(answer).contains("these rows have a gradient since the last update"));
    assert_eq!(record.lock().unwrap().seeds.len(), 1);
    for between in ["(call $learn/update (i32.const 64))", "(call $learn/allow-repeats)"] {
        let (answer, record) = twice(between);
        answer.unwrap();
        assert_eq!(record.lock().unwrap().seeds.len(), 2, "{between}");
    }
}

/// A step with the loss Σ logprob · mean-logit; `change` is done to the mean logits first.
fn weighted_by_mean_logits(change: &str) -> (Result<(), Error>, Arc<Mutex<Record>>) {
    let step = r#"
        (local $scores i32) (local $mean i32) (local $asked i32)
        (local.set $asked (call $model/taps.new))
        (call $model/taps.mean-logit (local.get $asked))
        (call $model/score-for-learning (call $examples (local.get $batch)) (i32.const 1) (local.get $asked) (f32.const 1) (i32.const 64))
        (local.set $scores (call $handle))
        (call $model/scores.mean-logit (local.get $scores) (i32.const 64))
        (local.set $mean (call $handle))
        CHANGE
        (call $tensor/multiply (call $model/scores.logprob (local.get $scores)) (local.get $mean) (i32.const 64))
        (call $learn/backward (call $total (call $handle)) (i32.const 64))"#;
    learn(&step.replace("CHANGE", change))
}

#[test]
fn a_loss_that_depends_on_a_tap_without_gradient_is_refused_unless_it_is_detached() {
    let (answer, record) = weighted_by_mean_logits("");
    let refused = "no gradient goes through the tap `mean-logit`; `detach` it where that is meant";
    assert!(error_text(answer).ends_with(refused));
    assert!(record.lock().unwrap().seeds.is_empty());
    let (answer, record) = weighted_by_mean_logits(
        "(call $tensor/tensor.detach (local.get $mean) (i32.const 64)) (local.set $mean (call $handle))",
    );
    answer.unwrap();
    // The fake's mean logits are 1 at targets.
    assert_eq!(record.lock().unwrap().seeds, [[[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]]]);
}

#[test]
fn a_tap_that_outlives_its_scores_by_a_step_takes_no_gradient() {
    let step = r#"
        (global $tap (mut i32) (i32.const 0))
        (func $step (param $batch i32) (result i32)
          (local $scores i32)
          (if (global.get $tap) (then
            (call $learn/backward (call $total (global.get $tap)) (i32.const 64))
            (return (call $pass-on))))
          (local.set $scores (call $scores (call $examples (local.get $batch))))
          (global.set $tap (call $model/scores.logprob (local.get $scores)))
          (call $model/scores.drop (local.get $scores))
          (call $done))"#;
    let (_, record, answer) = run_steps(step, 2);
    assert!(error_text(answer).contains("the loss depends on scores or activations of an earlier step"));
    assert!(record.lock().unwrap().seeds.is_empty());
}

#[test]
fn a_teacher_that_the_run_does_not_have_is_refused() {
    let text = error_text(learn("(call $teacher/open (i32.const 256) (i32.const 7) (i32.const 64))").0);
    assert!(text.ends_with("the run has no teacher `example`; its `[[teacher]]` tables name none"), "{text}");
}

#[test]
fn an_update_without_a_gradient_is_refused() {
    let (answer, record) = learn("(call $learn/update (i32.const 64))");
    assert!(error_text(answer).ends_with("no gradient has accumulated since the last update"));
    assert_eq!(record.lock().unwrap().updates, 0);
}

#[test]
fn a_loss_of_more_than_one_element_is_refused() {
    let (answer, _) = learn(
        r#"
        (call $learn/backward (call $model/scores.logprob (call $scores (call $examples (local.get $batch)))) (i32.const 64))"#,
    );
    assert!(error_text(answer).ends_with("a loss is one element, this is [2, 3]"));
}

#[test]
fn a_graph_as_deep_as_allowed_is_walked_and_dropped() {
    let (answer, record) = learn(
        r#"
        (local $link i32) (local $next i32) (local $left i32)
        (local.set $link (call $model/scores.logprob (call $scores (call $examples (local.get $batch)))))
        (local.set $left (i32.const 4000))
        (loop $again
          (local.set $next (call $minus (local.get $link)))
          (call $tensor/tensor.drop (local.get $link))
          (local.set $link (local.get $next))
          (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
        (call $learn/backward (call $total (local.get $link)) (i32.const 64))"#,
    );
    answer.unwrap();
    assert_eq!(record.lock().unwrap().seeds, [[[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]]]);
}
