//! What a method uses: counted after every call, charged before the host works, given back by a scope.

use tunebox_foundation::explain::Explain;
use tunebox_foundation::format::group_digits;
use tunebox_model::policy::View;
use tunebox_sandbox::{Limits, SessionSettings};

use super::{LEARNING, batch, settings, start};

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
fn a_divergence_costs_a_second_pass_and_the_logits_of_both() {
    let guest = |diverge: &str| {
        format!(
            r#"{LEARNING}(func $step (param $batch i32) (result i32) (local $set i32)
              (local.set $set (call $model/taps.new))
              {diverge}
              (call $model/score-for-learning
                (call $examples (local.get $batch)) (i32.const 1) (local.get $set) (f32.const 1) (i32.const 64))
              (drop (call $handle))
              (call $done))"#
        )
    };
    let used = |diverge: &str| start(&guest(diverge), settings()).0.step(batch()).unwrap().usage.total;
    let plain = used("");
    let with =
        used("(call $model/taps.divergence (local.get $set) (call $model/policy) (f32.const 0.5) (i32.const 64))");
    assert_eq!((plain.passes, with.passes), (1, 2));
    assert_eq!(with.model_work, 2 * plain.model_work);
    let (targets, vocabulary) = (batch().sides[0].1.targets() as u64, 16);
    assert!(with.work - plain.work > 8 * targets * vocabulary, "{} {}", with.work, plain.work);
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
        (func $step (param i32) (result i32)
          (loop $again (drop (call $run/position)) (br $again))
          (unreachable))"#;
    let limits = Limits { step_wall_seconds: 0.05, host_calls: u64::MAX, ..Limits::default() };
    let (mut session, _) = start(guest, SessionSettings { limits, ..settings() });
    let error = session.step(batch()).unwrap_err();
    assert_eq!(error.to_string(), "`guest` took longer than a step may at step 1");
    assert_eq!(error.hint().unwrap(), "`--set limits.step-wall-seconds=1` allows it more");
}

#[test]
fn a_gradient_that_is_refused_is_charged_each_time() {
    // The square root of 0 has no slope: the loss is 0, and its gradient is not a number.
    let guest = |times: u32| {
        format!(
            "{LEARNING}(func $step (param $batch i32) (result i32)
              (local $tap i32) (local $loss i32) (local $left i32)
              (local.set $tap (call $model/scores.logprob (call $scores (call $examples (local.get $batch)))))
              (call $tensor/add (local.get $tap) (call $minus (local.get $tap)) (i32.const 64))
              (call $tensor/tensor.sqrt (call $handle) (i32.const 64))
              (local.set $loss (call $total (call $handle)))
              (local.set $left (i32.const {times}))
              (loop $again
                (call $learn/backward (local.get $loss) (i32.const 64))
                (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
              (if (i32.eqz (i32.load8_u (i32.const 64))) (then (unreachable)))
              (call $done))"
        )
    };
    let work = |times| start(&guest(times), settings()).0.step(batch()).unwrap().usage.total.work;
    assert!(work(11) - work(1) > 10 * 200, "{} and {}", work(1), work(11));
}

#[test]
fn passes_are_charged_by_their_multiply_adds() {
    let guest = format!(
        "{LEARNING}(func $step (param $batch i32) (result i32)
          (drop (call $scores (call $examples (local.get $batch))))
          (call $done))"
    );
    let limits = |model_work| Limits { model_work, ..Limits::default() };
    let (mut session, _) = start(&guest, settings());
    // Five tokens.
    let needed = 5 * session.train_state().policy.model().configuration.parameter_count();
    let (mut session, _) = start(&guest, SessionSettings { limits: limits(needed), ..settings() });
    assert_eq!(session.step(batch()).unwrap().usage.total.model_work, needed);
    let (mut session, _) = start(&guest, SessionSettings { limits: limits(needed - 1), ..settings() });
    let error = session.step(batch()).unwrap_err();
    assert_eq!(error.to_string(), "`guest` asked the model for more work than it may at step 1");
    assert!(error.location().unwrap().contains(&format!("past {} multiply-adds", group_digits(needed - 1))));
}

#[test]
fn the_caches_that_the_model_writes_with_count_before_it_writes() {
    let guest = r#"
        (data (i32.const 256) "example")
        (func $step (param $batch i32) (result i32)
          (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
          (call $sample/generate (call $model/policy) (call $handle) (call $sample/sampler.new) (i32.const 64))
          (call $pass-on))"#;
    // Two prompts of up to three tokens and eight more each.
    let needed = start(guest, settings()).0.train_state().policy.cache_memory(&View::Policy, 2, 11);
    assert!(needed > 0);
    let limits = |activation_bytes| Limits { activation_bytes, ..Limits::default() };
    let (mut session, _) = start(guest, SessionSettings { limits: limits(needed), ..settings() });
    session.step(batch()).unwrap();
    let (mut session, _) = start(guest, SessionSettings { limits: limits(needed - 1), ..settings() });
    let error = session.step(batch()).unwrap_err();
    assert_eq!(error.to_string(), "`guest` makes the model keep more than it may at step 1");
}

#[test]
fn a_scope_gives_back_the_bytes_of_what_was_made_in_it() {
    // Makes a mebibyte in a scope, a hundred times; the handles are never dropped.
    let guest = r#"
        (data (i32.const 256) "\00\00\04\00")
        (func $step (param i32) (result i32)
          (local $scope i32) (local $left i32)
          (local.set $left (i32.const 100))
          (loop $again
            (local.set $scope (call $tensor/scope.new))
            (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
            (drop (call $handle))
            (call $tensor/scope.drop (local.get $scope))
            (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
          (call $done))"#;
    let limits = Limits { device_bytes: 4 << 20, ..Limits::default() };
    let (mut session, _) = start(guest, SessionSettings { limits, ..settings() });
    session.step(batch()).unwrap();
}

#[test]
fn what_a_scope_keeps_outlives_it_and_its_bytes_stay_charged() {
    let guest = r#"
        (data (i32.const 256) "\00\00\04\00")
        (func $step (param i32) (result i32)
          (local $scope i32) (local $kept i32)
          (local.set $scope (call $tensor/scope.new))
          (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
          (local.set $kept (call $handle))
          (call $tensor/scope.keep (local.get $scope) (local.get $kept))
          (call $tensor/scope.drop (local.get $scope))
          (call $tensor/tensor.shape (local.get $kept) (i32.const 64))
          (call $done))"#;
    let limits = Limits { device_bytes: 16 << 20, ..Limits::default() };
    let (mut session, _) = start(guest, SessionSettings { limits, ..settings() });
    let steps = (0..100).take_while(|_| session.step(batch()).is_ok()).count();
    assert!((8..=16).contains(&steps), "{steps} mebibytes fitted into 16");
}
