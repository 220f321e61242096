//! A limit of instructions: the same method ends at the same one every time, whatever else the machine does.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{batch, settings};
use crate::support::fake_run::FakeRun;
use crate::support::guest;
use tunebox_foundation::explain::{Exit, Explain};
use tunebox_sandbox::{CodeOptions, Compiling, Engine, Error, Grants, Limits, Session, SessionSettings, StepReport};

/// Calls the host now and then, forever or `turns` times.
fn calls(turns: &str) -> Vec<u8> {
    guest::component(&format!(
        r#"(func $step (param i32) (result i32)
          (local $left i32)
          (local.set $left (i32.const {turns}))
          (loop $again
            (if (i32.eqz (i32.rem_u (local.get $left) (i32.const 100))) (then (drop (call $run/position))))
            (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
          (call $done))"#
    ))
}

/// One step of a component in an engine that counts instructions, under at most `instructions`. The seconds of the
/// method are no time at all: they do not apply.
fn step(component: &[u8], instructions: u64) -> Result<StepReport, Error> {
    let code = CodeOptions { count_instructions: true, ..CodeOptions::default() };
    let engine = Engine::with(Compiling { code, ..Compiling::default() }).unwrap();
    let limits =
        Limits { step_instructions: instructions, step_seconds: 1e-9, init_seconds: 1e-9, ..Limits::default() };
    let method = engine.admit(component, "guest", &Grants::default(), &limits).unwrap();
    let train_state = FakeRun::with_record().0;
    Session::start(&method, train_state, SessionSettings { limits, ..settings() })?.step(batch())
}

/// Runs `work` while two threads keep the processor busy.
fn under_load<T>(work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        (0..2).for_each(|_| {
            drop(scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }))
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn a_method_past_its_instructions_ends_at_the_same_one_every_time() {
    let end = || step(&calls("0"), 1_000_000).unwrap_err();
    let (first, loaded) = (end(), under_load(end));
    assert_eq!(first.to_string(), "`guest` executed more instructions than it may at step 1");
    assert_eq!(first.exit(), Exit::Sandbox);
    assert_eq!(first.hint().unwrap(), "`--set limits.step-instructions=2000000` allows it more");
    let place = first.location().unwrap();
    assert!(place.starts_with("in `step`, past 1,000,000 instructions, after 1,"), "{place}");
    assert_eq!(loaded.location().unwrap(), place);
}

#[test]
fn the_instructions_of_a_step_are_counted_to_the_last() {
    let used = |limit| step(&calls("5000"), limit).map(|report| report.usage.most.instructions);
    let count = used(1 << 40).unwrap();
    assert!((5_000 * 8..5_000 * 16).contains(&count), "{count}");
    assert_eq!(under_load(|| used(1 << 30)).unwrap(), count);
    // The engine looks at the count where a loop or a function begins.
    assert!(used(count + 1).is_ok() && used(count - 100).is_err());
}

#[test]
fn a_copy_counts_by_its_bytes() {
    let fill = |bytes: u32| {
        guest::component(&format!(
            "(func $step (param i32) (result i32)
              (memory.fill (i32.const 1024) (i32.const 1) (i32.const {bytes}))
              (call $done))"
        ))
    };
    let count = |bytes| step(&fill(bytes), 1 << 40).unwrap().usage.most.instructions;
    assert_eq!(count(40_000) - count(10_000), 30_000);
}

#[test]
fn an_engine_that_does_not_count_refuses_such_a_limit() {
    let limits = Limits { step_instructions: 1_000_000, ..Limits::default() };
    let method = Engine::new().unwrap().admit(&calls("5"), "guest", &Grants::default(), &limits).unwrap();
    let train_state = FakeRun::with_record().0;
    let error = Session::start(&method, train_state, SessionSettings { limits, ..settings() }).err().unwrap();
    assert!(error.to_string().contains("its code does not count instructions"), "{error}");
}
