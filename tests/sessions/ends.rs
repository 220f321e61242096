//! Sessions that end early: who is told to be at fault, and what is left whole.

use tunebox_foundation::explain::Explain;
use tunebox_sandbox::{Error, Function, RunHooks as _};

use super::{LEARNING, batch, settings, start};

#[test]
fn a_trap_ends_the_session_and_leaves_the_train_state_whole() {
    let (mut session, record) = start("(func $step (param i32) (result i32) (unreachable))", settings());
    record.lock().unwrap().updates = 4;
    let Err(Error::Stopped(stop)) = session.step(batch()) else { panic!("the method did not stop") };
    assert_eq!((stop.function(), stop.step(), stop.is_host_fault()), (Function::Step, 5, false));
    assert!(!session.is_alive());
    assert!(matches!(session.step(batch()), Err(Error::Over { .. })));
    assert_eq!(session.train_state().hooks.position(), 4);
    session.train_state().policy.snapshot("after").unwrap();
}

#[test]
fn a_panic_of_the_host_is_an_error_that_says_so_and_leaves_the_train_state_whole() {
    let guest = format!(
        "{LEARNING}(func $step (param $batch i32) (result i32)
          (drop (call $scores (call $examples (local.get $batch))))
          (call $done))"
    );
    let (mut session, record) = start(&guest, settings());
    record.lock().unwrap().panics = true;
    let error = session.step(batch()).unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("the host failed under `guest` at step 1: the model fell over ("), "{said}");
    assert!(error.why().unwrap().contains("`model.score-for-learning`"));
    assert_eq!(session.train_state().hooks.planned_steps(), 10);
}

#[test]
fn what_a_method_logged_before_it_trapped_is_kept() {
    let guest = r#"
        (data (i32.const 256) "almost")
        (func $step (param i32) (result i32)
          (call $run/log (i32.const 256) (i32.const 6))
          (call $run/log (i32.const 256) (i32.const 2000))
          (unreachable))"#;
    let (mut session, _) = start(guest, settings());
    assert!(session.step(batch()).is_err());
    assert_eq!(session.take_last_lines(), (vec!["almost".to_owned()], 1));
    assert!(session.take_last_lines().0.is_empty(), "they are told once");
}
