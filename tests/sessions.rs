//! Claims about a method at work: what reaches the learner, what comes back, and what survives.
//!
//! Guests are small texts (`support/guest.rs`); the learner is a fake that writes a diary.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/fake_learner.rs"]
mod fake_learner;
#[path = "support/guest.rs"]
mod guest;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use fake_learner::{Diary, FakeLearner, rows};
use tunebox_compute::explain::Explain;
use tunebox_sandbox::{Batch, Combine, Engine, Error, Function, Grants, Limits, Session, SessionSettings, Value};

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new().unwrap());

/// Imports and data for guests that score the batch and learn from it.
const LEARNING: &str = r#"
(import "tunebox:method/data@0.1.0" "[method]batch.rows" (func $rows (param i32 i32 i32 i32)))
(import "tunebox:method/data@0.1.0" "[method]rows.mask" (func $mask (param i32 i32)))
(import "tunebox:method/model@0.1.0" "policy" (func $policy (result i32)))
(import "tunebox:method/model@0.1.0" "reference" (func $reference (param i32)))
(import "tunebox:method/model@0.1.0" "score" (func $score (param i32 i32 i32 f32 i32)))
(import "tunebox:method/model@0.1.0" "score-for-learning" (func $learn-from (param i32 i32 f32 i32)))
(import "tunebox:method/model@0.1.0" "[method]scores.logprob" (func $logprob (param i32) (result i32)))
(import "tunebox:method/tensor@0.1.0" "multiply" (func $multiply (param i32 i32 i32)))
(import "tunebox:method/tensor@0.1.0" "[method]tensor.negate" (func $negate (param i32 i32)))
(import "tunebox:method/tensor@0.1.0" "[method]tensor.sum" (func $sum (param i32 i32 i32 i32 i32)))
(import "tunebox:method/tensor@0.1.0" "ones" (func $ones (param i32 i32 i32 i32)))
(import "tunebox:method/learn@0.1.0" "minimise" (func $minimise (param i32 i32)))
(import "tunebox:method/learn@0.1.0" "backward-from" (func $backward-from (param i32 i32 i32 i32 i32)))
(import "tunebox:method/learn@0.1.0" "update" (func $update (param i32)))
(import "tunebox:method/model@0.1.0" "[resource-drop]scores" (func $drop-scores (param i32)))
(import "tunebox:method/tensor@0.1.0" "[resource-drop]tensor" (func $drop-tensor (param i32)))
(data (i32.const 256) "example")
(data (i32.const 512) "\02\00\00\00\03\00\00\00")

;; The batch's rows.
(func $examples (param $batch i32) (result i32)
  (call $rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (call $handle))

;; Scores of rows, for learning.
(func $scores (param $rows i32) (result i32)
  (call $learn-from (local.get $rows) (i32.const 0) (f32.const 1) (i32.const 64))
  (call $handle))

;; The sum of a tensor.
(func $total (param $tensor i32) (result i32)
  (call $sum (local.get $tensor) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 64))
  (call $handle))

;; The negated tensor.
(func $minus (param $tensor i32) (result i32)
  (call $negate (local.get $tensor) (i32.const 64))
  (call $handle))
"#;

fn batch() -> Batch {
    Batch {
        sides: vec![("example".into(), rows())],
        size: 2,
        columns: BTreeMap::new(),
        window_targets: BTreeMap::from([("example".into(), 3)]),
        window_size: 2,
        ..Batch::default()
    }
}

fn settings() -> SessionSettings {
    SessionSettings { seed: 7, metric_names: vec!["loss".into()], ..SessionSettings::default() }
}

fn start(guest: &str, settings: SessionSettings) -> (Session, Arc<Mutex<Diary>>) {
    let bytes = guest::component(guest);
    let method = ENGINE.admit(&bytes, "guest", &Grants::default(), &Limits::default()).unwrap();
    let (learner, diary) = FakeLearner::with_diary();
    (Session::start(&method, learner, settings).unwrap(), diary)
}

/// Runs steps of a guest that learns; the last step's answer, and the diary.
fn learn(step: &str, steps: usize) -> (Result<(), Error>, Arc<Mutex<Diary>>) {
    let (mut session, diary) = start(&format!("{LEARNING}{step}"), settings());
    let mut answer = Ok(());
    for _ in 0..steps {
        answer = session.step(batch()).map(|_| ());
    }
    (answer, diary)
}

fn words(answer: Result<(), Error>) -> String {
    answer.unwrap_err().to_string()
}

#[test]
fn the_gradient_of_a_loss_at_the_taps_is_what_the_learner_gets() {
    let (answer, diary) = learn(
        r#"
        (func $step (param $batch i32) (result i32)
          (local $tap i32)
          (local.set $tap (call $logprob (call $scores (call $examples (local.get $batch)))))
          (call $multiply (local.get $tap) (local.get $tap) (i32.const 64))
          (call $minimise (call $total (call $handle)) (i32.const 64))
          (call $pass-on))"#,
        1,
    );
    answer.unwrap();
    // The fake scores every target with −1, so d(Σ x²)/dx is −2 there and nothing elsewhere.
    assert_eq!(diary.lock().unwrap().seeds, [[[0.0, -2.0, -2.0], [0.0, -2.0, 0.0]]]);
}

#[test]
fn a_loss_over_two_scores_reaches_both_in_their_order() {
    let (answer, diary) = learn(
        r#"
        (func $step (param $batch i32) (result i32)
          (local $first i32) (local $second i32)
          (local.set $first (call $logprob (call $scores (call $examples (local.get $batch)))))
          (local.set $second (call $logprob (call $scores (call $examples (local.get $batch)))))
          (call $multiply (local.get $first) (call $minus (local.get $second)) (i32.const 64))
          (call $minimise (call $total (call $handle)) (i32.const 64))
          (call $pass-on))"#,
        1,
    );
    answer.unwrap();
    let one_sign = |seeds: &Vec<Vec<f32>>| seeds.iter().flatten().sum::<f32>();
    let totals: Vec<f32> = diary.lock().unwrap().seeds.iter().map(one_sign).collect();
    assert_eq!(totals, [3.0, 3.0]);
}

#[test]
fn a_gradient_goes_on_when_the_handle_of_the_scores_is_dropped_early() {
    let (answer, diary) = learn(
        r#"
        (func $step (param $batch i32) (result i32)
          (local $scores i32) (local $tap i32)
          (local.set $scores (call $scores (call $examples (local.get $batch))))
          (local.set $tap (call $logprob (local.get $scores)))
          (call $drop-scores (local.get $scores))
          (call $minimise (call $total (local.get $tap)) (i32.const 64))
          (call $pass-on))"#,
        1,
    );
    answer.unwrap();
    assert_eq!(diary.lock().unwrap().seeds.len(), 1);
}

#[test]
fn coefficients_of_the_methods_own_count_only_where_the_mask_is_one() {
    let (answer, diary) = learn(
        r#"
        (func $step (param $batch i32) (result i32)
          (local $rows i32) (local $scores i32)
          (local.set $rows (call $examples (local.get $batch)))
          (call $score (call $policy) (local.get $rows) (i32.const 0) (f32.const 1) (i32.const 64))
          (local.set $scores (call $handle))
          (call $ones (i32.const 512) (i32.const 2) (i32.const 5) (i32.const 64))
          (call $backward-from (local.get $scores) (call $handle) (i32.const 0) (i32.const 0) (i32.const 64))
          (call $pass-on))"#,
        1,
    );
    answer.unwrap();
    assert_eq!(diary.lock().unwrap().seeds, [[[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]]]);
}

#[test]
fn scores_of_the_reference_take_no_gradient() {
    let (answer, diary) = learn(
        r#"
        (func $step (param $batch i32) (result i32)
          (local $scores i32)
          (call $reference (i32.const 64))
          (call $score (call $handle) (call $examples (local.get $batch)) (i32.const 0) (f32.const 1) (i32.const 64))
          (local.set $scores (call $handle))
          (call $ones (i32.const 512) (i32.const 2) (i32.const 5) (i32.const 64))
          (call $backward-from (local.get $scores) (call $handle) (i32.const 0) (i32.const 0) (i32.const 64))
          (call $pass-on))"#,
        1,
    );
    assert!(words(answer).ends_with("only scores of the policy take a gradient, these are of another view"));
    assert!(diary.lock().unwrap().seeds.is_empty());
}

#[test]
fn scores_from_before_an_update_take_no_gradient() {
    let (answer, diary) = learn(
        r#"
        (func $step (param $batch i32) (result i32)
          (local $tap i32)
          (local.set $tap (call $logprob (call $scores (call $examples (local.get $batch)))))
          (call $minimise (call $total (local.get $tap)) (i32.const 64))
          (call $update (i32.const 64))
          (call $minimise (call $total (local.get $tap)) (i32.const 64))
          (call $pass-on))"#,
        1,
    );
    assert!(words(answer).ends_with("the weights were updated after these scores were made; score the rows again"));
    assert_eq!(diary.lock().unwrap().updates, 1);
    assert_eq!(diary.lock().unwrap().seeds.len(), 1);
}

#[test]
fn a_tap_that_outlives_its_scores_by_a_step_takes_no_gradient() {
    let (answer, diary) = learn(
        r#"
        (global $tap (mut i32) (i32.const 0))
        (func $step (param $batch i32) (result i32)
          (local $scores i32)
          (if (global.get $tap) (then
            (call $minimise (call $total (global.get $tap)) (i32.const 64))
            (return (call $pass-on))))
          (local.set $scores (call $scores (call $examples (local.get $batch))))
          (global.set $tap (call $logprob (local.get $scores)))
          (call $drop-scores (local.get $scores))
          (call $done))"#,
        2,
    );
    assert!(words(answer).ends_with("the loss depends on scores of an earlier step; score the rows again"));
    assert!(diary.lock().unwrap().seeds.is_empty());
}

#[test]
fn an_update_without_a_gradient_is_refused() {
    let (answer, diary) =
        learn("(func $step (param i32) (result i32) (call $update (i32.const 64)) (call $pass-on))", 1);
    assert!(words(answer).ends_with("no gradient has accumulated since the last update"));
    assert_eq!(diary.lock().unwrap().updates, 0);
}

#[test]
fn a_loss_of_more_than_one_element_is_refused() {
    let (answer, _) = learn(
        r#"
        (func $step (param $batch i32) (result i32)
          (call $minimise (call $logprob (call $scores (call $examples (local.get $batch)))) (i32.const 64))
          (call $pass-on))"#,
        1,
    );
    assert!(words(answer).ends_with("a loss is one element, this is [2, 3]"));
}

#[test]
fn metrics_come_back_with_how_to_put_micro_batches_together() {
    let guest = r#"
        (import "tunebox:method/run@0.1.0" "metric" (func $metric (param i32 i32 f32 i32)))
        (import "tunebox:method/run@0.1.0" "add-metric-of" (func $add-metric-of (param i32 i32 i32 i32)))
        (import "tunebox:method/tensor@0.1.0" "ones" (func $ones (param i32 i32 i32 i32)))
        (data (i32.const 256) "loss")
        (func $step (param i32) (result i32)
          (call $metric (i32.const 256) (i32.const 4) (f32.const 0.5) (i32.const 64))
          (call $ones (i32.const 0) (i32.const 0) (i32.const 5) (i32.const 64))
          (call $add-metric-of (i32.const 256) (i32.const 4) (call $handle) (i32.const 64))
          (call $pass-on))"#;
    let (mut session, _) = start(guest, settings());
    let report = session.step(batch()).unwrap();
    assert_eq!(report.metrics, [("loss".to_owned(), 0.5, Combine::Mean), ("loss".to_owned(), 1.0, Combine::Sum)]);
    assert_eq!(report.host_calls, 3);
    assert_eq!(session.step(batch()).unwrap().metrics.len(), 2, "a step reports only its own");
}

#[test]
fn settings_reach_the_method_and_its_words_come_back() {
    // Answers with the name of the first setting.
    let guest = r#"
        (func $init (param $list i32) (param $length i32) (result i32)
          (i32.store8 (i32.const 0) (i32.const 1))
          (i32.store (i32.const 4) (i32.load (local.get $list)))
          (i32.store (i32.const 8) (i32.load offset=4 (local.get $list)))
          (i32.const 0))"#;
    let (mut session, _) = start(guest, settings());
    let answer = session.init(&[("beta".into(), Value::Number(0.1)), ("name".into(), Value::Text("x".into()))]);
    assert_eq!(answer.unwrap_err().to_string(), "`guest` refuses in `init`: beta");
}

#[test]
fn the_state_of_a_method_goes_through_a_checkpoint_unchanged() {
    // Keeps the place and length of what `load-state` gave.
    let guest = r#"
        (global $at (mut i32) (i32.const 0))
        (global $length (mut i32) (i32.const 0))
        (func $load-state (param $bytes i32) (param $count i32) (result i32)
          (global.set $at (local.get $bytes))
          (global.set $length (local.get $count))
          (call $done))
        (func $save-state (result i32)
          (i32.store (i32.const 0) (global.get $at))
          (i32.store (i32.const 4) (global.get $length))
          (i32.const 0))"#;
    let (mut session, _) = start(guest, settings());
    assert!(session.save_state().unwrap().is_empty());
    session.load_state(&[1, 2, 250]).unwrap();
    assert_eq!(session.save_state().unwrap(), [1, 2, 250]);
}

#[test]
fn random_numbers_go_on_where_a_checkpoint_left_them() {
    let guest = r#"
        (import "tunebox:method/tensor@0.1.0" "random-normal" (func $normal (param i32 i32 i32 i32 i32)))
        (import "tunebox:method/run@0.1.0" "metric-of" (func $metric-of (param i32 i32 i32 i32)))
        (data (i32.const 256) "loss")
        (func $step (param i32) (result i32)
          (call $normal (i32.const 256) (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 64))
          (call $metric-of (i32.const 256) (i32.const 4) (call $handle) (i32.const 64))
          (call $pass-on))"#;
    let number = |session: &mut Session| session.step(batch()).unwrap().metrics[0].1;
    let (mut whole, _) = start(guest, settings());
    let (_, second) = (number(&mut whole), number(&mut whole));
    let (mut before, _) = start(guest, settings());
    let first = number(&mut before);
    let streams = before.streams().clone();
    let (mut after, _) = start(guest, SessionSettings { streams, ..settings() });
    assert_ne!(first, second);
    assert_eq!(number(&mut after), second);
}

#[test]
fn a_trap_ends_the_session_and_leaves_the_learner_whole() {
    let (mut session, diary) = start("(func $step (param i32) (result i32) (unreachable))", settings());
    diary.lock().unwrap().updates = 4;
    let Err(Error::Stopped(stop)) = session.step(batch()) else { panic!("the method did not stop") };
    assert_eq!((stop.function(), stop.step(), stop.is_host_fault()), (Function::Step, 5, false));
    assert!(!session.is_alive());
    assert!(matches!(session.step(batch()), Err(Error::Over { .. })));
    assert_eq!(session.learner().position(), 4);
    let learner: Box<dyn Any> = session.into_learner();
    assert!(learner.downcast::<FakeLearner>().is_ok());
}

#[test]
fn a_panic_of_the_host_is_an_error_that_says_so_and_leaves_the_learner_whole() {
    let guest = format!(
        "{LEARNING}(func $step (param $batch i32) (result i32)
          (drop (call $scores (call $examples (local.get $batch))))
          (call $done))"
    );
    let (mut session, diary) = start(&guest, settings());
    diary.lock().unwrap().panics = true;
    let error = session.step(batch()).unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("the host failed under `guest` at step 1: the model fell over ("), "{said}");
    assert!(error.why().unwrap().contains("`model.score-for-learning`"));
    assert_eq!(session.learner().planned(), 10);
}

#[test]
fn what_a_method_used_is_known_after_every_call_and_in_all() {
    let guest = format!(
        "{LEARNING}(func $step (param $batch i32) (result i32)
          (drop (call $scores (call $examples (local.get $batch))))
          (call $done))"
    );
    let (mut session, _) = start(&guest, settings());
    let first = session.step(batch()).unwrap();
    let second = session.step(batch()).unwrap();
    let (one, two) = (first.usage, second.usage);
    assert_eq!((one.calls, two.calls), (2, 3), "making the instance is a call as well");
    assert_eq!((two.total.host_calls, two.most.host_calls), (2 * first.host_calls, first.host_calls));
    assert_eq!((one.total.passes, two.total.passes), (1, 2));
    assert!(two.total.work > one.total.work && two.peak_device_bytes > 0 && two.linear_memory > 0);
    assert!(two.total.host_seconds > 0.0 && two.total.guest_seconds > 0.0);
    assert!(!two.slowest.operation.is_empty() && second.slow.is_none());
}

#[test]
fn an_operation_that_takes_long_is_told_and_does_not_end_the_method() {
    let guest = format!(
        "{LEARNING}(func $step (param $batch i32) (result i32)
          (drop (call $scores (call $examples (local.get $batch))))
          (call $done))"
    );
    let limits = Limits { operation_seconds: 1e-9, ..Limits::default() };
    let (mut session, _) = start(&guest, SessionSettings { limits, ..settings() });
    let report = session.step(batch()).unwrap();
    assert!(report.slow.unwrap().seconds > 0.0);
}

#[test]
fn a_step_that_keeps_the_host_at_work_for_too_long_ends_the_method() {
    let guest = r#"
        (import "tunebox:method/run@0.1.0" "position" (func $position (result i32)))
        (func $step (param i32) (result i32)
          (loop $again (drop (call $position)) (br $again))
          (unreachable))"#;
    let limits = Limits { step_wall_seconds: 0.05, host_calls: u64::MAX, ..Limits::default() };
    let (mut session, _) = start(guest, SessionSettings { limits, ..settings() });
    let error = session.step(batch()).unwrap_err();
    assert_eq!(error.to_string(), "`guest` took longer than a step may at step 1");
    assert_eq!(error.hint().unwrap(), "`--set limits.step-wall-seconds=1`, then `tunebox train run.toml --resume`");
}

#[test]
fn passes_are_charged_by_their_multiply_adds() {
    let guest = format!(
        "{LEARNING}(func $step (param $batch i32) (result i32)
          (drop (call $scores (call $examples (local.get $batch))))
          (call $done))"
    );
    // Five tokens at a hundred each, as the fake learner has it.
    let limits = |model_work| Limits { model_work, ..Limits::default() };
    let (mut session, _) = start(&guest, SessionSettings { limits: limits(500), ..settings() });
    assert_eq!(session.step(batch()).unwrap().usage.total.model_work, 500);
    let (mut session, _) = start(&guest, SessionSettings { limits: limits(499), ..settings() });
    let error = session.step(batch()).unwrap_err();
    assert_eq!(error.to_string(), "`guest` asked the model for more work than it may at step 1");
    assert!(error.place().unwrap().contains("past 499 multiply-adds"));
}

#[test]
fn the_caches_that_the_model_writes_with_count_before_it_writes() {
    let guest = r#"
        (import "tunebox:method/data@0.1.0" "[method]batch.rows" (func $rows (param i32 i32 i32 i32)))
        (import "tunebox:method/model@0.1.0" "policy" (func $policy (result i32)))
        (import "tunebox:method/sample@0.1.0" "[constructor]sampler" (func $sampler (result i32)))
        (import "tunebox:method/sample@0.1.0" "generate" (func $generate (param i32 i32 i32 i32)))
        (data (i32.const 256) "example")
        (func $step (param $batch i32) (result i32)
          (call $rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
          (call $generate (call $policy) (call $handle) (call $sampler) (i32.const 64))
          (call $pass-on))"#;
    // Two prompts of up to three tokens and eight more each, 64 bytes a token.
    let limits = |activation_bytes| Limits { activation_bytes, ..Limits::default() };
    let (mut session, _) = start(guest, SessionSettings { limits: limits(2 * 11 * 64), ..settings() });
    session.step(batch()).unwrap();
    let (mut session, _) = start(guest, SessionSettings { limits: limits(2 * 11 * 64 - 1), ..settings() });
    let error = session.step(batch()).unwrap_err();
    assert_eq!(error.to_string(), "`guest` keeps more of the model's work for learning than it may at step 1");
}

#[test]
fn what_a_method_logged_before_it_trapped_is_kept() {
    let guest = r#"
        (import "tunebox:method/run@0.1.0" "log" (func $log (param i32 i32)))
        (data (i32.const 256) "almost")
        (func $step (param i32) (result i32)
          (call $log (i32.const 256) (i32.const 6))
          (unreachable))"#;
    let (mut session, _) = start(guest, settings());
    assert!(session.step(batch()).is_err());
    assert_eq!(session.last_lines(), ["almost"]);
}

#[test]
fn a_scope_gives_back_the_bytes_of_what_was_made_in_it() {
    // Makes a mebibyte in a scope, a hundred times; the handles are never dropped.
    let guest = r#"
        (import "tunebox:method/tensor@0.1.0" "ones" (func $ones (param i32 i32 i32 i32)))
        (import "tunebox:method/tensor@0.1.0" "[constructor]scope" (func $scope (result i32)))
        (import "tunebox:method/tensor@0.1.0" "[resource-drop]scope" (func $close (param i32)))
        (data (i32.const 256) "\00\00\04\00")
        (func $step (param i32) (result i32)
          (local $scope i32) (local $left i32)
          (local.set $left (i32.const 100))
          (loop $again
            (local.set $scope (call $scope))
            (call $ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
            (drop (call $handle))
            (call $close (local.get $scope))
            (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
          (call $done))"#;
    let limits = Limits { device_bytes: 4 << 20, ..Limits::default() };
    let (mut session, _) = start(guest, SessionSettings { limits, ..settings() });
    session.step(batch()).unwrap();
}

#[test]
fn what_a_scope_keeps_outlives_it_and_its_bytes_stay_charged() {
    let guest = r#"
        (import "tunebox:method/tensor@0.1.0" "ones" (func $ones (param i32 i32 i32 i32)))
        (import "tunebox:method/tensor@0.1.0" "[method]tensor.shape" (func $shape (param i32 i32)))
        (import "tunebox:method/tensor@0.1.0" "[constructor]scope" (func $scope (result i32)))
        (import "tunebox:method/tensor@0.1.0" "[method]scope.keep" (func $keep (param i32 i32)))
        (import "tunebox:method/tensor@0.1.0" "[resource-drop]scope" (func $close (param i32)))
        (data (i32.const 256) "\00\00\04\00")
        (func $step (param i32) (result i32)
          (local $scope i32) (local $kept i32)
          (local.set $scope (call $scope))
          (call $ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
          (local.set $kept (call $handle))
          (call $keep (local.get $scope) (local.get $kept))
          (call $close (local.get $scope))
          (call $shape (local.get $kept) (i32.const 64))
          (call $done))"#;
    let limits = Limits { device_bytes: 16 << 20, ..Limits::default() };
    let (mut session, _) = start(guest, SessionSettings { limits, ..settings() });
    let steps = (0..100).take_while(|_| session.step(batch()).is_ok()).count();
    assert!((8..=16).contains(&steps), "{steps} mebibytes fitted into 16");
}

#[test]
fn a_graph_as_deep_as_allowed_is_walked_and_dropped() {
    let (answer, diary) = learn(
        r#"
        (func $step (param $batch i32) (result i32)
          (local $link i32) (local $next i32) (local $left i32)
          (local.set $link (call $logprob (call $scores (call $examples (local.get $batch)))))
          (local.set $left (i32.const 4000))
          (loop $again
            (local.set $next (call $minus (local.get $link)))
            (call $drop-tensor (local.get $link))
            (local.set $link (local.get $next))
            (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
          (call $minimise (call $total (local.get $link)) (i32.const 64))
          (call $pass-on))"#,
        1,
    );
    answer.unwrap();
    assert_eq!(diary.lock().unwrap().seeds, [[[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]]]);
}

#[test]
fn rows_stay_valid_after_their_batch_is_gone() {
    // Keeps the rows of the first step and reports in the second how many there are.
    let guest = format!(
        r#"(import "tunebox:method/data@0.1.0" "[method]rows.count" (func $count (param i32) (result i32)))
        (import "tunebox:method/run@0.1.0" "metric" (func $metric (param i32 i32 f32 i32)))
        {LEARNING}
        (data (i32.const 600) "loss")
        (global $kept (mut i32) (i32.const 0))
        (func $step (param $batch i32) (result i32)
          (if (i32.eqz (global.get $kept)) (then
            (global.set $kept (call $examples (local.get $batch)))
            (return (call $done))))
          (call $metric (i32.const 600) (i32.const 4) (f32.convert_i32_u (call $count (global.get $kept))) (i32.const 64))
          (call $pass-on))"#
    );
    let (mut session, _) = start(&guest, settings());
    session.step(batch()).unwrap();
    assert_eq!(session.step(batch()).unwrap().metrics, [("loss".to_owned(), 2.0, Combine::Mean)]);
}

/// Imports of a guest that patches; `$patch` makes one.
const PATCHING: &str = r#"
(import "tunebox:method/tensor@0.1.0" "ones" (func $ones (param i32 i32 i32 i32)))
(import "tunebox:method/patch@0.1.0" "ablate" (func $ablate (param i32 i32 i32 i32 i32)))
(import "tunebox:method/patch@0.1.0" "[resource-drop]patch" (func $drop-patch (param i32)))
(data (i32.const 256) "\03\00\00\00\00\00\00\00")
(func $patch (result i32)
  (call $ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $ablate (i32.const 260) (i32.const 1) (i32.const 1) (call $handle) (i32.const 64))
  (call $handle))
"#;

#[test]
fn a_patch_is_active_as_long_as_its_handle_and_no_longer_than_the_session() {
    let step = "(func $step (param $batch i32) (result i32)
      (call $drop-patch (call $patch))
      (drop (call $patch))
      (call $done))";
    let (mut session, diary) = start(&format!("{PATCHING}{step}"), settings());
    session.step(batch()).unwrap();
    {
        let diary = diary.lock().unwrap();
        assert_eq!((diary.patches, diary.unpatched.as_slice(), diary.cleared), (2, &[1][..], 0));
    }
    drop(session);
    assert_eq!(diary.lock().unwrap().cleared, 1);
}
