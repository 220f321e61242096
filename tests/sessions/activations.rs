//! Gradients of captured activations: which of them reach the model, and which are refused.

use tunebox_sandbox::Error;

use super::{error_text, run_steps, step_of};

/// Runs steps of a guest that learns from activations; the last step's answer, and the largest number of the model's
/// gradient, without its sign.
fn learn_in_steps(step: &str, steps: usize) -> (Result<(), Error>, f32) {
    let (mut session, _, answer) = run_steps(step, steps);
    let gradient = session.train_state().policy.parameters().gradients().abs().unwrap().max_all().unwrap();
    (answer, gradient.to_scalar::<f32>().unwrap())
}

/// Runs one step of such a guest, with this body.
fn learn(body: &str) -> (Result<(), Error>, f32) {
    learn_in_steps(&step_of(body), 1)
}

#[test]
fn a_loss_of_activations_gives_the_model_a_gradient() {
    let (answer, gradient) = learn(
        r#"
        (call $learn/backward (call $total (call $activations (local.get $batch))) (i32.const 64))"#,
    );
    answer.unwrap();
    assert!(gradient > 0.0);
}

#[test]
fn activations_of_an_earlier_step_take_no_gradient() {
    let (answer, gradient) = learn_in_steps(
        r#"
        (global $kept (mut i32) (i32.const 0))
        (func $step (param $batch i32) (result i32)
          (if (i32.eqz (global.get $kept))
            (then (global.set $kept (call $activations (local.get $batch))) (return (call $done))))
          (call $learn/backward (call $total (global.get $kept)) (i32.const 64))
          (call $pass-on))"#,
        2,
    );
    assert!(error_text(answer).contains("the loss depends on scores or activations of an earlier step"));
    assert_eq!(gradient, 0.0);
}

#[test]
fn activations_from_before_an_update_take_no_gradient() {
    let (answer, _) = learn(
        r#"
        (local $early i32)
        (local.set $early (call $activations (local.get $batch)))
        (call $learn/backward (call $total (call $activations (local.get $batch))) (i32.const 64))
        (call $learn/update (i32.const 64))
        (call $learn/backward (call $total (local.get $early)) (i32.const 64))"#,
    );
    assert!(
        error_text(answer)
            .ends_with("the weights were updated after these activations were captured; capture them again")
    );
}

#[test]
fn a_second_gradient_through_activations_is_refused_even_where_rows_may_repeat() {
    let (answer, _) = learn(
        r#"
        (local $activations i32)
        (call $learn/allow-repeats)
        (local.set $activations (call $activations (local.get $batch)))
        (call $learn/backward (call $total (local.get $activations)) (i32.const 64))
        (call $learn/backward (call $total (local.get $activations)) (i32.const 64))"#,
    );
    assert!(error_text(answer).contains("a gradient went through these activations already"));
}

#[test]
fn rows_whose_activations_have_a_gradient_take_none_through_their_scores() {
    let (answer, _) = learn(
        r#"
        (local $rows i32)
        (local.set $rows (call $examples (local.get $batch)))
        (call $hidden/capture-for-learning (local.get $rows) (i32.const 528) (i32.const 1) (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 64))
        (call $learn/backward (call $total (call $handle)) (i32.const 64))
        (call $learn/backward (call $total (call $model/scores.logprob (call $scores (local.get $rows)))) (i32.const 64))"#,
    );
    assert!(error_text(answer).contains("these rows have a gradient since the last update"));
}

#[test]
fn one_loss_of_scores_and_activations_of_the_same_rows_reaches_both() {
    let step = r#"
        (local $rows i32) (local $scored i32)
        (local.set $rows (call $examples (local.get $batch)))
        (local.set $scored (call $total (call $model/scores.logprob (call $scores (local.get $rows)))))
        (call $hidden/capture-for-learning (local.get $rows) (i32.const 528) (i32.const 1) (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 64))
        (call $tensor/multiply (local.get $scored) (call $total (call $handle)) (i32.const 64))
        (call $learn/backward (call $handle) (i32.const 64))"#;
    let (answer, gradient) = learn(step);
    answer.unwrap();
    assert!(gradient > 0.0);
}

#[test]
fn a_gradient_that_was_refused_for_repeated_rows_is_taken_once_they_are_allowed() {
    let (answer, gradient) = learn(
        r#"
        (local $rows i32) (local $loss i32)
        (local.set $rows (call $examples (local.get $batch)))
        (call $learn/backward (call $total (call $model/scores.logprob (call $scores (local.get $rows)))) (i32.const 64))
        (call $hidden/capture-for-learning (local.get $rows) (i32.const 528) (i32.const 1) (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 64))
        (local.set $loss (call $total (call $handle)))
        (call $learn/backward (local.get $loss) (i32.const 64))
        (if (i32.eqz (i32.load8_u (i32.const 64))) (then (unreachable)))
        (call $learn/allow-repeats)
        (call $learn/backward (local.get $loss) (i32.const 64))"#,
    );
    answer.unwrap();
    assert!(gradient > 0.0);
}
