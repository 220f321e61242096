//! What goes into a method and comes back, and what lives from one step to the next.

use tunebox_sandbox::{Combine, Session, Value};

use super::{LEARNING, batch, settings, start};
use crate::support::fake_run::FakeRun;

#[test]
fn metrics_come_back_with_how_to_put_micro_batches_together() {
    let guest = r#"
        (data (i32.const 256) "loss")
        (func $step (param i32) (result i32)
          (call $run/metric (i32.const 256) (i32.const 4) (f32.const 0.5) (i32.const 64))
          (call $tensor/ones (i32.const 0) (i32.const 0) (i32.const 5) (i32.const 64))
          (call $run/add-metric-of (i32.const 256) (i32.const 4) (call $handle) (i32.const 64))
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
    assert_eq!(answer.unwrap_err().to_string(), "`guest` returned an error in `init`: beta");
    let silent = session.init(&[(String::new(), Value::Number(0.1))]);
    assert_eq!(silent.unwrap_err().to_string(), "`guest` returned an error in `init`, and gave no message");
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
        (data (i32.const 256) "loss")
        (func $step (param i32) (result i32)
          (call $tensor/randn (i32.const 256) (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 64))
          (call $run/metric-of (i32.const 256) (i32.const 4) (call $handle) (i32.const 64))
          (call $pass-on))"#;
    let number = |session: &mut Session<FakeRun>| session.step(batch()).unwrap().metrics[0].1;
    let (mut whole, _) = start(guest, settings());
    let (_, second) = (number(&mut whole), number(&mut whole));
    let (mut before, _) = start(guest, settings());
    let first = number(&mut before);
    let streams = before.streams().clone();
    let (mut after, _) = start(guest, settings());
    after.restore_streams(&streams);
    assert_eq!(after.streams(), &streams);
    assert_ne!(first, second);
    assert_eq!(number(&mut after), second);
}

#[test]
fn rows_stay_valid_after_their_batch_is_gone() {
    // Keeps the rows of the first step and reports in the second how many there are.
    let guest = format!(
        r#"{LEARNING}
        (data (i32.const 600) "loss")
        (global $kept (mut i32) (i32.const 0))
        (func $step (param $batch i32) (result i32)
          (if (i32.eqz (global.get $kept)) (then
            (global.set $kept (call $examples (local.get $batch)))
            (return (call $done))))
          (call $run/metric (i32.const 600) (i32.const 4) (f32.convert_i32_u (call $data/rows.count (global.get $kept))) (i32.const 64))
          (call $pass-on))"#
    );
    let (mut session, _) = start(&guest, settings());
    session.step(batch()).unwrap();
    assert_eq!(session.step(batch()).unwrap().metrics, [("loss".to_owned(), 2.0, Combine::Mean)]);
}

/// Imports of a guest that patches; `$patch` makes one.
const PATCHING: &str = r#"
(data (i32.const 256) "\03\00\00\00\00\00\00\00")
(func $patch (result i32)
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $patch/ablate (i32.const 260) (i32.const 1) (i32.const 1) (call $handle) (i32.const 64))
  (call $handle))
"#;

#[test]
fn a_patch_is_active_as_long_as_its_handle_and_no_longer_than_the_session() {
    let step = "(func $step (param $batch i32) (result i32)
      (call $patch/patch.drop (call $patch))
      (drop (call $patch))
      (call $done))";
    let (mut session, _) = start(&format!("{PATCHING}{step}"), settings());
    session.step(batch()).unwrap();
    assert_eq!(session.train_state().policy.active_patches(), 1);
    session.end();
    assert_eq!(session.train_state().policy.active_patches(), 0);
}
